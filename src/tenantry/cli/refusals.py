"""The API server's message about an invalid object, reworded to lines that begin with the field. Pure.

Tenant.tenantry.dev "x" is invalid: [spec.owners[0].name: Invalid value: "system:a": must not …, …]
    ─► Tenant "x" is wrong:
         spec.owners[0].name must not …
"""

from __future__ import annotations

import re

from tenantry.api.errors import Forbidden, InputError, Invalid, NotFound
from tenantry.api.kinds import KINDS
from tenantry.api.wording import shortened
from tenantry.world.validation import Problem

_HEAD = re.compile(r'(?P<kind>[A-Za-z]+)(?:\.[a-z0-9.-]+)? "(?P<name>[^"]*)" is invalid: (?P<causes>.*)', re.DOTALL)
_DENIED = re.compile(
    r"(?P<what>\S+ \"[^\"]*\") is forbidden: ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: "
    r"(?P<message>.*)",
    re.DOTALL,
)
_MISSING = re.compile(r'(?P<kind>[a-z0-9.-]+) "(?P<name>[^"]*)" not found')
_TYPES = (
    "Invalid value|Required value|Unsupported value|Forbidden|Duplicate value|Not found|Too long|Too many"
    "|Internal error"
)
_CAUSE = re.compile(rf"(?P<field>[^\s:,]+(?:\[[^\]]*\][^\s:,]*)*): (?P<type>{_TYPES})")


def problems(message: str) -> list[Problem]:
    """Return the causes in the message of a 422; [] if it has another form."""
    head = _HEAD.fullmatch(message)
    if head is None:
        return []
    causes = head["causes"]
    if causes.startswith("[") and causes.endswith("]"):
        causes = causes[1:-1]
    starts = list(_CAUSE.finditer(causes))
    found: list[Problem] = []
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(causes)
        detail = causes[start.end() : end].removesuffix(", ").removeprefix(": ")
        found.append(_problem(start["field"], start["type"], detail))
    # If the schema itself is violated, the API server evaluates no rules, and adds a cause that says so.
    return [problem for problem in found if "some validation rules were not checked" not in problem.message]


def _problem(field: str, type_: str, detail: str) -> Problem:
    path = "" if field == "<nil>" else field
    match type_:
        case "Required value":
            return Problem(path, "must be given" + (f": {detail}" if detail else ""))
        case "Invalid value":
            # "VALUE: message": the value is the one in the manifest, or only its type; an object has no value.
            said = re.sub(r'^(?:"(?:[^"\\]|\\.)*"|(?!must )[^:]*): ', "", detail, count=1, flags=re.DOTALL)
            if not path and said.startswith("metadata."):
                # The fieldPath of a rule cannot name fields of metadata, so our messages begin with them.
                path, _, said = said.partition(" ")
            return Problem(path, _reworded(said or detail, path))
        case "Unsupported value":
            value, _, allowed = detail.partition(": ")
            return Problem(path, f"is {value}; {allowed.replace('supported values', 'it must be one of')}")
        case _:
            return Problem(path, f"{type_.lower()}: {detail}" if detail else type_.lower())


def _reworded(said: str, path: str) -> str:
    """Return a message of a schema or of a name's validation in our wording: "must …"."""
    said = re.sub(r"\bshould (be|have|match)\b", r"must \1", said.removeprefix(f"{path} in body "))
    said = re.sub(r'^(must be of type [a-z,]+): "[a-z]+"$', r"\1", said)
    return f"must be {said}" if said.startswith(("a ", "an ")) else said


def explained(error: Invalid) -> Invalid | InputError:
    """Return the error with a message that begins with the field, then states what it must be."""
    found = problems(str(error))
    head = _HEAD.fullmatch(str(error))
    if not found or head is None:
        return error
    return InputError(summary(f"{head['kind']} {head['name']!r}", found))


def denied(error: Forbidden) -> Forbidden:
    """Return the refusal of a policy with the name of the object and the policy's own message."""
    said = _DENIED.fullmatch(str(error))
    if said is None:
        return error
    return Forbidden(f"{said['what']}: {said['message']}", status=error.status, reason=error.reason)


def lacks_kind(error: NotFound) -> bool:
    """Return whether the path itself is unknown, instead of an object: the answer is plain text, or these words."""
    return "404 page not found" in str(error) or "could not find the requested resource" in str(error)


def missing(error: NotFound) -> NotFound:
    """Return the error with the command that lists the existing objects, if the kind is Tenantry's or Namespace."""
    said = _MISSING.fullmatch(str(error))
    if said is None:
        return error
    resource = next((each.resource for each in KINDS if each.resource.full_name == said["kind"]), None)
    if resource is not None:
        listing = f"`tenantry get {resource.plural}{' -A' if resource.namespaced else ''}` lists all"
    elif said["kind"] == "namespaces":
        listing = "`tenantry tree` shows the namespaces of tenants"
    else:
        return error
    return NotFound(f"{error}; {listing}", status=error.status, reason=error.reason)


def summary(what: str, found: list[Problem]) -> str:
    """Return the text of an error about several problems: at most three, and how many more there are."""
    if len(found) == 1:
        return f"{what}: {found[0]}"
    listed = shortened(map(str, found), separator="\n  ", in_order=True)
    return f"{what} is wrong in {len(found)} places:\n  {listed}"

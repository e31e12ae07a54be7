"""The causes of a refusal, the authors of the rules, and the meaning of the API server's answer. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from tenantry.api.ruledeclarations import Action
from tenantry.policy.check import Violation
from tenantry.policy.request import Json, parts

_POLICY = re.compile(
    r"ValidatingAdmissionPolicy '(?P<policy>[^']*)' with binding '[^']*' denied request: (?P<message>.*)", re.DOTALL
)
_RULE = re.compile(r" \(rule ([A-Za-z.]+) of ([^)]*)\): ")
_RIGHTS = re.compile(
    r"(?P<said>User \"[^\"]*\" cannot .*|user \"[^\"]*\" \(groups=.*\) is attempting to grant .*)", re.DOTALL
)
_QUOTA = re.compile(r"(?P<said>(?:exceeded|failed) quota: .*)", re.DOTALL)
_SOURCE = re.compile(r"(?P<kind>[A-Za-z]+) '(?:(?P<namespace>[^/']+)/)?(?P<name>[^/']+)'")
_SUSPENDED = "tenantry-suspended"

FORBIDDEN, BAD_REQUEST, INVALID = 403, 400, 422


class Obstacle(StrEnum):
    """The kind of obstacle."""

    RULE = "Rule"
    POLICY = "Policy"
    SUSPENSION = "Suspension"
    RIGHTS = "Rights"
    QUOTA = "Quota"
    VALIDATION = "Validation"
    KUBERNETES = "Kubernetes"
    HOST = "Host"
    """The host of a virtual control plane, for another reason than those above."""


class Author(msgspec.Struct, frozen=True, rename="camel"):
    """The last author of a rule (Kubernetes: "Server-Side Apply", managedFields).

    Args:
        manager: The field manager, as in kubectl-edit.
        time: RFC 3339.
    """

    manager: str
    time: str


class Cause(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One reason for a refusal or warning.

    Args:
        by: The kind of obstacle.
        message: What is wrong.
        action: Whether it refuses, warns or audits.
        about: The part of the manifest, as in "each of its pods"; "" for all of it.
        fix: What would pass; "" if unknown.
        rule: The path of the rule; "" for other obstacles.
        source: The object that sets the rule, as in "Tenant 'acme'".
        author: The last author of the rule; None if unknown, or not readable.
    """

    by: Obstacle
    message: str
    action: Action = Action.ENFORCE
    about: str = ""
    fix: str = ""
    rule: str = ""
    source: str = ""
    author: Author | None = None


def of_violation(finding: Violation, action: Action = Action.ENFORCE, about: str = "") -> Cause:
    """Return the cause for a finding."""
    return Cause(
        by=Obstacle.RULE,
        message=f"{finding.path} {finding.what}",
        action=action,
        about=about,
        fix=finding.fix,
        rule=finding.rule,
        source=finding.source,
    )


def of_refusal(status: int, message: str, about: str = "") -> Cause:
    """Return the cause of a refusal; several rules in one refusal are separated by `told_by`.

    Args:
        status: The HTTP status.
        message: The message of the API server.
        about: The part of the manifest that the request created.
    """
    policy = _POLICY.search(message)
    if policy is not None:
        if _RULE.search(policy["message"]) is not None:
            return Cause(by=Obstacle.RULE, message=policy["message"], about=about)
        by = Obstacle.SUSPENSION if policy["policy"] == _SUSPENDED else Obstacle.POLICY
        return Cause(by=by, message=policy["message"], about=about, source=policy["policy"])
    quota = _QUOTA.search(message)
    if status == FORBIDDEN and quota is not None:
        return Cause(by=Obstacle.QUOTA, message=quota["said"], about=about)
    rights = _RIGHTS.search(message)
    if status == FORBIDDEN and rights is not None:
        return Cause(by=Obstacle.RIGHTS, message=" ".join(rights["said"].split()), about=about)
    by = Obstacle.VALIDATION if status in {BAD_REQUEST, INVALID} else Obstacle.KUBERNETES
    return Cause(by=by, message=message, about=about)


def told_by(refusal: Cause) -> list[Cause]:
    """Return the causes in a refusal, which may name several rules."""
    if refusal.by is not Obstacle.RULE:
        return [refusal]
    # SAID (rule RULE of SOURCE): FIX; SAID (rule …
    said, *rest = _RULE.split(refusal.message)
    found: list[Cause] = []
    for index in range(0, len(rest), 3):
        rule, source, fix = rest[index : index + 3]
        after = ""
        if index + 3 < len(rest):
            fix, _, after = fix.rpartition("; ")
        found.append(Cause(by=Obstacle.RULE, message=said, about=refusal.about, fix=fix, rule=rule, source=source))
        said = after
    return found


MEASURED = frozenset({"objects.maxSizes"})
"""Rules with one cause for an object, whose message has a number: the API server measures the object with defaults."""


def is_same(one: Cause, other: Cause) -> bool:
    """Return whether two causes are equal apart from the part of the manifest, the author and what was measured."""
    is_told_alike = one.message == other.message or one.rule in MEASURED
    return is_told_alike and (one.by, one.rule, one.fix) == (other.by, other.rule, other.fix)


def agrees(found: Sequence[Cause], refusal: Cause | None) -> bool | None:
    """Return whether the API server and Python agree on the rules; None if the answer is about something else.

    Args:
        found: The findings of the enforced rules.
        refusal: The server's refusal; None if it accepts.
    """
    if refusal is None or refusal.by is Obstacle.QUOTA:
        # Quota admission runs after all policies.
        return not found
    if refusal.by is Obstacle.RULE:
        return any(is_same(each, told) for each in found for told in told_by(refusal))
    return None


# -- sources --------------------------------------------------------------------------------------


class Source(msgspec.Struct, frozen=True):
    """An object with rules."""

    kind: str
    name: str
    namespace: str = ""


def source_of(text: str) -> Source | None:
    """Return the object that a rule's source names; None if the source is not an object."""
    found = _SOURCE.fullmatch(text)
    return Source(found["kind"], found["name"], found["namespace"] or "") if found is not None else None


def author_of(value: Json, rule: str) -> Author | None:
    """Return the last author of a rule.

    Args:
        value: The object with the rule, and its managedFields.
        rule: Its path.
    """
    struct, _, field = rule.partition(".")
    # The author of a level is also the author of its switches.
    names = [field, "seccomp", "level"] if struct == "podSecurity" else [field]
    entries = parts(value, "metadata", "managedFields")
    for path in (*((struct, name) for name in names), (struct,), ()):
        found = [
            Author(str(each.get("manager", "")), str(each.get("time", "")))
            for each in entries
            if _has(each.get("fieldsV1") or {}, ("spec", "rules", *path))
        ]
        if found:
            return max(found, key=lambda each: each.time)
    return None


def _has(fields: Json, path: Sequence[str]) -> bool:
    for step in path:
        if f"f:{step}" not in fields:
            return False
        fields = fields[f"f:{step}"]
    return True


# -- printing -------------------------------------------------------------------------------------


def lines(causes: Sequence[Cause]) -> Iterator[str]:
    """Yield the lines for causes: what is wrong, what would pass, and the source."""
    for cause, after in itertools.zip_longest(causes, causes[1:]):
        yield _described(cause)
        if cause.by is Obstacle.RULE and (
            after is None or (after.source, after.author) != (cause.source, cause.author)
        ):
            author = cause.author
            who = f", last written by {author.manager} at {author.time}" if author is not None else ""
            yield f"  set by {cause.source}{who}"


def _described(cause: Cause) -> str:
    verb = {Action.ENFORCE: "", Action.WARN: "warned of, ", Action.AUDIT: "noted, "}[cause.action]
    head = f"rule {cause.rule}" if cause.by is Obstacle.RULE else cause.by.value.lower()
    about = f"{cause.about}: " if cause.about else ""
    fix = f": {cause.fix}" if cause.fix else ""
    return f"{verb}{head}: {about}{cause.message}{fix}"

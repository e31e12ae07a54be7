"""Checks into what a ValidatingAdmissionPolicy is made of: one policy for each kind of object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tenantry.policy import text
from tenantry.policy.check import FORMS, Check, Subject
from tenantry.policy.hostnames import HOSTNAMES
from tenantry.policy.namespaces import NAMESPACES
from tenantry.policy.pods import PODS
from tenantry.policy.sandbox import SANDBOX
from tenantry.policy.services import SERVICES, WRITTEN
from tenantry.policy.storage import CLAIMS

Json = dict[str, Any]

SECTIONS = ("enforce", "warn", "audit")
ENFORCED = SECTIONS[0]
LONGEST = 4000
"""Of a message, in characters; Kubernetes allows 5 KiB."""

TOGETHER = 4
"""How many checks tell their messages in one expression."""

PROBLEM = "problem"
"""The variable that holds the message of what is wrong."""

SUSPICIOUS = "is-suspicious"
"""The one condition of a policy on what there are many of."""

_VARIABLE = re.compile(r"\bvariables\.(\w+)")
_EXCUSE = re.compile(
    r"'[^']*' in namespaceObject\.metadata\.labels"
    r"|[\w.\[\]'/]+ == namespaceObject\.metadata\.labels\[\?'[^']*'\]\.orValue\(''\)"
)

SUBJECTS: tuple[Subject, ...] = (PODS, SANDBOX, SERVICES, *WRITTEN, CLAIMS, *HOSTNAMES, NAMESPACES)
"""Everything that is checked; another kind is added here."""


class Compiled(msgspec.Struct, frozen=True):
    """The parts of a policy, as JSON."""

    conditions: list[Json]
    variables: list[Json]
    validations: list[Json]


def compiled(subject: Subject) -> Compiled:
    """Return the parts of the policy of a kind of object, whose parameters are one section of the rules."""
    used = {name: cel for name, cel in forms().items() if _uses(subject, name)}
    variables = {**used, **subject.variables, **problem(subject.checks)}
    conditions = dict(subject.conditions)
    if subject.many:
        # All conditions are evaluated, also where the first says no.
        conditions = {SUSPICIOUS: " && ".join(f"({cel})" for cel in (*conditions.values(), glance(subject)))}
    return Compiled(
        conditions=[{"name": name, "expression": cel} for name, cel in conditions.items()],
        variables=[{"name": name, "expression": cel} for name, cel in variables.items()],
        validations=[only_validation()],
    )


def _uses(subject: Subject, form: str) -> bool:
    texts: Sequence[str] = [*(check.message for check in subject.checks), *subject.variables.values()]
    return any(f"variables.{form}" in cel for cel in texts)


def forms() -> dict[str, str]:
    """Return the variables that hold the maps of a section: name to CEL."""
    return {form: text.decoded(form) for form in FORMS}


def problem(checks: Sequence[Check]) -> dict[str, str]:
    """Return the variables for the messages of all checks, the last of them as one text; '' where nothing is wrong.

    The API server computes the messages of all validations, also of those that pass. So there is one validation, and
    its messages are looked for only where a quick look at everything finds that something is wrong.
    """
    # The time that the API server takes to compile an expression grows with the square of what is in it.
    some = [checks[start : start + TOGETHER] for start in range(0, len(checks), TOGETHER)]
    told = {f"told{number}": f"[{', '.join(check.message for check in few)}]" for number, few in enumerate(some)}
    whole = f"({' + '.join(f'variables.{name}' for name in told)}).filter(m, m != '').join('; ')"
    # The API server takes no longer message, and would tell none of it.
    short = f"[{whole}].map(t, size(t) > {LONGEST} ? t.substring(0, {LONGEST}) + '…' : t)[0]"
    return {**told, "suspects": _suspects(checks), PROBLEM: f"!variables.suspects ? '' : {short}"}


def _suspects(checks: Sequence[Check]) -> str:
    """Return CEL that tells whether anything is wrong, going over the containers once for all checks."""
    alone = [f"({check.suspects})" for check in checks if not check.each]
    items: dict[str, list[str]] = {}
    for check in checks:
        if check.each:
            items.setdefault(check.each, []).append(f"({check.suspects})")
    return " || ".join([*alone, *(f"{each}.exists(c, {' || '.join(parts)})" for each, parts in items.items())])


def glance(subject: Subject) -> str:
    """Return CEL for a condition: whether anything may be wrong with an object.

    Where the conditions of a policy hold, the API server turns the object into what CEL reads once for them and three
    times more: for validations, messages and audit annotations, whether there are any or not. For an honest object only
    the first is left, and half of the looking.

    A condition has parameters, but no variables, which are bound here one inside the other; and it does not see the
    labels of the namespace. These only excuse: where they would, the policy itself decides.
    """
    cel = _suspects(subject.checks)
    available = {**forms(), **subject.variables}
    for name, value in reversed(available.items()):
        if f"variables.{name}" in cel:
            cel = f"[{value}].exists(_{name}, {cel})"
    return _EXCUSE.sub("false", _VARIABLE.sub(r"_\1", cel))


def only_validation() -> Json:
    """Return the validation whose message is the variable `PROBLEM`, which is '' where nothing is wrong."""
    return {
        "expression": f"variables.{PROBLEM} == ''",
        "messageExpression": f"variables.{PROBLEM}",
        "message": "refused by a rule; see `kubectl get tenancyrules tenantry -o yaml`",
        "reason": "Forbidden",
    }

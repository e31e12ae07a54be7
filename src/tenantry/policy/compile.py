"""Checks into what a ValidatingAdmissionPolicy is made of: one policy for each kind of object and each section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenantry.policy.check import FORMS, Check, Subject
from tenantry.policy.hostnames import HOSTNAMES
from tenantry.policy.pods import PODS
from tenantry.policy.sandbox import SANDBOX
from tenantry.policy.services import SERVICES, WRITTEN
from tenantry.policy.storage import CLAIMS

Json = dict[str, Any]

SECTIONS = ("enforce", "warn", "audit")
ENFORCED = SECTIONS[0]
PROBLEM = "problem"
"""The variable that holds the message of what is wrong."""

SUBJECTS: tuple[Subject, ...] = (PODS, SANDBOX, SERVICES, *WRITTEN, CLAIMS, *HOSTNAMES)
"""Everything that is checked; another kind is added here."""


class Compiled(msgspec.Struct, frozen=True):
    """The parts of a policy, as JSON."""

    conditions: list[Json]
    variables: list[Json]
    validations: list[Json]


def compiled(subject: Subject, section: str) -> Compiled:
    """Return the parts of the policy of a kind of object.

    Args:
        subject: The kind.
        section: Whose rules it goes by: enforce, warn or audit.
    """
    used = {name: text for name, text in forms(section).items() if _uses(subject, name)}
    variables = {**used, **subject.variables}
    validations = [validation(check) for check in subject.checks]
    if section == ENFORCED:
        variables[PROBLEM] = problem(subject.checks)
        validations = [only_validation()]
    return Compiled(
        conditions=[{"name": name, "expression": text} for name, text in subject.conditions.items()],
        variables=[{"name": name, "expression": text} for name, text in variables.items()],
        validations=validations,
    )


def _uses(subject: Subject, form: str) -> bool:
    texts: Sequence[str] = [*(check.offends for check in subject.checks), *subject.variables.values()]
    return any(f"variables.{form}" in text for text in texts)


def forms(section: str) -> dict[str, str]:
    """Return the variables that hold the maps of a section: name to CEL."""
    where = f"params.spec.{section}"
    return {form: f"has({where}) && has({where}.{form}) ? {where}.{form} : {{}}" for form in FORMS}


def problem(checks: Sequence[Check]) -> str:
    """Return CEL for the first message of a check; '' where nothing is wrong.

    The API server computes the messages of all validations, also of those that pass. So there is one validation, and
    its message is looked for only where a quick look at everything finds that something is wrong.
    """
    text = "''"
    for check in reversed(checks):
        text = f"{check.offends} ? {check.message} : {text}"
    return f"!({_suspects(checks)}) ? '' : {text}"


def _suspects(checks: Sequence[Check]) -> str:
    """Return CEL that tells whether anything is wrong, going over the containers once for all checks."""
    alone = [f"({check.suspects})" for check in checks if not check.each]
    items: dict[str, list[str]] = {}
    for check in checks:
        if check.each:
            items.setdefault(check.each, []).append(f"({check.suspects})")
    return " || ".join([*alone, *(f"{each}.exists(c, {' || '.join(parts)})" for each, parts in items.items())])


def only_validation() -> Json:
    """Return the validation whose message is the variable `PROBLEM`, which is '' where nothing is wrong."""
    return {
        "expression": f"variables.{PROBLEM} == ''",
        "messageExpression": f"variables.{PROBLEM}",
        "message": "refused by a rule; see `kubectl get tenancyrules tenantry -o yaml`",
        "reason": "Forbidden",
    }


def validation(check: Check) -> Json:
    """Return one validation, for where people are told of everything at once."""
    return {
        "expression": f"!({check.offends})",
        "messageExpression": check.message,
        # Told where the expression above fails.
        "message": f"refused by the rule {check.rule}; see `kubectl get tenancyrules tenantry -o yaml`",
        "reason": "Forbidden",
    }

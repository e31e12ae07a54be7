"""Checks into what a ValidatingAdmissionPolicy is made of: one policy for each kind of object and each section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenantry.policy.check import FORMS, Check, Subject
from tenantry.policy.pods import PODS

Json = dict[str, Any]

SECTIONS = ("enforce", "warn", "audit")
SUBJECTS: tuple[Subject, ...] = (PODS,)
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
    forms = {form: _form(section, form) for form in FORMS if _uses(subject, form)}
    variables = {**forms, **subject.variables}
    return Compiled(
        conditions=[{"name": name, "expression": text} for name, text in subject.conditions.items()],
        variables=[{"name": name, "expression": text} for name, text in variables.items()],
        validations=[validation(check) for check in subject.checks],
    )


def _uses(subject: Subject, form: str) -> bool:
    texts: Sequence[str] = [*(check.expression for check in subject.checks), *subject.variables.values()]
    return any(f"variables.{form}" in text for text in texts)


def _form(section: str, form: str) -> str:
    where = f"params.spec.{section}"
    return f"has({where}) && has({where}.{form}) ? {where}.{form} : {{}}"


def validation(check: Check) -> Json:
    """Return one validation."""
    return {
        "expression": check.expression,
        "messageExpression": check.message,
        # Told where the expression above fails.
        "message": f"refused by the rule {check.rule}; see `kubectl get tenancyrules tenantry -o yaml`",
        "reason": "Forbidden",
    }

"""From checks to the parts of a ValidatingAdmissionPolicy: one policy for each kind of object. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api.model import Json
from tenantry.policy import text
from tenantry.policy.catalog import checks_of
from tenantry.policy.check import FORMS, RuleCheck, RuleTarget, quoted
from tenantry.policy.glance import glance, suspects

SECTIONS = ("enforce", "warn", "audit")
ENFORCED = SECTIONS[0]
LONGEST = 4000
"""The longest message, in characters; Kubernetes allows 5 KiB."""

TOGETHER = 4
"""How many checks compute their messages in one expression."""

PROBLEM = "problem"
"""The variable with the message; '' if nothing is wrong."""

SUSPICIOUS = "is-suspicious"
"""The only condition of a policy on a kind of which there are many objects."""


class CompiledPolicy(msgspec.Struct, frozen=True):
    """The parts of a policy: name to CEL of conditions and variables, and the validation."""

    conditions: dict[str, str]
    variables: dict[str, str]
    validation: Json


def compiled(target: RuleTarget) -> CompiledPolicy:
    """Return the parts of the policy of a kind of object, whose parameters are one section of the rules."""
    return _compiled(target, checks_of(target), forms())


def fixed(target: RuleTarget, checks: Sequence[RuleCheck], refused: Mapping[str, str]) -> CompiledPolicy:
    """Return the parts of a policy without parameters.

    Args:
        target: Its kind of object.
        checks: Switches, see `forms.refuse`.
        refused: The switches that are on, and the source of each.
    """
    entries = ", ".join(f"{quoted(rule)}: {quoted(source)}" for rule, source in sorted(refused.items()))
    return _compiled(target, checks, {"refused": f"{{{entries}}}"})


def _compiled(target: RuleTarget, checks: Sequence[RuleCheck], maps: Mapping[str, str]) -> CompiledPolicy:
    own = {**target.variables, **{name: cel for check in checks for name, cel in check.variables.items()}}
    texts = " ".join([*(check.message for check in checks), *own.values()])
    used = {name: cel for name, cel in maps.items() if f"variables.{name}" in texts}
    variables = {**used, **own, **problem(checks)}
    conditions = dict(target.conditions)
    if target.many:
        # The API server evaluates all conditions, even if the first is false.
        conditions = {SUSPICIOUS: " && ".join(f"({cel})" for cel in (*conditions.values(), glance(checks, own)))}
    return CompiledPolicy(conditions=conditions, variables=variables, validation=only_validation())


def forms() -> dict[str, str]:
    """Return the variables with the maps of a section: name to CEL."""
    return {form: text.decoded(form) for form in FORMS}


def problem(checks: Sequence[RuleCheck]) -> dict[str, str]:
    """Return the variables for the messages of all checks; the last is one text, '' if nothing is wrong.

    The API server computes the messages of all validations, also of those that hold. So there is one validation, and
    its message is computed only if a quick look at the whole object finds that something is wrong.
    """
    # The time in which the API server compiles an expression grows with the square of its length.
    some = [checks[start : start + TOGETHER] for start in range(0, len(checks), TOGETHER)]
    told = {f"told{number}": f"[{', '.join(check.message for check in few)}]" for number, few in enumerate(some)}
    whole = f"({' + '.join(f'variables.{name}' for name in told)}).filter(m, m != '').join('; ')"
    # The API server drops a longer message as a whole.
    short = f"[{whole}].map(t, size(t) > {LONGEST} ? t.substring(0, {LONGEST}) + '…' : t)[0]"
    return {**told, "suspects": suspects(checks), PROBLEM: f"!variables.suspects ? '' : {short}"}


def only_validation() -> Json:
    """Return the validation whose message is the variable `PROBLEM`."""
    return {
        "expression": f"variables.{PROBLEM} == ''",
        "messageExpression": f"variables.{PROBLEM}",
        "message": "refused by a rule; see `kubectl get tenancyrules tenantry -o yaml`",
        "reason": "Forbidden",
    }

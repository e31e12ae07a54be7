"""Which RuntimeClasses pods may name, and that the pods of a sandboxed tenant run in the cluster's sandbox (E14, H03).

The operator keeps the sandbox's name among the rules; a mutating policy writes it into pods before these checks run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

from tenantry.api.marks import RUNTIME, RUNTIME_SANDBOXED, SLICE
from tenantry.api.tenancyrules import Section
from tenantry.policy.check import Mend, Problem, RuleCheck, quoted
from tenantry.policy.forms import LIST, CheckOptions, allow
from tenantry.policy.mend import drops
from tenantry.policy.request import Json, Review
from tenantry.policy.targets.pods import POD, SANDBOXED_POD, Item
from tenantry.world.rules import MISSING, RUNTIME_CLASS, RUNTIME_CLASSES

_LABELS = "namespaceObject.metadata.labels"
CHOSEN = f"variables.chosen[{quoted(RUNTIME_CLASS)}]"
IS_THERE = f"{quoted(RUNTIME_CLASS)} in variables.chosen"


def named_class(
    rule: str,
    field: str,
    *,
    is_added: str = "false",
    was_added: Callable[[Review], bool] = lambda _: False,
    **more: Unpack[CheckOptions],
) -> RuleCheck:
    """Return a check of a field of the pod's spec that may be empty or one of a list.

    Args:
        rule: Its path.
        field: As in a pod's spec.
        is_added: CEL: whether Tenantry itself has written the field.
        was_added: The same in Python.
        more: See `RuleCheck`.
    """

    def find(spec: Json, allowed: Sequence[str], review: Review) -> str | None:
        named: str = spec.get(field) or ""
        return named if named and named not in allowed and not was_added(review) else None

    more.setdefault("mend", _name_another(field, rule))
    there = f"has(variables.spec.{field}) && variables.spec.{field} != ''"
    unless = "" if is_added == "false" else f" && !({is_added})"
    return allow(
        rule,
        POD,
        bad=f"{there} && !(variables.spec.{field} in {LIST}){unless}",
        find=find,
        what=f"has {field}",
        value=f"variables.spec.{field}",
        **more,
    )


def _name_another(field: str, rule: str) -> Mend:
    def mend(pod: Item, rules: Section) -> None:
        values = rules.allowed[rule].values
        if not pod["spec"].pop(field, None) and values:
            # The manifest names none, and the cluster's default is not allowed.
            pod["spec"][field] = values[0]

    return mend


# -- the sandbox ----------------------------------------------------------------------------------

_IS_SANDBOX = f"{quoted(RUNTIME)} in {_LABELS} && {IS_THERE} && variables.spec.runtimeClassName == {CHOSEN}.value"
_GIVEN = "object.?spec.runtimeClassName.orValue('')"
_MAY_CHOOSE = {"mayChoose": f"{quoted(SLICE)} in {_LABELS} && {_GIVEN} != ''"}
"""CEL: the pod names a runtime and runs on nodes that are its tenant's alone."""

_NOWHERE = "must run in a sandbox, and the cluster has none"
_MAKE_ONE = "an administrator must make a RuntimeClass of one, or set isolation.runtime to Shared"


def _is_sandbox(review: Review) -> bool:
    """Return whether a pod runs in the sandbox that its namespace requires."""
    chosen = review.rules.chosen.get(RUNTIME_CLASS)
    is_marked = RUNTIME in review.request.namespace_labels
    return is_marked and chosen is not None and review.spec.get("runtimeClassName") == chosen.value


def _may_choose(review: Review) -> bool:
    return SLICE in review.request.namespace_labels and bool(review.spec.get("runtimeClassName"))


def _other(spec: Json, review: Review) -> Problem | None:
    chosen, given = review.rules.chosen[RUNTIME_CLASS], spec.get("runtimeClassName") or ""
    # On a cluster the mutating policy has filled in an empty field; `explain denied` asks about manifests without it.
    if not given or given == chosen.value or _may_choose(review):
        return None
    return f"has runtimeClassName '{given}'", chosen.source, f"must be '{chosen.value}'; leave it out, and it is put in"


def _missing(_: Json, review: Review) -> Problem | None:
    must = review.request.namespace_labels.get(RUNTIME) == RUNTIME_SANDBOXED
    if must and RUNTIME_CLASS not in review.rules.chosen and not _may_choose(review):
        return _NOWHERE, review.rules.refused[MISSING], _MAKE_ONE
    return None


CHECKS = (
    named_class(
        RUNTIME_CLASSES,
        "runtimeClassName",
        is_added=_IS_SANDBOX,
        was_added=_is_sandbox,
        example={"spec": {"runtimeClassName": "kata"}},
        given=["gvisor"],
    ),
    RuleCheck(
        rule=RUNTIME_CLASS,
        form="chosen",
        scope=SANDBOXED_POD,
        bad=f"{_GIVEN} != {CHOSEN}.value && !variables.mayChoose",
        what=f"'has runtimeClassName \\'' + {_GIVEN} + '\\''",
        source=f"{CHOSEN}.source",
        fix=f"'must be \\'' + {CHOSEN}.value + '\\'; leave it out, and it is put in'",
        judge=_other,
        usual=True,
        variables=_MAY_CHOOSE,
        mend=drops("spec.runtimeClassName"),
        example={"spec": {"runtimeClassName": "kata"}},
        given="gvisor",
        note="The name of the cluster's sandbox, which the operator finds; it is not written below `rules`."
        " On nodes of its own slice a tenant chooses the runtime.",
    ),
    RuleCheck(
        rule=MISSING,
        form="refused",
        scope=SANDBOXED_POD,
        bad=f"!({IS_THERE}) && {_LABELS}[{quoted(RUNTIME)}] == '{RUNTIME_SANDBOXED}' && !variables.mayChoose",
        what=quoted(_NOWHERE),
        source=f"variables.refused[{quoted(MISSING)}]",
        fix=quoted(_MAKE_ONE),
        judge=_missing,
        variables=_MAY_CHOOSE,
        example={},
    ),
)

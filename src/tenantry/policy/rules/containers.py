"""How much one container may use: a bound for each resource, and the resources that need a limit."""

from __future__ import annotations

from collections.abc import Callable

from tenantry.api.tenancyrules import Section
from tenantry.policy.check import Mend, Problem, RuleCheck, listed
from tenantry.policy.mend import into
from tenantry.policy.request import Item, Json, Review, part
from tenantry.policy.targets.pods import RESOURCED
from tenantry.world.quantity import parse

UNBOUNDED = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a container without a limit may use any amount; it gets none of the others."""

_LIMITS = "has(c.resources) && has(c.resources.limits) && r in c.resources.limits"
# A template's pods get the limits of the LimitRange in their namespace when they are created.
_LIMITLESS = f"!variables.isTemplate && !({_LIMITS} || r in variables.podLimits)"
_MORE = "quantity(string({0}[r])).isGreaterThan(quantity(variables.maxima[r].value))"
_TOO_MUCH = (
    f"({_LIMITS} && {_MORE.format('c.resources.limits')}"
    f" || has(c.resources) && has(c.resources.requests) && r in c.resources.requests"
    f" && {_MORE.format('c.resources.requests')}"
    f" || !({_LIMITS}) && r in variables.podLimits && {_MORE.format('variables.podLimits')}"
    f" || r in {listed(UNBOUNDED)} && {_LIMITLESS})"
)
_POD_LIMITS = (
    "has(variables.spec.resources) && has(variables.spec.resources.limits) ? variables.spec.resources.limits : {}"
)
"""CEL: the limits of all containers of the pod together."""


def _limits(container: Json, review: Review) -> Item:
    return {**part(review.spec, "resources", "limits"), **part(container, "resources", "limits")}


def _too_much(container: Item, review: Review) -> Problem | None:
    limits, requests = _limits(container, review), part(container, "resources", "requests")
    for resource, bound in sorted(review.rules.maxima.items()):
        asked = [each[resource] for each in (limits, requests) if resource in each]
        unbounded = resource in UNBOUNDED and resource not in limits
        if unbounded or any(parse(each) > parse(bound.value) for each in asked):
            return f"may use too much {resource}", bound.source, f"set its limit to at most {bound.value}"
    return None


def _use_less(container: Item, rules: Section) -> None:
    limits, requests = into(container, "resources", "limits"), into(container, "resources", "requests")
    for resource, bound in rules.maxima.items():
        most = parse(bound.value)
        if resource in limits or resource in UNBOUNDED:
            amount = limits.get(resource)
            limits[resource] = amount if amount is not None and parse(amount) <= most else bound.value
        if resource in requests and parse(requests[resource]) > most:
            requests[resource] = bound.value


def _no_limit(container: Item, review: Review) -> Problem | None:
    for resource, source in sorted(review.rules.required.items()):
        if resource not in _limits(container, review):
            return f"has no limit of {resource}", source, f"set resources.limits.{resource}"
    return None


def _limit(container: Item, rules: Section) -> None:
    limits, requests = into(container, "resources", "limits"), part(container, "resources", "requests")
    for resource in rules.required:
        known = requests.get(resource, rules.maxima[resource].value if resource in rules.maxima else None)
        if known is not None:
            limits.setdefault(resource, known)


def _by_resource(
    rule: str,
    form: str,
    *,
    bad: str,
    what: str,
    source: str,
    fix: str,
    judge: Callable[[Item, Review], Problem | None],
    mend: Mend,
    example: Json,
    given: object,
    note: str,
) -> RuleCheck:
    """Return a check of each container and each resource `r` of a map; a message names the first by name."""
    return RuleCheck(
        rule=rule,
        form=form,
        scope=RESOURCED,
        bad=f"variables.{form}.exists(r, {bad})",
        # Go's maps have no order.
        bind=f"[variables.{form}.filter(r, {bad}).min()].map(r, {{}})[0]",
        what=what,
        source=source,
        fix=fix,
        judge=judge,
        whole=True,
        usual=True,
        variables={"podLimits": _POD_LIMITS},
        mend=mend,
        example=example,
        given=given,
        note=note,
    )


CHECKS = (
    _by_resource(
        "containers.max",
        "maxima",
        bad=_TOO_MUCH,
        what="'may use too much ' + r",
        source="variables.maxima[r].source",
        fix="'set its limit to at most ' + variables.maxima[r].value",
        judge=_too_much,
        mend=_use_less,
        example={"resources": {"limits": {"cpu": "8"}}},
        given={"cpu": "4"},
        note="Bounds of cpu, memory and ephemeral-storage also require a limit, without which use is unbounded.",
    ),
    _by_resource(
        "containers.requiredLimits",
        "required",
        bad=_LIMITLESS,
        what="'has no limit of ' + r",
        source="variables.required[r]",
        fix="'set resources.limits.' + r",
        judge=_no_limit,
        mend=_limit,
        example={"resources": {"requests": {"memory": "1Gi"}}},
        given=["memory"],
        note="Limits of a LimitRange in the namespace count; the fix is the request, or the bound of `containers.max`.",
    ),
)

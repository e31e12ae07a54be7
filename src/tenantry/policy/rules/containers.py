"""How much one container may use: a bound for each resource, and the resources that need a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tenantry.api.tenancyrules import LIMIT, RATIO, Bound, Section
from tenantry.policy.check import CheckScope, Mend, Problem, RuleCheck, listed
from tenantry.policy.mend import into
from tenantry.policy.request import Item, Json, Review, part
from tenantry.policy.targets.pods import POD, RESOURCED
from tenantry.world.quantity import parse, write

UNBOUNDED = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a container without a limit may use any amount; it gets none of the others."""

_LIMITS = "has(c.resources) && has(c.resources.limits) && r in c.resources.limits"
# A template's pods get the limits of the LimitRange in their namespace when they are created.
_LIMITLESS = f"!variables.isTemplate && !({_LIMITS} || r in variables.podLimits)"
_MORE = "quantity(string({0}[r])).isGreaterThan(quantity(variables.maxima[r].value))"
_REQUESTS = "has(c.resources) && has(c.resources.requests) && r in c.resources.requests"
_OVER_LIMIT = _MORE.format("c.resources.limits")
_OVER_REQUEST = _MORE.format("c.resources.requests")
_OVER_POD_LIMIT = f"!({_LIMITS}) && {_MORE.format('variables.podLimits')}"
_TOO_MUCH = (
    f"({_LIMITS} && {_OVER_LIMIT} || {_REQUESTS} && {_OVER_REQUEST}"
    f" || r in variables.podLimits && {_OVER_POD_LIMIT} || r in {listed(UNBOUNDED)} && {_LIMITLESS})"
)
_BOUND = "r in variables.maxima"
# A container names few resources, and the map has many keys.
_ANY_TOO_MUCH = (
    f"(has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(r, {_BOUND} && {_OVER_LIMIT})"
    f" || has(c.resources) && has(c.resources.requests) && c.resources.requests.exists(r, {_BOUND} && {_OVER_REQUEST})"
    f" || variables.podLimits.exists(r, {_BOUND} && {_OVER_POD_LIMIT})"
    f" || {listed(UNBOUNDED)}.exists(r, {_BOUND} && {_LIMITLESS}))"
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


# -- limits, and limits beside requests -----------------------------------------------------------

_ROUNDED = 1.000001
"""A tolerance: the API server multiplies quantities as floats only."""


def _resource(before: str) -> str:
    """Return CEL: the resource of a key `r` of the maxima."""
    return f"r.substring({len(before)})"


class _Limit(NamedTuple):
    """CEL: whether a limit is larger than the maxima allow, for one key `r` of them and for any of its resources.

    Args:
        of_key: For a key `r`, which the message names.
        of_any: For any limit: a container has few, and the maxima have many keys.
    """

    of_key: str
    of_any: str


def _limit_of(c: str, before: str, larger: Callable[[str, str], str]) -> _Limit:
    """Return when a limit of `c` is too large.

    Args:
        c: CEL: the container or the spec of the pod.
        before: How the keys of the maxima begin.
        larger: Returns CEL for CEL of the resource and of the largest value.
    """
    limits, resource = f"{c}.resources.limits", _resource(before)
    has_limits, key = f"has({c}.resources) && has({limits})", f"'{before}' + k"
    of_key = f"r.startsWith('{before}') && {has_limits} && {resource} in {limits}"
    return _Limit(
        of_key=f"{of_key} && {larger(resource, 'variables.maxima[r].value')}",
        of_any=f"{has_limits} && {limits}.exists(k, ({key}) in variables.maxima"
        f" && {larger('k', f'variables.maxima[{key}].value')})",
    )


def _over_limit(c: str) -> _Limit:
    """Return when a limit of `c` is larger than the maxima allow."""

    def larger(resource: str, most: str) -> str:
        return f"quantity(string({c}.resources.limits[{resource}])).isGreaterThan(quantity({most}))"

    return _limit_of(c, LIMIT, larger)


def _over_ratio(c: str) -> _Limit:
    """Return when a limit of `c` is a larger multiple of its request than the maxima allow."""
    requests, limits = f"{c}.resources.requests", f"{c}.resources.limits"

    def larger(resource: str, most: str) -> str:
        limit, request = (_as_float(f"string({each}[{resource}])") for each in (limits, requests))
        # A template's missing request is filled in later.
        given = f"has({requests}) && {resource} in {requests}"
        return f"{given} && {limit} > {request} * {_as_float(most)} * {_ROUNDED}"

    return _limit_of(c, RATIO, larger)


def _as_float(text: str) -> str:
    return f"quantity({text}).asApproximateFloat()"


def _by_limit(before: str, holder: Json, review: Review) -> Iterator[tuple[str, str, str, Bound]]:
    """Yield the resources that a holder limits: the resource, its limit, its request, and the bound."""
    limits, requests = part(holder, "resources", "limits"), part(holder, "resources", "requests")
    for key, bound in sorted(review.rules.maxima.items()):
        resource = key.removeprefix(before)
        if key.startswith(before) and resource in limits:
            yield resource, limits[resource], requests.get(resource, limits[resource]), bound


def _has_high_limit(holder: Item, review: Review) -> Problem | None:
    for resource, limit, _, bound in _by_limit(LIMIT, holder, review):
        if parse(limit) > parse(bound.value):
            return f"has a large limit of {resource}", bound.source, f"set it to at most {bound.value}"
    return None


def _has_high_ratio(holder: Item, review: Review) -> Problem | None:
    for resource, limit, request, bound in _by_limit(RATIO, holder, review):
        if float(parse(limit)) > float(parse(request)) * float(parse(bound.value)) * _ROUNDED:
            told = f"set it to at most {bound.value} times the request"
            return f"has a limit of {resource} far above its request", bound.source, told
    return None


def _limit_less(holder: Item, rules: Section) -> None:
    limits, requests = part(holder, "resources", "limits"), part(holder, "resources", "requests")
    for resource, limit in limits.items():
        most = rules.maxima.get(LIMIT + resource)
        if most is not None and parse(limit) > parse(most.value):
            limits[resource] = most.value
        ratio = rules.maxima.get(RATIO + resource)
        if ratio is not None and resource in requests:
            largest = parse(requests[resource]) * parse(ratio.value)
            limits[resource] = limits[resource] if parse(limits[resource]) <= largest else write(largest)


def _of_limits(scope: CheckScope) -> tuple[RuleCheck, RuleCheck]:
    """Return the checks of the limits of a container, or of the whole pod."""
    c = "c" if scope.among else "variables.spec"
    over_limit, over_ratio = _over_limit(c), _over_ratio(c)
    resources = {"requests": {"cpu": "1m"}, "limits": {"cpu": "64"}}
    # The request of the pod may not be less than those of its containers.
    whole: Json = {"spec": {"resources": resources, "containers": [{"name": "c", "image": "busybox"}]}}
    example: Json = {"resources": resources} if scope.among else whole

    def mend(held: Item, rules: Section) -> None:
        _limit_less(held if scope.among else part(held, "spec"), rules)

    return (
        _by_resource(
            "containers.maxLimits",
            "maxima",
            scope=scope,
            bad=over_limit.of_any,
            bad_key=over_limit.of_key,
            what=f"'has a large limit of ' + {_resource(LIMIT)}",
            source="variables.maxima[r].source",
            fix="'set it to at most ' + variables.maxima[r].value",
            judge=_has_high_limit,
            mend=mend,
            example=example,
            given={"cpu": "32"},
            note="A container without a limit passes: `containers.requiredLimits` requires one in Restricted, and"
            " Baseline warns.",
        ),
        _by_resource(
            "containers.limitRatios",
            "maxima",
            scope=scope,
            bad=over_ratio.of_any,
            bad_key=over_ratio.of_key,
            what=f"'has a limit of ' + {_resource(RATIO)} + ' far above its request'",
            source="variables.maxima[r].source",
            fix="'set it to at most ' + variables.maxima[r].value + ' times the request'",
            judge=_has_high_ratio,
            mend=mend,
            example=example,
            given={"cpu": "200"},
            note="A quota counts requests, unless it has keys of `limits.`: the ratio bounds what goes beyond them.",
        ),
    )


def _by_resource(
    rule: str,
    form: str,
    *,
    scope: CheckScope = RESOURCED,
    bad: str,
    bad_key: str,
    what: str,
    source: str,
    fix: str,
    judge: Callable[[Item, Review], Problem | None],
    mend: Mend,
    example: Json,
    given: object,
    note: str,
) -> RuleCheck:
    """Return a check of each container or of the pod; its message names the first key `r` for which `bad_key` holds."""
    return RuleCheck(
        rule=rule,
        form=form,
        scope=scope,
        bad=bad,
        # Go's maps have no order.
        bind=f"[variables.{form}.filter(r, {bad_key}).min()].map(r, {{}})[0]",
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
        bad=_ANY_TOO_MUCH,
        bad_key=_TOO_MUCH,
        what="'may use too much ' + r",
        source="variables.maxima[r].source",
        fix="'set its limit to at most ' + variables.maxima[r].value",
        judge=_too_much,
        mend=_use_less,
        example={"resources": {"limits": {"cpu": "8"}}},
        given={"cpu": "4"},
        note="Bounds of cpu, memory and ephemeral-storage also require a limit, without which use is unbounded.",
    ),
    *_of_limits(RESOURCED),
    *_of_limits(POD),
    _by_resource(
        "containers.requiredLimits",
        "required",
        bad=f"variables.required.exists(r, {_LIMITLESS})",
        bad_key=_LIMITLESS,
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

"""How much one container may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenantry.policy.check import Check
from tenantry.policy.items import RESOURCED, Item, Told, of_each
from tenantry.policy.request import Json, Judged, part
from tenantry.world.quantity import parse

Find = Callable[[Item, Judged], Told | None]

UNBOUNDED = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a container without a limit may use any amount; of others it has none then."""

_LIMITS = "has(c.resources) && has(c.resources.limits) && r in c.resources.limits"
_LIMITED = f"({_LIMITS} || r in variables.podLimits)"
_LIMITLESS = f"!variables.isTemplate && !{_LIMITED}"
"""CEL: a template's pods get the limits of the LimitRange in their namespace when they are made."""

_MORE = "quantity(string({0}[r])).isGreaterThan(quantity(variables.maxima[r].value))"
_TOO_MUCH = (
    f"({_LIMITS} && {_MORE.format('c.resources.limits')}"
    f" || has(c.resources) && has(c.resources.requests) && r in c.resources.requests"
    f" && {_MORE.format('c.resources.requests')}"
    f" || !({_LIMITS}) && r in variables.podLimits && {_MORE.format('variables.podLimits')}"
    f" || r in ['cpu', 'memory', 'ephemeral-storage'] && {_LIMITLESS})"
)

POD_LIMITS = (
    "has(variables.spec.resources) && has(variables.spec.resources.limits) ? variables.spec.resources.limits : {}"
)
"""CEL of the variable `podLimits`: what the containers of the pod may use together."""


def _limits(item: Json) -> dict[str, Any]:
    return part(item, "resources", "limits")


def _too_much(item: Item, judged: Judged) -> Told | None:
    limits = {**_limits(judged.spec), **_limits(item)}
    requests = part(item, "resources", "requests")
    for resource, bound in sorted(judged.rules.maxima.items()):
        asked = [each[resource] for each in (limits, requests) if resource in each]
        unbounded = resource in UNBOUNDED and resource not in limits
        if unbounded or any(parse(each) > parse(bound.value) for each in asked):
            return f"may use too much {resource}", bound.source, f"set its limit to at most {bound.value}"
    return None


def _no_limit(item: Item, judged: Judged) -> Told | None:
    limits = {**_limits(judged.spec), **_limits(item)}
    for resource, source in sorted(judged.rules.required.items()):
        if resource not in limits:
            return f"has no limit of {resource}", source, f"set resources.limits.{resource}"
    return None


def _of_resources(rule: str, form: str, bad: str, what: str, source: str, fix: str, find: Find) -> Check:  # noqa: PLR0917 - in the order of a message
    """Return a check of each container and each resource `r` of a map; the first by name is told."""
    return of_each(
        RESOURCED,
        rule,
        form,
        bad=f"variables.{form}.exists(r, {bad})",
        # Go's maps have no order.
        bind=f"[variables.{form}.filter(r, {bad}).min()].map(r, {{}})[0]",
        what=what,
        source=source,
        fix=fix,
        find=find,
        whole=True,
        usual=True,
    )


RESOURCES = (
    _of_resources(
        "containers.max",
        "maxima",
        _TOO_MUCH,
        "'may use too much ' + r",
        "variables.maxima[r].source",
        "'set its limit to at most ' + variables.maxima[r].value",
        _too_much,
    ),
    _of_resources(
        "containers.requiredLimits",
        "required",
        _LIMITLESS,
        "'has no limit of ' + r",
        "variables.required[r]",
        "'set resources.limits.' + r",
        _no_limit,
    ),
)

"""Keeps the rules of all namespaces that have none of their own, in Tenantry's namespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.rules import Rules
from tenantry.api.runtime import RuntimeClass
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.api.tenancyrules import MAPS, RulesMap, TenancyRules
from tenantry.controllers import tenancyrules, watched
from tenantry.controllers.runtime import sandbox_of
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.engine.plan import compare

KEY = "shared"
KINDS = (TenancyRules, RulesMap)
SECTIONS = frozenset(MAPS.values())
"""The RulesMaps that are ours; what may be approved automatically lies beside them."""


class RulesController:
    """Reconciles them; the key is `KEY`."""

    name = "rules"
    kind = TenancyRules

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            watched.defaults(lambda _: [KEY]),
            watched.runtime_classes(lambda _: [KEY]),
            *(watched.watch(kind.resource, _concerned) for kind in KINDS),
            # It is there in every cluster, and so is the object then, with or without TenancyDefaults.
            watched.watch(Namespace.resource, _concerned),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring them to what TenancyDefaults say.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        caches: dict[Resource, Cache[Observed]] = cluster.observed_caches(kind.resource for kind in KINDS)
        defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
        try:
            rules = defaults.spec.rules if defaults is not None else Rules()
            wanted = tenancyrules.shared(rules, sandbox_of(defaults, cluster.cache(RuntimeClass.resource)))
        except InputError:
            return None  # its condition says so; what is in force stays
        slices = defaults.spec.slices if defaults is not None else SliceDefaults()
        wanted = (*wanted, tenancyrules.of_slices(slices))

        def lookup(resource: Resource, name: str) -> Observed | None:
            return caches[resource].get(name)

        keys = {child.object.key for child in wanted}
        made = caches[RulesMap.resource].by_index(BY_NAMESPACE, marks.SYSTEM_NAMESPACE)
        stale = [(RulesMap.resource, found) for found in made if found.name in SECTIONS and found.key not in keys]
        outcome = await cluster.writer.apply(compare(wanted, lookup, stale=stale, equivalent=cluster.writer.equivalent))
        if outcome.error is not None:
            raise outcome.error
        return None


def _concerned(change: Change[Any]) -> Iterable[str]:
    value: Observed | None = change.after or change.before
    return [KEY] if value is not None and marks.SYSTEM_NAMESPACE in {value.namespace, value.name} else []

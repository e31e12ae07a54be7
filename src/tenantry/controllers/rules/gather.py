"""What decides the shared rules, read from the caches."""

from __future__ import annotations

import msgspec

from tenantry.api import marks
from tenantry.api.runtime import RuntimeClass
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import RulesMap
from tenantry.controllers.runtime import sandbox_of
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Lookup
from tenantry.world.sandbox import Sandbox


class SharedRulesInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the shared rules.

    Args:
        defaults: None if there are none.
        sandbox: What the cluster has.
        made: Every RulesMap in Tenantry's namespace.
        lookup: What is there, by kind and key.
    """

    defaults: TenancyDefaults | None
    sandbox: Sandbox
    made: tuple[Observed, ...]
    lookup: Lookup


def gather(cluster: Cluster) -> SharedRulesInputs:
    """Read the caches.

    Raises:
        InputError: The name of the sandbox in TenancyDefaults is wrong.
    """
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    maps: Cache[Observed] = cluster.cache(RulesMap.resource)
    return SharedRulesInputs(
        defaults=defaults,
        sandbox=sandbox_of(defaults, cluster.cache(RuntimeClass.resource)),
        made=tuple(maps.by_index(BY_NAMESPACE, marks.SYSTEM_NAMESPACE)),
        lookup=cluster.lookup,
    )

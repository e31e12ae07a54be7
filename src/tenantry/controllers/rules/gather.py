"""What decides the shared rules, read from the caches."""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.runtime import RuntimeClass
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.controllers.rules.desired import SharedRulesInputs
from tenantry.controllers.runtime import sandbox_of
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed


def gather(cluster: Cluster) -> SharedRulesInputs:
    """Read the caches."""
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    maps: Cache[Observed] = cluster.cache(PolicyParameters.resource)
    return SharedRulesInputs(
        defaults=defaults,
        sandbox=sandbox_of(defaults, cluster.cache(RuntimeClass.resource)),
        made=tuple(maps.by_index(BY_NAMESPACE, marks.SYSTEM_NAMESPACE)),
        lookup=cluster.lookup,
    )

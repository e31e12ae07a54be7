"""What decides the priority levels, read from the caches."""

from __future__ import annotations

import msgspec

from tenantry.api.fairness import Fairness
from tenantry.api.flowcontrol import FlowSchema, PriorityLevelConfiguration
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.owner import Owner
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.watched import BY_TENANT
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Lookup

KINDS = (PriorityLevelConfiguration.resource, FlowSchema.resource)


class ReservedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant with a level of its own.

    Args:
        owners: Its own; owners of Subnamespaces could name any user and so send that user's requests to the level.
        namespaces: The names of all namespaces of its tree.
    """

    owners: tuple[Owner, ...]
    namespaces: tuple[str, ...]


class FairnessInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the priority levels and FlowSchemas.

    Args:
        defaults: None if there are none.
        reserved: The tenants with a level of their own, by name, and their namespaces; None if there is no such tenant.
        missing: The names of reserved tenants that are not there, sorted.
        made: Every priority level and FlowSchema of the cluster.
        lookup: What is there, by kind and key.
    """

    defaults: TenancyDefaults | None
    reserved: dict[str, ReservedTenant | None]
    missing: tuple[str, ...]
    made: tuple[tuple[Resource, Observed], ...]
    lookup: Lookup

    @property
    def fairness(self) -> Fairness:
        """Return what an administrator says of levels."""
        return self.defaults.spec.fairness if self.defaults is not None else Fairness()


def gather(cluster: Cluster) -> FairnessInputs:
    """Read the caches."""
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    reserved = defaults.spec.fairness.reserved if defaults is not None else ()
    names = sorted({each.tenant for each in reserved})
    return FairnessInputs(
        defaults=defaults,
        reserved={name: _reserved(cluster, name) for name in names},
        missing=tuple(name for name in names if cluster.cache(Tenant.resource).get(name) is None),
        made=tuple((resource, found) for resource in KINDS for found in cluster.cache(resource)),
        lookup=cluster.lookup,
    )


def _reserved(cluster: Cluster, name: str) -> ReservedTenant | None:
    tenant: Tenant | None = cluster.cache(Tenant.resource).get(name)
    if tenant is None or tenant.metadata.deletion_timestamp:
        return None
    namespaces: list[Observed] = cluster.cache(Namespace.resource).by_index(BY_TENANT, name)
    return ReservedTenant(owners=tenant.spec.owners, namespaces=tuple(found.name for found in namespaces))

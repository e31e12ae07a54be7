"""Reads what decides the priority levels from the caches."""

from __future__ import annotations

from tenantry.api.flowcontrol import FlowSchema, PriorityLevelConfiguration
from tenantry.api.kubernetes import Namespace
from tenantry.api.peercluster import PeerCluster
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.fairness.desired import FairnessInputs, ReservedTenant
from tenantry.controllers.watched import BY_TENANT
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed


def is_guest(tenant: Tenant) -> bool:
    """Return whether a Tenant serves another cluster."""
    return any(each.kind == PeerCluster.resource.kind for each in tenant.metadata.owner_references)


KINDS = (PriorityLevelConfiguration.resource, FlowSchema.resource)


def gather(cluster: Cluster) -> FairnessInputs:
    """Read what decides the priority levels."""
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    reserved = defaults.spec.fairness.reserved if defaults is not None else ()
    names = sorted({each.tenant for each in reserved})
    return FairnessInputs(
        defaults=defaults,
        reserved={name: _reserved(cluster, name) for name in names},
        has_planes=bool(cluster.cache_of(VirtualControlPlane.resource)),
        has_guests=any(is_guest(each) for each in cluster.cache(Tenant.resource)),
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

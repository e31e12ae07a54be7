"""What decides about NamespaceOffloadings, from the caches."""

from __future__ import annotations

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT
from tenantry.api.offloading import NamespaceMap, NamespaceOffloading
from tenantry.api.peercluster import PeerCluster, PeerHost
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import FederationDefaults, TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.peering.link import labels
from tenantry.engine.cluster import Cluster


def defaults(cluster: Cluster) -> FederationDefaults:
    """Return the section of TenancyDefaults."""
    found: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    return found.spec.federation if found is not None else FederationDefaults()


def selectable(found: PeerCluster, given: FederationDefaults) -> dict[str, str] | None:
    """Return the labels by which a peer is selected; None if it has no host half, or is being deleted."""
    if not isinstance(found.spec.host, PeerHost) or found.metadata.deletion_timestamp:
        return None
    return labels.selectable(found.metadata.name, labels.of_node(found, given))


def peers(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return the labels of all peers that can be selected."""
    given = defaults(cluster)
    every = ((each.metadata.name, selectable(each, given)) for each in cluster.cache(PeerCluster.resource))
    return {name: found for name, found in every if found is not None}


def audiences(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """Return the audiences whose tokens go to each peer."""
    return {each.metadata.name: each.status.token_audiences for each in cluster.cache(PeerCluster.resource)}


def maps(cluster: Cluster) -> dict[str, NamespaceMap]:
    """Return all NamespaceMaps, by peer."""
    return {each.metadata.name: each for each in cluster.cache(NamespaceMap.resource)}


def tenant_of(cluster: Cluster, namespace: str) -> Tenant | None:
    """Return the Tenant of a namespace; None for none, or while a watch is behind."""
    found = cluster.lookup(Namespace.resource, namespace)
    name = found.labels.get(TENANT, "") if found is not None else ""
    return cluster.cache(Tenant.resource).get(name) if name else None


def tenants(cluster: Cluster, found: list[NamespaceOffloading]) -> dict[str, Tenant]:
    """Return the Tenants of the namespaces of NamespaceOffloadings, by namespace."""
    every = ((each.metadata.namespace, tenant_of(cluster, each.metadata.namespace)) for each in found)
    return {namespace: tenant for namespace, tenant in every if tenant is not None}

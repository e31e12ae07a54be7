"""Wakes DedicatedClusters and the objects of Cluster API when the status of a child has been written: the glue.

What the operator writes into a status wakes no controller by itself.
"""

from __future__ import annotations

from tenantry.api.clusterapi import TenantryControlPlane, TenantryMachine
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import KubernetesObject, object_key
from tenantry.engine.cluster import Cluster

OWNERS: dict[str, type[KubernetesObject]] = {
    kind.resource.kind: kind for kind in (DedicatedCluster, TenantryControlPlane, TenantryMachine)
}
"""The kinds whose children report to them, by name."""


def wake_owner(cluster: Cluster, child: KubernetesObject) -> None:
    """Queue what controls an object, if it is of these kinds."""
    for owner in child.metadata.owner_references:
        kind = OWNERS.get(owner.kind)
        if owner.controller and kind is not None:
            cluster.wake(kind, object_key(child.metadata.namespace, owner.name))

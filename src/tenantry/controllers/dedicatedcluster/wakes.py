"""Wakes DedicatedClusters when the operator has written the status of a child: the glue.

What the operator writes into a status wakes no controller by itself.
"""

from __future__ import annotations

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import KubernetesObject, object_key
from tenantry.engine.cluster import Cluster


def wake_owner(cluster: Cluster, child: KubernetesObject) -> None:
    """Queue the DedicatedCluster that controls an object; none if it has another owner."""
    for owner in child.metadata.owner_references:
        if owner.controller and owner.kind == DedicatedCluster.resource.kind:
            cluster.wake(DedicatedCluster, object_key(child.metadata.namespace, owner.name))

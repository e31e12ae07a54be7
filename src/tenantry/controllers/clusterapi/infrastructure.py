"""A TenantryCluster: nothing has to be made for it: pure.

Cluster API connects to the cluster as soon as its infrastructure is provisioned. If that fails, it tries again after
half a minute. So the infrastructure of a control plane of this provider is provisioned when that answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api import reasons
from tenantry.api.clusterapi import (
    CLUSTER_NAME,
    Provisioned,
    TenantryCluster,
    TenantryClusterStatus,
    TenantryControlPlane,
)
from tenantry.api.model import Json
from tenantry.controllers.clusterapi.children import HELD, NO_CLUSTER, is_paused
from tenantry.controllers.conclusion import ready
from tenantry.engine.conditions import merge
from tenantry.engine.plan import Blocked

UNANSWERED = Blocked(
    reason=reasons.PROGRESSING, message="it waits until the control plane of its Cluster answers", passing=True
)


def obstacle(found: TenantryCluster, cluster: Json | None, planes: Iterable[TenantryControlPlane]) -> Blocked | None:
    """Return what keeps a TenantryCluster from being Ready; None if nothing.

    Args:
        found: The TenantryCluster.
        cluster: The Cluster that it belongs to; None if there is none.
        planes: The TenantryControlPlanes of this Cluster.
    """
    if CLUSTER_NAME not in found.metadata.labels:
        return NO_CLUSTER
    if is_paused(found, cluster):
        return HELD
    if found.status.initialization.provisioned or not _has_plane(cluster):
        return None
    has_answered = any(each.status.initialization.control_plane_initialized for each in planes)
    return None if has_answered else UNANSWERED


def _has_plane(cluster: Json | None) -> bool:
    """Return whether a Cluster has a control plane of this provider, or may get one: others wait for this."""
    spec: Json = (cluster or {}).get("spec") or {}
    reference: Json = spec.get("controlPlaneRef") or {}
    if not reference:
        # Cluster API makes it of the ClusterClass.
        return "topology" in spec
    return bool(reference.get("kind") == TenantryControlPlane.resource.kind)


def status(found: TenantryCluster, why: Blocked | None, now: str) -> TenantryClusterStatus:
    """Return the status.

    Args:
        found: The TenantryCluster.
        why: What keeps it from being Ready; None if nothing.
        now: RFC 3339.
    """
    generation, before = found.metadata.generation, found.status
    wanted = [ready(why, "nodes and network are those of this cluster")]
    return TenantryClusterStatus(
        observed_generation=generation,
        initialization=Provisioned(provisioned=why is None or before.initialization.provisioned),
        conditions=merge(before.conditions, wanted, generation=generation, now=now),
    )

"""Wakes the controllers of VirtualControlPlanes, and of the Tenants and Subnamespaces that they belong to: the glue.

What the operator writes wakes no controller by itself.
"""

from __future__ import annotations

from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import controlplane
from tenantry.controllers.dedicatedcluster import wakes as clusterwakes
from tenantry.controllers.tenantnamespace import OWNER_BINDING
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine.apply import Outcome
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster


def wake_owner(cluster: Cluster, found: VirtualControlPlane) -> None:
    """Queue what reports the state of a VirtualControlPlane as its own; none if users have created it."""
    clusterwakes.wake_owner(cluster, found)
    meta = found.metadata
    owner = controlplane.owner_of(cluster.lookup(Namespace.resource, meta.namespace), meta.name)
    if owner is not None:
        cluster.wake(*owner)


def wake_planes(cluster: Cluster, outcome: Outcome) -> None:
    """Queue the control planes of namespaces whose owners may have changed: a removed one loses its credentials.

    Args:
        cluster: The host.
        outcome: What was written to it.
    """
    # A runtime without control planes has no such cache.
    planes: Cache[VirtualControlPlane] | None = cluster.cache_of(VirtualControlPlane.resource)
    if planes is None:
        return
    changed: set[str] = set()
    for step in outcome.done:
        if step.resource == Namespace.resource:
            changed.add(step.name)
        elif step.resource == RoleBinding.resource and step.name == OWNER_BINDING:
            changed.add(step.namespace)
    for namespace in sorted(changed):
        for found in planes.by_index(BY_NAMESPACE, namespace):
            cluster.wake(VirtualControlPlane, found.key)

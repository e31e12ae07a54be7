"""Wakes the controller of the Tenant or Subnamespace that a VirtualControlPlane belongs to: the glue.

A status that the operator writes wakes no controller by itself.
"""

from __future__ import annotations

from tenantry.api.kubernetes import Namespace
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import controlplane
from tenantry.engine.cluster import Cluster


def wake_owner(cluster: Cluster, found: VirtualControlPlane) -> None:
    """Queue what reports the state of a VirtualControlPlane as its own; none if users have created it."""
    meta = found.metadata
    owner = controlplane.owner_of(cluster.lookup(Namespace.resource, meta.namespace), meta.name)
    if owner is not None:
        cluster.wake(*owner)

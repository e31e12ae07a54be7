"""What the quota controller tells users by events, and other controllers by their queues."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.marks import SUBNAMESPACE
from tenantry.api.model import object_key
from tenantry.api.offloading import OFFLOADING, NamespaceOffloading
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.quota.index import QuotaCaches
from tenantry.engine.cluster import Cluster
from tenantry.engine.events import EventKind
from tenantry.world.shares.share import Share
from tenantry.world.shares.tree import Tree


def announce_reclaims(cluster: Cluster, tree: Tree, tenant: Tenant, caches: QuotaCaches) -> None:
    """Write an event for each child whose grant was taken back, on the Tenant and on the Subnamespace."""
    reclaimed, tree.reclaimed = tree.reclaimed, []
    for share in reclaimed:
        if share.request is None:
            continue
        note = f"took back the quota of Subnamespace {share.request.name!r} and of all below it"
        why = "the quota of the tenant no longer covers it (spec.quota.onShortage is Reclaim)"
        cluster.recorder.say(tenant, EventKind.WARNING, reasons.RECLAIMED, f"{note}: {why}")
        child = caches.subnamespaces.get(object_key(share.parent, share.request.name))
        if child is not None:
            cluster.recorder.say(child, EventKind.WARNING, reasons.RECLAIMED, f"took back the quota: {why}")


def wake_claim(cluster: Cluster, share: Share) -> None:
    """Wake the reconciler of what a claim is for."""
    if share.plane:
        cluster.wake(VirtualControlPlane, share.plane)
    elif share.peer:
        cluster.wake(NamespaceOffloading, object_key(share.parent, OFFLOADING))
    else:
        cluster.wake(SliceClaim, share.slice)


def wake_orphan(cluster: Cluster, share: Share, caches: QuotaCaches) -> None:
    """Wake the reconciler of a namespace whose Subnamespace does not exist."""
    found = caches.namespaces.get(share.namespace.name) if share.namespace is not None else None
    name = found.labels.get(SUBNAMESPACE) if found is not None and not found.deleting else None
    if name and share.request is None:
        cluster.wake(Subnamespace, object_key(share.parent, name))

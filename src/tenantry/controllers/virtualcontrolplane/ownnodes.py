"""The nodes of a control plane that has some of its own, as far as they decide what becomes of the control plane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tenantry.api.marks import LEAVE_NODES
from tenantry.api.model import object_key
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.joining.desired import is_moving
from tenantry.controllers.virtualcontrolplane import desired
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch


def handovers(home: Cluster, found: VirtualControlPlane) -> list[NodeHandover]:
    """Return the NodeHandovers of a control plane; none if it has no nodes of its own."""
    if not desired.has_own_nodes(found):
        return []
    known: Cache[NodeHandover] = home.cache(NodeHandover.resource)
    return [each for each in known if each.spec.plane.uid == found.metadata.uid]


def wait_for(home: Cluster, found: VirtualControlPlane) -> bool:
    """Return whether a node of its own waits for a control plane."""
    return any(map(is_moving, handovers(home, found)))


async def give_back(home: Cluster, found: VirtualControlPlane) -> bool:
    """Ask for the return of all nodes of a control plane that ends; return whether some have not returned.

    Whatever deletes it, and in which order: its nodes are drained as long as its process runs.

    Raises:
        ApiError: The API server failed; the queue tries again.
    """
    own = handovers(home, found)
    for each in own:
        if not each.metadata.deletion_timestamp:
            await home.writer.delete(each)
    # What is left returns by itself: without a control plane, nothing inside can run pods there.
    return bool(own) and LEAVE_NODES not in found.metadata.annotations


class NodeMoveController:
    """Has control planes that sleep, or end, look at their nodes when one of those moves; the key is theirs.

    Args:
        home: It reconciles the VirtualControlPlanes.
    """

    name = "node-moves"
    kind = NodeHandover

    def __init__(self, home: Cluster) -> None:
        self._home = home

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [replace(watched.node_handovers(_plane), cluster=self._home)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - it reads no cache
        """Wake the key of a control plane that sleeps or ends."""
        known = self._home.cache_of(VirtualControlPlane.resource)
        found: VirtualControlPlane | None = known.get(key) if known is not None else None
        if found is not None and (found.status.phase is PlanePhase.ASLEEP or found.metadata.deletion_timestamp):
            self._home.wake(VirtualControlPlane, key)
        return None


def _plane(change: Change[NodeHandover]) -> Iterable[str]:
    found = change.after or change.before
    if found is None or (change.after is not None and not is_moving(found)):
        return []
    return [object_key(found.spec.plane.namespace, found.spec.plane.name)]

"""Has everybody leave a node that its owner takes back, and the node then."""

from __future__ import annotations

import datetime as dt

from tenantry.api.marks import TAKEN_BACK
from tenantry.api.node import Node
from tenantry.api.slice import DEFAULT_GRACE_SECONDS
from tenantry.controllers.slices import desired, writes
from tenantry.controllers.slices.pods import Pod, leaving_of, observe
from tenantry.engine.cluster import Cluster
from tenantry.world.leases import instant

LOOK_AGAIN_SECONDS = 1.0
"""When to look whether its slice has given a node back: what this process writes itself is no news to it."""


async def take_back(cluster: Cluster, node: Node, now: dt.datetime) -> float | None:
    """Bring a node one stage nearer to its end: nobody comes, its slice gives it back, pods leave, it is deleted.

    One that nobody has agreed on, or whose owner has taken it back before, stays as it is: nobody comes.

    Returns:
        When to look again.
    """
    name = node.metadata.name
    if not node.spec.unschedulable:
        await cluster.writer.patch(Node.resource, "", name, {"spec": {"unschedulable": True}})
        return 0.0 if node.metadata.annotations.get(TAKEN_BACK) else None
    since = node.metadata.annotations.get(TAKEN_BACK, "")
    if not since:
        return None
    if desired.slice_of(node):
        return LOOK_AGAIN_SECONDS
    # Listed, since nobody else needs to know pods by nodes that are in no slice.
    selectors = {"fieldSelector": f"spec.nodeName={name}"}
    found = [observe(raw) async for raw in cluster.live.raw(Pod.resource, selectors=selectors)]
    leaving = [pod for pod in found if leaving_of(pod)]
    if not leaving:
        await cluster.writer.delete(node)
        return None
    left = (instant(since) - now).total_seconds() + DEFAULT_GRACE_SECONDS
    what = desired.leave(leaving, left)
    why = f"the owner of node {name!r} takes it back: the pod leaves"
    await writes.send_away(cluster, what, {pod.key: why for pod in (*what.ask, *what.end)})
    return what.next_seconds

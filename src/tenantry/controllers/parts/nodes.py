"""Keeps nodes that are given out in parts set aside for pods of parts, and their parts among their resources.

It goes by the labels of the node alone, whoever wrote them, and puts back what a kubelet has reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenantry.api.errors import NotFound
from tenantry.api.node import Node
from tenantry.controllers import watched
from tenantry.controllers.parts import desired
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch


def _lacking(change: Change[Node]) -> Iterable[str]:
    """Return the node where there is something to do: a heartbeat is no work."""
    after = change.after
    return watched.own_key(change) if after is None or desired.taints(after) or desired.resources(after) else ()


class SharedNodeController:
    """Reconciles nodes that are given out in parts; the key is the node's name."""

    name = "shared-nodes"
    kind = Node

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.nodes(_lacking)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Have a node keep pods of no part away, and advertise its parts.

        Raises:
            ApiError: Something failed, or the node has changed since; the queue tries again.
        """
        node: Node | None = cluster.cache(Node.resource).get(key)
        if node is None:
            cluster.forget(self.name, key)
            return None
        # What came of each write comes by the watch, as news to whoever waits for it.
        taints, resources = desired.taints(node), desired.resources(node)
        try:
            if taints:
                await cluster.writer.patch(Node.resource, "", key, taints)
            elif resources:
                await cluster.writer.patch(Node.resource, "", key, resources, subresource="status")
        except NotFound:
            cluster.forget(self.name, key)
        return None

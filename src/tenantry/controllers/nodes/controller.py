"""Keeps the bandwidth of every node among its extended resources, so that the scheduler gives it out (E09).

A node says how much it has by the labels `tenantry.dev/ingress-mbps` and `tenantry.dev/egress-mbps`; one that says
nothing has `DEFAULT_MBPS`. Source: Kubernetes, "Advertise Extended Resources for a Node".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenantry.api.errors import NotFound
from tenantry.api.marks import EGRESS_MBPS, INGRESS_MBPS
from tenantry.api.node import Node
from tenantry.controllers import watched
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.world.quantity import parse

DEFAULT_MBPS = "10000"
"""What a node has that says nothing, in megabits a second and in each direction."""


def missing(node: Node) -> dict[str, str]:
    """Return what a node should advertise and does not: resource to whole megabits a second."""
    wanted: dict[str, str] = {}
    for resource in (INGRESS_MBPS, EGRESS_MBPS):
        said = node.metadata.labels.get(resource, "")
        wanted[resource] = said if said.isascii() and said.isdigit() else DEFAULT_MBPS
    has = node.status.capacity
    # The server writes quantities in its own way: 10000 is 10k.
    return {key: mbps for key, mbps in wanted.items() if key not in has or parse(has[key]) != parse(mbps)}


def _lacking(change: Change[Node]) -> Iterable[str]:
    """Return the node where there is something to do: a heartbeat is no work."""
    after = change.after
    return watched.own_key(change) if after is None or missing(after) else ()


class NodeController:
    """Reconciles nodes; the key is the node's name."""

    name = "nodes"
    kind = Node

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.nodes(_lacking)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Have a node advertise its bandwidth.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        node: Node | None = cluster.cache(Node.resource).get(key)
        if node is None:
            cluster.forget(self.name, key)
            return None
        lacks = missing(node)
        if not lacks:
            return None
        patch = {"status": {"capacity": lacks, "allocatable": lacks}}
        try:
            await cluster.writer.patch(Node.resource, "", key, patch, subresource="status")
        except NotFound:
            cluster.forget(self.name, key)
        return None

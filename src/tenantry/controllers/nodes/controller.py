"""Keeps the bandwidth of every node among its extended resources, so that the scheduler gives it out (E09).

A node says how much it has by the labels `tenantry.dev/ingress-mbps` and `tenantry.dev/egress-mbps`; one that says
nothing has `DEFAULT_MBPS`. Source: Kubernetes, "Advertise Extended Resources for a Node".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.marks import EGRESS_MBPS, INGRESS_MBPS
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.controllers import watched
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.world.quantity import parse

DEFAULT_MBPS = "10000"
"""What a node has that says nothing, in megabits a second and in each direction."""


class NodeAddress(Model, frozen=True, kw_only=True):
    """Where a node is reached; the types are InternalIP, ExternalIP, Hostname, InternalDNS and ExternalDNS."""

    type: str
    address: str


class NodeCondition(Model, frozen=True, kw_only=True):
    """What is known of a node's health."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeStatus(Model, frozen=True, kw_only=True):
    """`capacity` and `allocatable` map a resource to a quantity."""

    addresses: tuple[NodeAddress, ...] = ()
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[NodeCondition, ...] = ()


class Taint(Model, frozen=True, kw_only=True):
    """What keeps pods away that do not tolerate it; all of it, since all taints of a node are written together."""

    key: str
    effect: str
    value: str = ""
    time_added: str = ""


class NodeSpec(Model, frozen=True, kw_only=True):
    """`unschedulable` is set by `kubectl cordon`."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class Node(KubernetesObject, frozen=True, kw_only=True):
    """A node, as far as its bandwidth, its addresses and slices go."""

    resource: ClassVar[Resource] = Resource("", "v1", "nodes", "Node", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Tell whether pods can run there."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def unready_since(self) -> str:
        """Return since when pods cannot run there, as RFC 3339; "" where they can, or where nobody has said."""
        ready = next((each for each in self.status.conditions if each.type == "Ready"), None)
        return (ready.last_transition_time or "") if ready is not None and ready.status != "True" else ""


decode_node = msgspec.json.Decoder(Node).decode


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
        return [Watch(resource=Node.resource, decode=decode_node, keys=_lacking)]

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

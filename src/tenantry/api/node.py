"""Nodes, with the fields that slices, parts, bandwidth, contributions and network policies need."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenantry.api.model import KubernetesObject, Model, Resource


class NodeAddress(Model, frozen=True, kw_only=True):
    """An address of a node; the types are InternalIP, ExternalIP, Hostname, InternalDNS and ExternalDNS."""

    type: str
    address: str


class NodeCondition(Model, frozen=True, kw_only=True):
    """A condition, as kubelet and Tenantry report it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0
    """Always 0, as the generation of a Node: kubelet reports none."""


class NodeInfo(Model, frozen=True, kw_only=True):
    """What a kubelet reports of itself; the version is as in "v1.36.3"."""

    kubelet_version: str = ""


class NodeStatus(Model, frozen=True, kw_only=True):
    """`capacity` and `allocatable` map a resource to a quantity."""

    addresses: tuple[NodeAddress, ...] = ()
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[NodeCondition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Taint(Model, frozen=True, kw_only=True):
    """A taint, with all of its fields, because all taints of a node are written together."""

    key: str
    effect: str
    value: str = ""
    time_added: str = ""


class NodeSpec(Model, frozen=True, kw_only=True):
    """`unschedulable` is set by `kubectl cordon`; podCIDRs are the ranges of the node's pods."""

    pod_cidr: str = msgspec.field(name="podCIDR", default="")
    pod_cidrs: tuple[str, ...] = msgspec.field(name="podCIDRs", default=())
    provider_id: str = msgspec.field(name="providerID", default="")
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class Node(KubernetesObject, frozen=True, kw_only=True):
    """A node, with the fields that Tenantry reads or writes."""

    resource: ClassVar[Resource] = Resource("", "v1", "nodes", "Node", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Return whether pods can run there."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def unready_since(self) -> str:
        """Return since when pods cannot run there, as RFC 3339; "" if they can, or if no condition says."""
        ready = next((each for each in self.status.conditions if each.type == "Ready"), None)
        return (ready.last_transition_time or "") if ready is not None and ready.status != "True" else ""

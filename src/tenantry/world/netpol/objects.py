"""The parts of pods, namespaces, nodes and NetworkPolicies that the agent keeps: pure.

A NetworkPolicy that cannot be decoded fails closed: it then selects all pods of its namespace and allows nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Literal

import msgspec

from tenantry.api.contribution import is_contributed
from tenantry.api.kubernetes import MIRROR
from tenantry.api.model import Model, Resource, object_key
from tenantry.api.node import Node
from tenantry.world.addresses import addresses_of

PODS = Resource("", "v1", "pods", "Pod")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")

Protocol = Literal["TCP", "UDP", "SCTP"]
Direction = Literal["Ingress", "Egress"]


class LabelExpression(Model, frozen=True, kw_only=True):
    """One expression of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Selector(Model, frozen=True, kw_only=True):
    """A label selector; an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelExpression, ...] = ()


class Block(Model, frozen=True, kw_only=True):
    """A CIDR without some ranges."""

    cidr: str
    but: tuple[str, ...] = msgspec.field(name="except", default=())


class Peer(Model, frozen=True, kw_only=True):
    """Pods of the selected namespaces (default: the policy's own), or addresses."""

    ip_block: Block | None = None
    namespace_selector: Selector | None = None
    pod_selector: Selector | None = None


class Port(Model, frozen=True, kw_only=True):
    """Ports of a protocol: one by number or name, a range, or all."""

    protocol: Protocol = "TCP"
    port: int | str | None = None
    end_port: int | None = None


class NetworkPolicyRule(Model, frozen=True, kw_only=True):
    """Allowed peers and ports; an empty list allows all peers, or all ports."""

    peers: tuple[Peer, ...] = ()
    ports: tuple[Port, ...] = ()


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A NetworkPolicy.

    Args:
        namespace: Its namespace.
        name: Its name.
        version: The resourceVersion.
        pods: Selects pods of its namespace.
        ingress: Allowed connections to them; None if the policy does not restrict these.
        egress: Allowed connections from them; None if the policy does not restrict these.
    """

    namespace: str
    name: str
    version: int = 0
    pods: Selector = Selector()
    ingress: tuple[NetworkPolicyRule, ...] | None = None
    egress: tuple[NetworkPolicyRule, ...] | None = None

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return object_key(self.namespace, self.name)

    def rules(self, direction: Direction) -> tuple[NetworkPolicyRule, ...] | None:
        """Return the rules of one direction, None if the policy does not restrict it."""
        return self.ingress if direction == "Ingress" else self.egress


class NamedPort(Model, frozen=True, kw_only=True):
    """A container's named port."""

    name: str
    container_port: int
    protocol: Protocol = "TCP"


class PodEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A pod.

    Args:
        namespace: Its namespace.
        name: Its name.
        version: The resourceVersion.
        uid: Its uid.
        node: The name of its node; "" before it is scheduled, and for the mirror of a contributed node's static pod.
        labels: Its labels.
        addresses: Its own addresses in canonical form; none after it has finished, none for a pod in the node's
            network, to which NetworkPolicies do not apply, and none for such a mirror.
        ports: Its named ports.
        born: Whether it is not being deleted, and its creation time; if two pods claim one address, the greater has it.
    """

    namespace: str
    name: str
    version: int = 0
    uid: str = ""
    node: str = ""
    labels: dict[str, str] = {}
    addresses: tuple[str, ...] = ()
    ports: tuple[NamedPort, ...] = ()
    born: tuple[bool, str] = (True, "")

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return object_key(self.namespace, self.name)


class NamespaceLabels(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace and its labels."""

    key: str
    version: int = 0
    labels: dict[str, str] = {}


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that are recorded for a node. No kubelet writes the ranges of its own node: a policy forbids it.

    Args:
        key: Its name.
        version: The resourceVersion.
        ranges: The CIDRs of its pods; none if the network plugin divides addresses without Kubernetes.
        addresses: The addresses and CIDRs that are the node's own.
    """

    key: str
    version: int = 0
    ranges: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class NetworkState(msgspec.Struct, frozen=True, kw_only=True):
    """All objects that decide which connections are allowed, in any order."""

    pods: tuple[PodEndpoint, ...] = ()
    spaces: tuple[NamespaceLabels, ...] = ()
    policies: tuple[Policy, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()


class _Metadata(Model, frozen=True, kw_only=True):
    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = "0"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


class _Object(Model, frozen=True, kw_only=True):
    metadata: _Metadata


class _IngressRule(Model, frozen=True, kw_only=True):
    from_: tuple[Peer, ...] = msgspec.field(name="from", default=())
    ports: tuple[Port, ...] = ()


class _EgressRule(Model, frozen=True, kw_only=True):
    to: tuple[Peer, ...] = ()
    ports: tuple[Port, ...] = ()


class _PolicySpec(Model, frozen=True, kw_only=True):
    pod_selector: Selector = Selector()
    policy_types: tuple[Direction, ...] = ()
    ingress: tuple[_IngressRule, ...] = ()
    egress: tuple[_EgressRule, ...] = ()


class _PolicyObject(Model, frozen=True, kw_only=True):
    spec: _PolicySpec = _PolicySpec()


class _ContainerPort(Model, frozen=True, kw_only=True):
    container_port: int
    name: str = ""
    protocol: Protocol = "TCP"


class _Container(Model, frozen=True, kw_only=True):
    ports: tuple[_ContainerPort, ...] = ()
    restart_policy: str = ""


class _PodSpec(Model, frozen=True, kw_only=True):
    node_name: str = ""
    host_network: bool = False
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()


class _Address(Model, frozen=True, kw_only=True):
    ip: str = ""


class _PodStatus(Model, frozen=True, kw_only=True):
    phase: str = ""
    pod_ips: tuple[_Address, ...] = msgspec.field(name="podIPs", default=())


class _PodObject(Model, frozen=True, kw_only=True):
    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


_pod_decoder = msgspec.json.Decoder(_PodObject)
_policy_decoder = msgspec.json.Decoder(_PolicyObject)
_node_decoder = msgspec.json.Decoder(Node)
_object_decoder = msgspec.json.Decoder(_Object)


def decode_pod(raw: msgspec.Raw) -> PodEndpoint:
    """Decode the kept part of a pod."""
    found = _pod_decoder.decode(raw)
    meta, spec = found.metadata, found.spec
    # The owner of a contributed node chooses the namespace and the labels of a mirror. A policy refuses new ones.
    is_claimed = is_contributed(spec.node_name) and MIRROR in meta.annotations
    # The address of a finished pod may already belong to another one.
    has_own = not is_claimed and not spec.host_network and found.status.phase not in {"Succeeded", "Failed"}
    # Init containers with restartPolicy Always run as long as the others (Kubernetes: "Sidecar Containers").
    serving = (*spec.containers, *(each for each in spec.init_containers if each.restart_policy == "Always"))
    # Only names are kept: the numbers of containerPorts restrict nothing.
    ports = (port for container in serving for port in container.ports if port.name)
    return PodEndpoint(
        namespace=meta.namespace,
        name=meta.name,
        version=int(meta.resource_version),
        uid=meta.uid,
        node="" if is_claimed else spec.node_name,
        labels=meta.labels,
        addresses=_canonical(each.ip for each in found.status.pod_ips) if has_own else (),
        ports=tuple(
            NamedPort(name=port.name, container_port=port.container_port, protocol=port.protocol) for port in ports
        ),
        born=(not meta.deletion_timestamp, meta.creation_timestamp),
    )


def decode_node(raw: msgspec.Raw) -> NodeRecord:
    """Decode the kept part of a node."""
    return record_of(_node_decoder.decode(raw))


def record_of(node: Node) -> NodeRecord:
    """Return the kept part of a node."""
    return NodeRecord(
        key=node.metadata.name,
        version=int(node.metadata.resource_version),
        ranges=node.spec.pod_cidrs,
        addresses=tuple(sorted(addresses_of(node))),
    )


def decode_space(raw: msgspec.Raw) -> NamespaceLabels:
    """Decode the kept part of a namespace."""
    meta = _object_decoder.decode(raw).metadata
    return NamespaceLabels(key=meta.name, version=int(meta.resource_version), labels=meta.labels)


def decode_policy(raw: msgspec.Raw) -> Policy:
    """Decode the kept part of a NetworkPolicy; if that fails, return one that closes its namespace."""
    meta = _object_decoder.decode(raw).metadata
    ingress: tuple[NetworkPolicyRule, ...] | None = ()
    egress: tuple[NetworkPolicyRule, ...] | None = ()
    pods = Selector()
    try:
        spec = _policy_decoder.decode(raw).spec
        _check_blocks(spec)
    except (msgspec.MsgspecError, ValueError):
        # For example a newer API server's operator or protocol: to skip the policy would open the namespace.
        pass
    else:
        pods = spec.pod_selector
        # The default of the API (Kubernetes, "Network Policies").
        types = spec.policy_types or (("Ingress", "Egress") if spec.egress else ("Ingress",))
        ingress = tuple(NetworkPolicyRule(peers=each.from_, ports=each.ports) for each in spec.ingress)
        egress = tuple(NetworkPolicyRule(peers=each.to, ports=each.ports) for each in spec.egress)
        ingress = ingress if "Ingress" in types else None
        egress = egress if "Egress" in types else None
    return Policy(
        namespace=meta.namespace,
        name=meta.name,
        version=int(meta.resource_version),
        pods=pods,
        ingress=ingress,
        egress=egress,
    )


def _check_blocks(spec: _PolicySpec) -> None:
    """Raise ValueError if a CIDR is invalid."""
    peers = [peer for rule in spec.ingress for peer in rule.from_]
    peers += [peer for rule in spec.egress for peer in rule.to]
    for peer in peers:
        # nft would reject the whole table because of one invalid CIDR, and close the node for all tenants.
        for cidr in () if peer.ip_block is None else (peer.ip_block.cidr, *peer.ip_block.but):
            ipaddress.ip_network(cidr, strict=False)


def _canonical(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return addresses in canonical form, without invalid ones and those with a scope."""
    found: list[str] = []
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        # A scope names an interface of the node; nft knows no such addresses.
        if "%" not in text:
            found.append(str(address))
    return tuple(found)

"""The semantics of NetworkPolicies over objects of the API server: which connections are allowed. Pure.

It takes the place of a data plane in tests of what the objects say. Where plugins differ it assumes what opens more: an
ipBlock is about the addresses of pods, too. Source: Kubernetes, "Network Policies" and the API reference;
network-policy-api v0.2.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Json = dict[str, Any]


class _Read(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a policy; see Kubernetes' API reference."""


class _Requirement(_Read, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _Selector(_Read, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Requirement, ...] = ()


class _Block(_Read, frozen=True):
    cidr: str
    but: tuple[str, ...] = msgspec.field(name="except", default=())


class _Peer(_Read, frozen=True):
    ip_block: _Block | None = None
    namespace_selector: _Selector | None = None
    pod_selector: _Selector | None = None


class _Port(_Read, frozen=True):
    port: int | str | None = None
    end_port: int | None = None
    protocol: str = "TCP"


class _Rule(_Read, frozen=True):
    sources: tuple[_Peer, ...] = msgspec.field(name="from", default=())
    targets: tuple[_Peer, ...] = msgspec.field(name="to", default=())
    ports: tuple[_Port, ...] = ()


class _Spec(_Read, frozen=True):
    pod_selector: _Selector = _Selector()
    policy_types: tuple[str, ...] = ()
    ingress: tuple[_Rule, ...] = ()
    egress: tuple[_Rule, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """Return the directions that the policy restricts."""
        return self.policy_types or (("Ingress", "Egress") if self.egress else ("Ingress",))


class _Metadata(_Read, frozen=True):
    namespace: str


class Policy(_Read, frozen=True):
    """A NetworkPolicy of any author."""

    metadata: _Metadata
    spec: _Spec


class _ClusterPeer(_Read, frozen=True):
    namespaces: _Selector


class _ClusterRule(_Read, frozen=True):
    action: str
    sources: tuple[_ClusterPeer, ...] = msgspec.field(name="from", default=())
    targets: tuple[_ClusterPeer, ...] = msgspec.field(name="to", default=())


class _ClusterSpec(_Read, frozen=True):
    tier: str
    priority: int
    subject: _ClusterPeer
    ingress: tuple[_ClusterRule, ...] = ()
    egress: tuple[_ClusterRule, ...] = ()


class ClusterPolicy(_Read, frozen=True):
    """A ClusterNetworkPolicy of the Admin tier about namespaces; its rules must all Pass or Deny."""

    spec: _ClusterSpec


class Pod(msgspec.Struct, frozen=True):
    """A pod; its labels are pairs of key and value."""

    namespace: str
    address: str
    labels: tuple[tuple[str, str], ...] = ()


class Outside(msgspec.Struct, frozen=True):
    """An address outside the pod network."""

    address: str


Place = Pod | Outside


class Fabric(msgspec.Struct, frozen=True):
    """What decides.

    Args:
        namespaces: Their labels, by name.
        policies: Those of all namespaces.
        above: What goes before them.
    """

    namespaces: Mapping[str, Mapping[str, str]]
    policies: Sequence[Policy]
    above: Sequence[ClusterPolicy] = ()

    def allows(self, source: Place, target: Place, port: int = 80, protocol: str = "TCP") -> bool:
        """Return whether a connection succeeds: both sides must allow it."""
        out = self._lets("Egress", source, target, port, protocol)
        return out and self._lets("Ingress", target, source, port, protocol)

    def _lets(self, direction: str, pod: Place, other: Place, port: int, protocol: str) -> bool:
        if isinstance(pod, Outside):
            return True
        if self._is_denied(direction, pod, other):
            return False
        about = [each.spec for each in self.policies if self._is_about(each, direction, pod)]
        outwards = direction == "Egress"
        rules = [rule for spec in about for rule in (spec.egress if outwards else spec.ingress)]
        return not about or any(
            self._is_any(rule.targets if outwards else rule.sources, pod.namespace, other)
            and _has_port(rule.ports, port, protocol)
            for rule in rules
        )

    def _is_denied(self, direction: str, pod: Pod, other: Place) -> bool:
        """Return the verdict of the first rule that matches; Pass skips the rest of the tier."""
        if isinstance(other, Outside):
            return False
        here, there = self.namespaces[pod.namespace], self.namespaces[other.namespace]
        for policy in sorted(self.above, key=lambda each: each.spec.priority):
            if _selects(policy.spec.subject.namespaces, here):
                for rule in policy.spec.egress if direction == "Egress" else policy.spec.ingress:
                    if any(_selects(peer.namespaces, there) for peer in (*rule.targets, *rule.sources)):
                        return rule.action == "Deny"
        return False

    @staticmethod
    def _is_about(policy: Policy, direction: str, pod: Pod) -> bool:
        is_there = policy.metadata.namespace == pod.namespace and direction in policy.spec.types
        return is_there and _selects(policy.spec.pod_selector, dict(pod.labels))

    def _is_any(self, peers: Sequence[_Peer], namespace: str, place: Place) -> bool:
        return not peers or any(self._is(peer, namespace, place) for peer in peers)

    def _is(self, peer: _Peer, namespace: str, place: Place) -> bool:
        if peer.ip_block is not None:
            return _is_within(peer.ip_block, place.address)
        if isinstance(place, Outside):
            return False
        where = peer.namespace_selector
        is_there = place.namespace == namespace if where is None else _selects(where, self.namespaces[place.namespace])
        return is_there and _selects(peer.pod_selector or _Selector(), dict(place.labels))


def _selects(selector: _Selector, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels; an empty one matches all."""
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(_fulfils(each, labels) for each in selector.match_expressions)


def _fulfils(requirement: _Requirement, labels: Mapping[str, str]) -> bool:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _is_within(block: _Block, address: str) -> bool:
    place = ipaddress.ip_address(address)
    inside = place in ipaddress.ip_network(block.cidr, strict=False)
    return inside and not any(place in ipaddress.ip_network(each, strict=False) for each in block.but)


def _has_port(ports: Sequence[_Port], port: int, protocol: str) -> bool:
    return not ports or any(_is_port(each, port) and each.protocol == protocol for each in ports)


def _is_port(given: _Port, port: int) -> bool:
    """Return whether a port matches; a named one matches any."""
    if not isinstance(given.port, int):
        return True
    return given.port <= port <= (given.end_port or given.port)

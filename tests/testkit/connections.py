"""Decides one connection from the policies: pure, slow, and independent of the compiler.

Tests compare it with real packets. Source: Kubernetes, "Network Policies".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import msgspec

from tenantry.world.netpol.objects import (
    Direction,
    NetworkPolicyRule,
    NetworkState,
    Peer,
    PodEndpoint,
    Policy,
    Port,
    Protocol,
    Selector,
)

Labels = Mapping[str, str]


class ConnectionAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to connect.

    Args:
        source: The source address.
        target: The destination address, after Services and masquerading.
        port: The destination port.
        protocol: Its protocol.
    """

    source: str
    target: str
    port: int
    protocol: Protocol = "TCP"


def allows(world: NetworkState, attempt: ConnectionAttempt) -> bool:
    """Return whether a connection between two addresses is allowed: each side that is a pod must allow it."""
    if attempt.source == attempt.target:
        return True
    return _lets(world, attempt, "Egress") and _lets(world, attempt, "Ingress")


def _pod(world: NetworkState, address: str) -> PodEndpoint | None:
    return next((pod for pod in world.pods if address in pod.addresses), None)


def _lets(world: NetworkState, attempt: ConnectionAttempt, direction: Direction) -> bool:
    own, other = (attempt.source, attempt.target) if direction == "Egress" else (attempt.target, attempt.source)
    pod = _pod(world, own)
    if pod is None:
        return True
    about = [
        policy
        for policy in world.policies
        if policy.namespace == pod.namespace
        and (policy.ingress if direction == "Ingress" else policy.egress) is not None
        and _matches(policy.pods, pod.labels)
    ]
    return not about or any(_permits(world, policy, direction, other, attempt) for policy in about)


def _permits(world: NetworkState, policy: Policy, direction: Direction, other: str, attempt: ConnectionAttempt) -> bool:
    rules: tuple[NetworkPolicyRule, ...] = (policy.ingress if direction == "Ingress" else policy.egress) or ()
    return any(
        (not rule.peers or any(_is_peer(world, policy.namespace, peer, other) for peer in rule.peers))
        and (not rule.ports or any(_is_port(world, port, attempt) for port in rule.ports))
        for rule in rules
    )


def _is_peer(world: NetworkState, namespace: str, peer: Peer, address: str) -> bool:
    if peer.ip_block is not None:
        place = ipaddress.ip_address(address)
        excepted = any(place in ipaddress.ip_network(each, strict=False) for each in peer.ip_block.but)
        return place in ipaddress.ip_network(peer.ip_block.cidr, strict=False) and not excepted
    pod = _pod(world, address)
    if pod is None:
        return False
    if peer.pod_selector is not None and not _matches(peer.pod_selector, pod.labels):
        return False
    if peer.namespace_selector is None:
        return pod.namespace == namespace
    return any(space.key == pod.namespace and _matches(peer.namespace_selector, space.labels) for space in world.spaces)


def _is_port(world: NetworkState, port: Port, attempt: ConnectionAttempt) -> bool:
    if port.protocol != attempt.protocol:
        return False
    if port.port is None:
        return True
    if isinstance(port.port, int):
        return port.port <= attempt.port <= max(port.port, port.end_port or 0)
    pod = _pod(world, attempt.target)
    return pod is not None and any(
        (named.name, named.container_port, named.protocol) == (port.port, attempt.port, attempt.protocol)
        for named in pod.ports
    )


def _matches(selector: Selector, labels: Labels) -> bool:
    for key, value in selector.match_labels.items():
        if key not in labels or labels[key] != value:
            return False
    for each in selector.match_expressions:
        has = each.key in labels
        is_one = has and labels[each.key] in each.values
        fits = {"In": is_one, "NotIn": not is_one, "Exists": has, "DoesNotExist": not has}[each.operator]
        if not fits:
            return False
    return True

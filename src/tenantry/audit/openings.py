"""Which peers of other namespaces NetworkPolicies admit. Pure.

A pod that no policy selects is open. Policies add up: one policy that admits a peer is enough.
Source: Kubernetes, "Network Policies".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import cast

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.api.tenancydefaults import IngressController
from tenantry.audit.context import OtherNamespace
from tenantry.policy.request import part, parts
from tenantry.world.selectors import meets

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DNS_PORT = 53
WIDE = {4: 16, 6: 64}
"""IP version to prefix length: a shorter prefix is more than a few hosts, and may contain pods of others."""


def ingress(
    policies: Sequence[Json],
    others: Iterable[OtherNamespace],
    pods: Iterable[str] = (),
    admitted: Iterable[IngressController] = (),
) -> str:
    """Return how pods of another namespace may connect to pods of this one; "" if they may not.

    Args:
        policies: The NetworkPolicies of the namespace.
        others: Namespaces of others.
        pods: The CIDRs of all pods.
        admitted: The pods outside of all tenants that an administrator lets in everywhere.
    """
    peers = [_peer(each) for each in admitted]
    without = [_without(each, peers) for each in policies]
    return _open(without, tuple(others), _networks(pods), "Ingress", "from")


def _peer(controller: IngressController) -> Json:
    """Return the peer by which the operator lets an ingress controller in."""
    return {
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": controller.namespace},
            "matchExpressions": [{"key": marks.TENANT_UID, "operator": "DoesNotExist"}],
        },
        "podSelector": {"matchLabels": controller.pod_labels},
    }


def _without(policy: Json, peers: Sequence[Json]) -> Json:
    """Return a policy without some peers; a rule that has no others is left out, because it would admit all."""
    kept: list[Json] = []
    for rule in parts(policy, "spec", "ingress"):
        own = parts(rule, "from")
        left = [each for each in own if each not in peers]
        if left or not own:
            kept.append({**rule, "from": left})
    return {**policy, "spec": {**part(policy, "spec"), "ingress": kept}}


def egress(policies: Sequence[Json], others: Iterable[OtherNamespace], pods: Iterable[str] = ()) -> str:
    """Return how pods of this namespace may connect to pods of others, except by DNS; "" if they may not."""
    return _open(policies, tuple(others), _networks(pods), "Egress", "to")


def of_rules(policy: Json, others: Iterable[OtherNamespace], pods: Iterable[str] = ()) -> str:
    """Return which pods of another namespace the rules of one policy admit as clients; "" for none."""
    networks, named = _networks(pods), tuple(others)
    peers = (_open_peer(rule, "from", named, networks) for rule in parts(policy, "spec", "ingress"))
    return next((f"it admits {peer}" for peer in peers if peer), "")


def _networks(cidrs: Iterable[str]) -> list[Network]:
    return [ipaddress.ip_network(each, strict=False) for each in cidrs]


def _open(
    policies: Sequence[Json], others: Sequence[OtherNamespace], pods: Sequence[Network], direction: str, side: str
) -> str:
    concerned = [each for each in policies if direction in _types(each)]
    if not any(_is_of_all(part(each, "spec", "podSelector")) for each in concerned):
        return f"no NetworkPolicy of {direction} selects all pods"
    for policy in concerned:
        for rule in parts(policy, "spec", direction.lower()):
            if direction == "Egress" and _is_dns(rule):
                continue
            peer = _open_peer(rule, side, others, pods)
            if peer:
                return f"NetworkPolicy {part(policy, 'metadata').get('name')!r} opens {direction} of {peer}"
    return ""


def _is_of_all(selector: Json) -> bool:
    # A selector with requirements misses pods: the tenant chooses the labels of its pods.
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def _types(policy: Json) -> list[str]:
    spec = part(policy, "spec")
    types = spec.get("policyTypes")
    if isinstance(types, list):
        return cast("list[str]", types)
    # The API server fills in policyTypes by the same rule.
    return ["Ingress", "Egress"] if "egress" in spec else ["Ingress"]


def _is_dns(rule: Json) -> bool:
    ports = parts(rule, "ports")
    return bool(ports) and all(port.get("port") == DNS_PORT and "endPort" not in port for port in ports)


def _open_peer(rule: Json, side: str, others: Sequence[OtherNamespace], pods: Sequence[Network]) -> str:
    peers = parts(rule, side)
    if not peers:
        return "any peer"
    for peer in peers:
        if "ipBlock" in peer:
            block = part(peer, "ipBlock")
            if _holds_pods(block, pods):
                return str(block.get("cidr"))
        elif "namespaceSelector" in peer:
            selector = part(peer, "namespaceSelector")
            if not selector:
                return "all namespaces"
            found = next((other.name for other in others if other.labels and selects(selector, other.labels)), "")
            if found:
                return f"the namespace {found!r}"
    return ""


def _holds_pods(block: Json, pods: Sequence[Network]) -> bool:
    network = ipaddress.ip_network(str(block.get("cidr")), strict=False)
    if network.prefixlen < WIDE[network.version]:
        return True
    left_out = _networks(cast("list[str]", block.get("except") or []))
    return any(
        each.overlaps(network)
        and not any(each.network_address in out and each.broadcast_address in out for out in left_out)
        for each in pods
    )


def selects(selector: Json, labels: dict[str, str]) -> bool:
    """Return whether a LabelSelector selects these labels. An empty selector selects everything."""
    equal = all(labels.get(key) == value for key, value in part(selector, "matchLabels").items())
    return equal and all(
        meets(labels, each["key"], each["operator"], each.get("values", ()))
        for each in parts(selector, "matchExpressions")
    )

"""What NetworkPolicies leave open to others. Pure.

A pod that no policy selects is open; policies add up, so one that opens is enough. Source: Kubernetes, "Network
Policies".
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any, cast

from tenantry.audit.attempts import rows, table
from tenantry.audit.place import Foreign

Json = dict[str, Any]

DNS_PORT = 53
WIDE = 16
"""An ipBlock of fewer bits of prefix is more than some hosts, and may hold pods of others."""


def ingress(policies: Sequence[Json], others: Iterable[Foreign]) -> str:
    """Return how somebody of another namespace may connect to pods of this one; "" where nobody may.

    Args:
        policies: The NetworkPolicies of the namespace.
        others: Namespaces of others.
    """
    return _open(policies, tuple(others), "Ingress", "from")


def egress(policies: Sequence[Json], others: Iterable[Foreign]) -> str:
    """Return how pods of this namespace may connect to others'; "" where they may not. DNS is not counted."""
    return _open(policies, tuple(others), "Egress", "to")


def _open(policies: Sequence[Json], others: Sequence[Foreign], direction: str, side: str) -> str:
    concerned = [each for each in policies if direction in _types(each)]
    if not any(selects(table(each, "spec", "podSelector"), {}) for each in concerned):
        return f"no NetworkPolicy of {direction} selects all pods"
    for policy in concerned:
        for rule in rows(policy, "spec", direction.lower()):
            if direction == "Egress" and _is_dns(rule):
                continue
            who = _who(rule, side, others)
            if who:
                return f"NetworkPolicy {table(policy, 'metadata').get('name')!r} opens {direction} of {who}"
    return ""


def _types(policy: Json) -> list[str]:
    spec = table(policy, "spec")
    types = spec.get("policyTypes")
    if isinstance(types, list):
        return cast("list[str]", types)
    return ["Ingress", "Egress"] if "egress" in spec else ["Ingress"]


def _is_dns(rule: Json) -> bool:
    ports = rows(rule, "ports")
    return bool(ports) and all(port.get("port") == DNS_PORT and "endPort" not in port for port in ports)


def _who(rule: Json, side: str, others: Sequence[Foreign]) -> str:
    peers = rows(rule, side)
    if not peers:
        return "everybody"
    for peer in peers:
        if "ipBlock" in peer:
            cidr = str(table(peer, "ipBlock").get("cidr"))
            if ipaddress.ip_network(cidr, strict=False).prefixlen < WIDE:
                return cidr
        elif "namespaceSelector" in peer:
            selector = table(peer, "namespaceSelector")
            if not selector:
                return "all namespaces"
            found = next((other.name for other in others if other.labels and selects(selector, other.labels)), "")
            if found:
                return f"the namespace {found!r}"
    return ""


def selects(selector: Json, labels: dict[str, str]) -> bool:
    """Tell whether a LabelSelector selects these labels. An empty one selects everything."""
    if any(labels.get(key) != value for key, value in table(selector, "matchLabels").items()):
        return False
    return all(_holds(each, labels) for each in rows(selector, "matchExpressions"))


def _holds(requirement: Json, labels: dict[str, str]) -> bool:
    key = str(requirement.get("key"))
    values = cast("list[str]", requirement.get("values") or [])
    match requirement.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels

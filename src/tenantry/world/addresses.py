"""Few CIDRs for many addresses: pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from tenantry.api.contribution import is_contributed
from tenantry.api.marks import NODE_ADDRESSES
from tenantry.api.node import Node

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
N = TypeVar("N", ipaddress.IPv4Network, ipaddress.IPv6Network)

METADATA = (
    "100.100.100.200/32",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
    "fe80::/10",
)
"""Addresses at which clouds serve the credentials of a node: link-local ones, and a few others.

Sources: RFC 3927 and RFC 4291; the manuals of Alibaba Cloud (100.100.100.200), Azure (168.63.129.16), AWS
(fd00:ec2::254) and Google Cloud (fd20:ce::254).
"""

_NODE_TYPES = frozenset({"InternalIP", "ExternalIP"})
_CIDR = re.compile(r"[0-9a-fA-F.:]+/(0|[1-9][0-9]{0,2})")

MOST = 64
"""The maximum of CIDRs of one family in a policy, which exists in every namespace."""


class Blocks(msgspec.Struct, frozen=True):
    """CIDRs.

    Args:
        cidrs: Sorted, without overlaps.
        is_widened: They cover more than the given addresses.
    """

    cidrs: tuple[str, ...]
    is_widened: bool


def parse(text: str) -> Network | None:
    """Return an address or a CIDR as a network, without its host bits; None if it is neither."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_part(one: Network, other: Network) -> bool:
    """Return whether all addresses of a network are in another one."""
    return one.version == other.version and one.prefixlen >= other.prefixlen and one.network_address in other


def is_overlapping(one: Network, other: Network) -> bool:
    """Return whether two networks have an address in common."""
    return is_part(one, other) or is_part(other, one)


def gateways(cidr: str) -> str:
    """Return the addresses that a node has itself in the range of its pods, as a CIDR; "" for anything else.

    They are the first two: network plugins give a node the second one, and in IPv6 the first one means any router of
    the range (RFC 4291, "Required Anycast Address").
    """
    found = parse(cidr)
    if found is None:
        return ""
    return f"{found.network_address}/{max(found.prefixlen, found.max_prefixlen - 1)}"


def addresses_of(node: Node) -> frozenset[str]:
    """Return the addresses and CIDRs of a node; its host name is none, because a policy cannot name it.

    They are the InternalIP and ExternalIP addresses, the node's own addresses in the ranges of its pods, and those that
    the operator or an administrator has recorded. A contributed node reports addresses of its choice, which would cut
    tenants off from them: of such a node, only recorded ones count.
    """
    meta = node.metadata
    ranges = (gateways(each) for each in node.spec.pod_cidrs)
    recorded = (each.strip() for each in meta.annotations.get(NODE_ADDRESSES, "").split(","))
    known = {each for each in (*ranges, *recorded) if each}
    if is_contributed(meta.name):
        return frozenset(known)
    return frozenset(known | {each.address for each in node.status.addresses if each.type in _NODE_TYPES})


def strict(text: str) -> Network | None:
    """Return a CIDR as the API server's CEL reads it: no other form, no IPv4 in IPv6; None for anything else.

    Source: Kubernetes, "Common Expression Language in Kubernetes" (IP and CIDR library).
    """
    if not _CIDR.fullmatch(text):
        return None
    found = parse(text)
    is_mapped = isinstance(found, ipaddress.IPv6Network) and ipaddress.IPv6Address(text.partition("/")[0]).ipv4_mapped
    return None if is_mapped else found


def is_within(text: str, other: str) -> bool:
    """Return whether one CIDR is in another; False if either is not a CIDR."""
    inner, outer = strict(text), strict(other)
    if isinstance(inner, ipaddress.IPv4Network) and isinstance(outer, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, ipaddress.IPv6Network) and isinstance(outer, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def blocks(given: Iterable[str], most: int = MOST) -> Blocks:
    """Return the fewest CIDRs that cover addresses and CIDRs; wider ones if there are too many.

    Args:
        given: Addresses and CIDRs; anything else is ignored.
        most: The maximum for each family; at least 1.
    """
    networks = {network for text in given if (network := parse(text)) is not None}
    v4 = list(ipaddress.collapse_addresses(each for each in networks if isinstance(each, ipaddress.IPv4Network)))
    v6 = list(ipaddress.collapse_addresses(each for each in networks if isinstance(each, ipaddress.IPv6Network)))
    few = [*_widened(v4, most), *_widened(v6, most)]
    return Blocks(tuple(str(network) for network in few), is_widened=len(few) < len(v4) + len(v6))


def _widened(networks: list[N], most: int) -> list[N]:
    """Put neighbours together, the nearest first, until there are few enough."""
    prefix = networks[0].max_prefixlen if networks else 0
    while len(networks) > most:
        prefix -= 1
        together: dict[N, list[N]] = {}
        for network in networks:
            block = network.supernet(new_prefix=prefix) if network.prefixlen > prefix else network
            together.setdefault(block, []).append(network)
        networks = [block if len(inside) > 1 else inside[0] for block, inside in together.items()]
    return networks

"""Ranges of addresses and of ports, for nftables' interval sets: pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Range = tuple[int, int]
"""The first and the last number, both included."""


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the same numbers as sorted ranges that do not touch."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        # Ranges that touch are merged, too: nft needs fewer elements.
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def without(whole: Range, holes: Iterable[Range]) -> list[Range]:
    """Return a range without the numbers of others."""
    left: list[Range] = []
    first, last = whole
    for start, end in merged(holes):
        if end < first or start > last:
            continue
        if start > first:
            left.append((first, start - 1))
        first = end + 1
    return [*left, (first, last)] if first <= last else left


def addresses(cidr: str) -> tuple[int, Range]:
    """Return the family of a CIDR (4 or 6) and its addresses.

    Raises:
        ValueError: The text is not a CIDR.
    """
    network = ipaddress.ip_network(cidr, strict=False)
    return network.version, (int(network.network_address), int(network.broadcast_address))


def text(family: int, found: Range) -> str:
    """Return a range of addresses in nft syntax."""
    kind = ipaddress.IPv4Address if family == 4 else ipaddress.IPv6Address  # noqa: PLR2004 - IP's version
    first, last = found
    return str(kind(first)) if first == last else f"{kind(first)}-{kind(last)}"


def port_text(found: Range) -> str:
    """Return a range of ports in nft syntax."""
    first, last = found
    return str(first) if first == last else f"{first}-{last}"

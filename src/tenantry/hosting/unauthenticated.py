"""Clients of a listener that have not authenticated yet, by their source: none of them keeps others out. Pure.

    connection ─┬─ its source opens too many in a second ──► closed at once
                ├─ more than `most` have not authenticated ─► the oldest one of the source that has the most is ended
                └─ has a place until its client has authenticated

A source is an IPv4 address, or the /64 network of an IPv6 address, which one client has as a whole. Behind a program
that hides the addresses of clients, as a load balancer may, all of them are one source.

    most = 3     a1 a2 b1 │ b2 arrives: a and b have two each, and a1 is older than b1 ─► a1 is ended
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from tenantry.engine.tokenbucket import TokenBucket

T = TypeVar("T", bound=Hashable)

_IPV6_NETWORK = 64
_MOST_SOURCES = 4096
"""So many are remembered, those that were used last."""


class UnauthenticatedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of clients that have not authenticated.

    Args:
        per_source_per_second: The sustained rate of new connections of one source, which is also the largest burst.
        most: The number of such connections at one time.
    """

    per_source_per_second: int
    most: int


class UnauthenticatedClients(Generic[T]):
    """The connections of one listener whose clients have not authenticated.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: UnauthenticatedLimits) -> None:
        self._limits = limits
        # By source, the one that was used last at the end.
        self._buckets = OrderedDict[str, TokenBucket]()
        # In the order in which they began.
        self._places = dict[T, str]()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._places)

    def take(self, address: str, now: float) -> bool:
        """Return whether the source of an address may open one more connection now, and count it."""
        source = source_of(address)
        bucket = self._buckets.pop(source, None) or TokenBucket.per_second(self._limits.per_source_per_second)
        self._buckets[source] = bucket
        if len(self._buckets) > _MOST_SOURCES:
            self._buckets.popitem(last=False)
        return bucket.try_take(now)

    def begin(self, each: T, address: str) -> T | None:
        """Give a connection a place; return the one that loses its own for that, None for none."""
        self._places[each] = source_of(address)
        if len(self._places) <= self._limits.most:
            return None
        held = dict[str, list[T]]()
        for other, source in self._places.items():
            held.setdefault(source, []).append(other)
        # The first one of the sources with the most places, because `held` has them in the order of their oldest.
        victim = max(held.values(), key=len)[0]
        del self._places[victim]
        return victim

    def end(self, each: T) -> None:
        """Take in that a client has authenticated, or that its connection has ended."""
        self._places.pop(each, None)


def source_of(address: str) -> str:
    """Return the source of an IP address; an address that cannot be read is a source of its own."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_NETWORK), strict=False))

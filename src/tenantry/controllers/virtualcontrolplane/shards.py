"""Which replica of the operator serves a control plane: by its uid. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import msgspec


class Shard(msgspec.Struct, frozen=True):
    """A part of all control planes.

    Args:
        index: Its number, from 0.
        count: The number of parts; 1 if one replica serves all of them.
    """

    index: int = 0
    count: int = 1

    def has(self, uid: str) -> bool:
        """Return whether a control plane is in this part; each is in exactly one."""
        return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:8]) % self.count == self.index


def lease_name(index: int) -> str:
    """Return the name of the Lease of a shard."""
    return f"tenantry-control-planes-{index}"


def to_request(holders: Sequence[str], own: str) -> int | None:
    """Return the number of the shard that a replica without one should request; None if each replica has one at most.

    Args:
        holders: Who holds each shard; "" for none.
        own: The replica.
    """
    if own in holders:
        return None
    numbers = Counter(each for each in holders if each)
    most = max(numbers, key=lambda each: (numbers[each], each), default="")
    return None if numbers[most] < 2 else len(holders) - 1 - list(reversed(holders)).index(most)  # noqa: PLR2004

"""Amounts of quota as numbers, and the quota objects of a tree in numbers: pure.

Amounts map a normal quota key to whole thousandths, the precision of the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

import msgspec

from tenantry.world import quantity

Amounts = dict[str, int]

_BINARY_STEP = 1024_000
_BYTES = ("memory", "storage")


@lru_cache(maxsize=8192)
def thousandths(text: str | int) -> int:
    """Return a quantity in thousandths, rounded up as the API server does in maps of resources.

    Raises:
        InputError: The text is not a quantity.
    """
    value = quantity.parse(text)
    # The ceiling of the absolute value: the API server rounds away from zero.
    whole = -(-abs(value) * 1000 // 1)
    return int(whole if value >= 0 else -whole)


def read(hard: Mapping[str, str | int]) -> Amounts:
    """Return quantities as numbers.

    Raises:
        InputError: One of them is not a quantity.
    """
    return {key: thousandths(text) for key, text in hard.items()}


def is_bytes(key: str) -> bool:
    """Return whether a key counts bytes."""
    return key.endswith(_BYTES) or ".hugepages-" in key


@lru_cache(maxsize=8192)
def spell(key: str, value: int) -> str:
    """Return an amount as a canonical quantity; bytes in Ki, Mi, … if that is a whole number."""
    binary = is_bytes(key) and value >= _BINARY_STEP and value % _BINARY_STEP == 0
    return quantity.write(Fraction(value, 1000), binary=binary)


def spelled(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts as canonical quantities, sorted by key."""
    return {key: spell(key, amounts[key]) for key in sorted(amounts)}


def fits(wanted: Mapping[str, int], available: Mapping[str, int]) -> bool:
    """Return whether every wanted amount is available; a missing key counts as 0."""
    return all(value <= available.get(key, 0) for key, value in wanted.items())


def lower(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """Return the smaller amount of each key that both have."""
    return {key: min(value, other[key]) for key, value in one.items() if key in other}


def higher(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """Return the larger amount of each key that either has."""
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in one.keys() | other.keys()}


def beyond(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    """Return by how much each amount exceeds that of another set, at least 0."""
    return {key: max(0, value - other.get(key, 0)) for key, value in one.items()}


def add(total: Amounts, amounts: Mapping[str, int], sign: int = 1) -> None:
    """Add amounts to a total; sign -1 subtracts them."""
    for key, value in amounts.items():
        total[key] = total.get(key, 0) + sign * value


def total(many: Iterable[Mapping[str, int]]) -> Amounts:
    """Return the sum of amounts."""
    out: Amounts = {}
    for amounts in many:
        add(out, amounts)
    return out


class ShareQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The ResourceQuota of a namespace as it was last seen.

    Args:
        uid: Of the ResourceQuota.
        version: Its resourceVersion.
        hard: `spec.hard`.
        in_force: `status.hard`; admission does not enforce a key that is missing there.
        used: `status.used`.
        number: Of the batch that wrote it last; 0 for none.
        final: That batch does not write it again.
    """

    uid: str
    version: int
    hard: Amounts
    in_force: Amounts
    used: Amounts
    number: int = 0
    final: bool = True

    @property
    def reach(self) -> Amounts:
        """Return what it allows now or after its status catches up; sums over a tree count this."""
        return higher(self.hard, self.in_force)

    @property
    def is_enforced(self) -> bool:
        """Return whether admission enforces `spec.hard`."""
        return self.in_force == self.hard


class ShareTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch writes into the ResourceQuota of one namespace; the uid is the namespace's."""

    namespace: str
    uid: str
    hard: Amounts


class RemoteShare(msgspec.Struct, frozen=True, kw_only=True):
    """The record of what one namespace has at one peer, in the status of the TenantResourceQuota; see `remote`.

    Args:
        namespace: At home.
        peer: The PeerCluster.
        number: The resourceVersion of the TenantResourceQuota that `given` was decided on.
        held: What the tree keeps free for it: the peer never holds more.
        given: What the peer should hold now; less than `held` until the peer has confirmed it.
    """

    namespace: str
    peer: str
    number: int = 0
    held: Amounts = {}
    given: Amounts = {}

    @property
    def key(self) -> tuple[str, str]:
        """Return the namespace and the peer."""
        return self.namespace, self.peer


class ObservedTenantQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The TenantResourceQuota as it was last seen.

    Args:
        version: Its resourceVersion.
        hard: What the whole tree may use; None if that was never written, or was lost.
        number: Of the batch under way, or of the last one; 0 if there was none.
        targets: Of that batch.
        remote: The records of what peers hold.
        assigned: What each namespace of the tree has for itself, as the status was last written; a namespace that the
            status leaves out is missing.
    """

    version: int
    hard: Amounts | None = None
    number: int = 0
    targets: tuple[ShareTarget, ...] = ()
    remote: tuple[RemoteShare, ...] = ()
    assigned: Mapping[str, Amounts] = {}


SHRINK = "/shrink"


def mark(number: int, *, final: bool) -> str:
    """Return the value of the annotation that a batch leaves on a ResourceQuota."""
    return str(number) if final else f"{number}{SHRINK}"


def read_mark(text: str) -> tuple[int, bool]:
    """Return the number of the batch in an annotation, and whether that write was its last; (0, True) for none."""
    digits = text.removesuffix(SHRINK)
    return (int(digits), digits == text) if digits.isdigit() and digits.isascii() else (0, True)

"""What people are told where a quota is too small: pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api import reasons
from tenantry.api.wording import SHOWN, shortened
from tenantry.world.shares.amounts import Amounts, spell


class Shortage(msgspec.Struct, frozen=True):
    """Why somebody does not have what was asked for, or uses more than there is.

    Args:
        reason: A constant of `tenantry.api.reasons`.
        message: By key what is missing, and where it is.
    """

    reason: str
    message: str


def holders(key: str, held: Iterable[tuple[str, Mapping[str, int]]]) -> str:
    """Return who holds most of a key: pairs of a name and what it holds."""
    having = [(amounts[key], name) for name, amounts in held if amounts.get(key, 0) > 0]
    first = heapq.nsmallest(SHOWN, having, key=lambda pair: (-pair[0], pair[1]))
    return shortened((f"{name!r} has {spell(key, value)}" for value, name in first), in_order=True, total=len(having))


def not_limited(keys: Iterable[str]) -> Shortage:
    """Say that a quota has keys that the tenant's has not (E11)."""
    return Shortage(
        reasons.QUOTA_KEY_NOT_LIMITED,
        f"spec.quota.hard has {shortened(keys)}, which the tenant's quota does not limit: take it out here, or have an"
        " administrator limit it for the whole tenant",
    )


def insufficient(lines: list[str]) -> Shortage:
    """Say that a parent cannot give what is asked for."""
    return Shortage(reasons.QUOTA_INSUFFICIENT, shortened(lines, separator="; "))


def lacking(key: str, *, request: int, free: int, parent: str, used: int, held: str) -> str:
    """Return why one key does not fit: asked and free are beyond what the child has already."""
    own = f"namespace {parent!r} uses {spell(key, used)} itself"
    who = f"{own}, {held}" if held else own
    return f"{key}: asked {spell(key, request)}, free {spell(key, max(free, 0))}: {who}"


def short(lack: Amounts, whole: Mapping[str, int], held: Mapping[str, str]) -> Shortage:
    """Say that subnamespaces hold more than there is.

    Args:
        lack: How much more, by key.
        whole: How much there is.
        held: Who holds it, by key; nothing for whom that is not to be told.
    """
    lines = [
        f"{key}: subnamespaces hold {spell(key, whole.get(key, 0) + lack[key])},"
        f" {spell(key, lack[key])} more than {spell(key, whole.get(key, 0))}"
        + (f": {held[key]}" if key in held else "")
        for key in sorted(lack)
    ]
    return Shortage(reasons.QUOTA_SHORT, shortened(lines, separator="; "))


MADE_BY_KUBERNETES = {"configmaps": 1000, "count/configmaps": 1000, "count/serviceaccounts": 1000}
"""What is in every namespace, in thousandths: a share of 0 is no reason to complain of it."""


def exceeded(over: Amounts, own: Mapping[str, int], namespace: str) -> Shortage | None:
    """Say that more is in use than the share, None where it is not; nothing is killed."""
    over = {key: value for key, value in over.items() if value > MADE_BY_KUBERNETES.get(key, 0)}
    if not over:
        return None
    lines = [
        f"{key}: {spell(key, own.get(key, 0) + over[key])} in use in namespace {namespace!r},"
        f" {spell(key, over[key])} more than its share of {spell(key, own.get(key, 0))}; new use is refused"
        for key in sorted(over)
    ]
    return Shortage(reasons.QUOTA_EXCEEDED, shortened(lines, separator="; "))

"""Messages about quotas that are too small: pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api import reasons
from tenantry.api.wording import SHOWN, shortened
from tenantry.world.shares.amounts import Amounts, spell


class Shortage(msgspec.Struct, frozen=True):
    """Why a namespace or claim has less than it requests, or uses more than it has.

    Args:
        reason: A constant of `tenantry.api.reasons`.
        message: What is missing by key, and which siblings hold it.
    """

    reason: str
    message: str


def holders(key: str, held: Iterable[tuple[str, Mapping[str, int]]]) -> str:
    """Return the largest holders of a key.

    Args:
        key: The key.
        held: Pairs of a name and the amounts that it holds.
    """
    having = [(amounts[key], name) for name, amounts in held if amounts.get(key, 0) > 0]
    first = heapq.nsmallest(SHOWN, having, key=lambda pair: (-pair[0], pair[1]))
    return shortened((f"{name!r} has {spell(key, value)}" for value, name in first), in_order=True, total=len(having))


def not_limited(keys: Iterable[str]) -> Shortage:
    """Report keys of a request that the tenant's quota does not have (E11)."""
    return Shortage(
        reasons.QUOTA_KEY_NOT_LIMITED,
        f"spec.quota.hard has {shortened(keys)}, which the tenant's quota does not limit: take it out here, or have an"
        " administrator limit it for the whole tenant",
    )


def full(most: int) -> Shortage:
    """Report that a tenant has as many shares at peers as one TenantResourceQuota records."""
    return Shortage(
        reasons.LIMIT_REACHED,
        f"the tenant has {most} shares at peers, the most: take spec.share out of another NamespaceOffloading",
    )


def insufficient(lines: list[str]) -> Shortage:
    """Report that a parent cannot give what a child requests."""
    return Shortage(reasons.QUOTA_INSUFFICIENT, shortened(lines, separator="; "))


def lacking(key: str, *, requested: int, available: int, parent: str, used: int, held: str) -> str:
    """Return why one key does not fit.

    Args:
        key: The key.
        requested: By the child, with what it has already.
        available: To the child, with what it has already.
        parent: The name of the parent namespace.
        used: By the parent namespace itself.
        held: The largest holders among the siblings; "" for none.
    """
    own = f"namespace {parent!r} uses {spell(key, used)} itself"
    rest = f"{own}, {held}" if held else own
    return f"{key}: {spell(key, requested)} requested, {spell(key, max(available, 0))} available: {rest}"


def short(lack: Amounts, whole: Mapping[str, int], held: Mapping[str, str]) -> Shortage:
    """Report that subnamespaces hold more than their parent has.

    Args:
        lack: How much more, by key.
        whole: What the parent has.
        held: The largest holders by key; empty if the parent's owners must not see them.
    """
    lines = [
        f"{key}: subnamespaces hold {spell(key, whole.get(key, 0) + lack[key])},"
        f" {spell(key, lack[key])} more than {spell(key, whole.get(key, 0))}"
        + (f": {held[key]}" if key in held else "")
        for key in sorted(lack)
    ]
    return Shortage(reasons.QUOTA_SHORT, shortened(lines, separator="; "))


def nothing_runs(told: str) -> Shortage:
    """Report that no pod can start, with the keys and what would help."""
    return Shortage(reasons.NO_POD_FITS, f"no pod can start: {told}")


MADE_BY_KUBERNETES = {"configmaps": 1000, "count/configmaps": 1000, "count/serviceaccounts": 1000}
"""Kubernetes creates these in every namespace, in thousandths: a share of 0 that they exceed is not reported."""


def beyond(over: Amounts) -> Amounts:
    """Return what a namespace uses beyond its share, without what Kubernetes itself created."""
    return {key: value for key, value in over.items() if value > MADE_BY_KUBERNETES.get(key, 0)}


def exceeded(over: Amounts, own: Mapping[str, int], namespace: str) -> Shortage | None:
    """Report that a namespace uses more than its share; None if it does not. Nothing is evicted."""
    over = beyond(over)
    if not over:
        return None
    lines = [
        f"{key}: {spell(key, own.get(key, 0) + over[key])} in use in namespace {namespace!r},"
        f" {spell(key, over[key])} more than its share of {spell(key, own.get(key, 0))}; new use is refused"
        for key in sorted(over)
    ]
    return Shortage(reasons.QUOTA_EXCEEDED, shortened(lines, separator="; "))

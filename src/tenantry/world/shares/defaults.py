"""What a child gets of a key that its Subnamespace does not name: pure.

A namespace with 0 of `pods` or `requests.cpu` can run nothing, and a ResourceQuota without the key would limit nothing.
So a child gets a part of what its parent has free, and keeps that: the default of one child does not move when another
one comes or goes. The parts become smaller with each child, and the parent keeps the larger part.

    key                   default of a child
    any                   a quarter of what the parent has free
    needed by each pod    the same, and at least what one container gets by default, but not more than half
    counted, needed       the same, and at least 1 if its parent keeps 1

Example: `acme` has 50 pods free. Its first children get 12, 9 and 7, and `acme` keeps 22 for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenantry.api.wording import shortened
from tenantry.world import quota
from tenantry.world.shares.amounts import Amounts, is_bytes, thousandths
from tenantry.world.shares.shortage import Shortage, nothing_runs

PARTS = 4
"""A child gets this part of what its parent has free."""

COUNTED_WITH_PODS = frozenset(
    {"pods", "count/pods", "configmaps", "count/configmaps", "serviceaccounts", "count/serviceaccounts"}
)
"""Counts without which no pod starts: Kubernetes mounts the ConfigMap `kube-root-ca.crt` and needs a ServiceAccount."""

CONTAINER: Amounts = {
    f"{side}.{name}": thousandths(value)
    for side, values in (("requests", quota.DEFAULT_REQUESTS), ("limits", quota.DEFAULT_LIMITS))
    for name, value in values.items()
}
"""What a container without requests and limits gets, by key of the quota."""

NEEDED = frozenset({*COUNTED_WITH_PODS, *CONTAINER})
"""The keys without which no pod starts. Containers get requests and limits of the others, because a quota has them."""

LEAST: Amounts = {**dict.fromkeys(COUNTED_WITH_PODS, 1000), **CONTAINER}
"""What one pod needs. A default that is not more grows as soon as its parent has more free."""

_MEBIBYTE, _WHOLE, _THOUSANDTH = 1024 * 1024 * 1000, 1000, 1
_CPU = ("requests.cpu", "limits.cpu")


def default(key: str, free: int) -> int:
    """Return what a child gets of a key that it does not name.

    Args:
        key: A normal key.
        free: What its parent has, and neither uses nor gave to a child.
    """
    unit = _THOUSANDTH if key in _CPU else _MEBIBYTE if is_bytes(key) else _WHOLE
    amount = free // PARTS
    if key in CONTAINER:
        amount = max(amount, min(CONTAINER[key], free // 2))
    if key in COUNTED_WITH_PODS and free >= 2 * unit:  # the pods of the parent's controllers come back
        amount = max(amount, unit)
    return max(0, amount // unit * unit)


def blocking(granted: Mapping[str, int]) -> list[str]:
    """Return the keys because of which no pod can start, sorted.

    Args:
        granted: What a namespace and everything below it has, by every key that the tenant limits.
    """
    return sorted(key for key, value in granted.items() if value <= 0 and key in NEEDED)


def idle(granted: Mapping[str, int], named: Iterable[str], parent: str) -> Shortage | None:
    """Report that no pod can start in a namespace or below it; None if one can.

    Args:
        granted: See `blocking`.
        named: The keys that its Subnamespace names.
        parent: The name of the parent namespace; "" for the core namespace.
    """
    keys = blocking(granted)
    if not keys:
        return None
    own = set(named)
    rest: list[str] = []
    for key in keys:
        if not parent:
            rest.append(f"{key} is 0 in spec.quota.hard of the Tenant: raise it, or take it out")
        elif key in own:
            rest.append(f"{key} is 0 in spec.quota.hard: raise it, or take it out for a default")
        else:
            rest.append(f"{key} is 0, because namespace {parent!r} has none to spare: free some, or raise its quota")
    return nothing_runs(shortened(rest, separator="; ", in_order=True))

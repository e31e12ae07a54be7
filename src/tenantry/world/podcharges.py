"""What quotas count for pods: pure.

Source: Kubernetes, "Resource Quotas": a pod that has ended counts as an object only.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from tenantry.api.errors import InputError
from tenantry.world import quantity
from tenantry.world.podrequests import PodSpecRequests
from tenantry.world.shares.amounts import Amounts, is_bytes, read

OBJECT: Amounts = {"count/pods": 1000}
"""What counts for a pod that has ended."""

POD: Amounts = {"pods": 1000, **OBJECT}
"""What counts for each pod that has not, beside its resources."""

_OF_PODS = ("requests.", "limits.")
_OF_CLAIMS = "requests.storage"


def charge(spec: PodSpecRequests) -> Amounts:
    """Return what quotas count for a pod that has not ended."""
    found: dict[str, str | int] = {}
    for bound in ("requests", "limits"):
        for resource in spec.named(bound):
            key = f"{bound}.{resource}"
            try:
                amount: Fraction = spec.counted(bound, resource)
                found[key] = quantity.write(amount, binary=is_bytes(key))
            except InputError:
                continue  # of a form that its API server knows, and this one does not
    return {**POD, **read(found)}


def counted_with_pods(keys: Iterable[str]) -> frozenset[str]:
    """Return the keys of a quota that count pods, or what pods request; claims of volumes request storage."""
    return frozenset(key for key in keys if key in POD or (key.startswith(_OF_PODS) and key != _OF_CLAIMS))

"""Wakes the controllers of slices for namespaces that the operator has created: own writes wake no controller."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api.slice import SliceClaim
from tenantry.controllers.slices.gather import slice_of_claim
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster


def wake_slices(cluster: Cluster, namespaces: Iterable[str]) -> None:
    """Queue the slices of all claims in namespaces: a namespace below may use their nodes now.

    Args:
        cluster: The cluster of the claims.
        namespaces: The namespaces with the claims.
    """
    # A runtime without tenants has no such cache.
    claims: Cache[SliceClaim] | None = cluster.cache_of(SliceClaim.resource)
    if claims is None:
        return
    for namespace in namespaces:
        for found in claims.by_index(BY_NAMESPACE, namespace):
            for name in slice_of_claim(found):
                cluster.wake(SliceClaim, name)

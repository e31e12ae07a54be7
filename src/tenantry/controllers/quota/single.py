"""A tenant of one namespace: its ResourceQuota is the whole quota, at the cost of one write."""

from __future__ import annotations

from typing import Any, cast

from tenantry.api import reasons
from tenantry.api.errors import Conflict, Invalid, NotFound
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import object_key
from tenantry.api.tenant import Tenant
from tenantry.controllers.tenant import desired
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.cluster import Cluster
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.engine.plan import differences

AGAIN_SECONDS = 1.0
"""When to look again for a ResourceQuota that the tenant controller is to make."""


def differs(before: Observed, after: Observed) -> bool:
    """Tell whether more has changed than what is in use."""
    return (before.digest, before.labels, before.annotations) != (after.digest, after.labels, after.annotations)


async def keep(cluster: Cluster, tenant: Tenant) -> float | None:
    """Bring the ResourceQuota of a tenant's only namespace to what its spec says.

    Raises:
        ApiError: The API server refuses.
    """
    wanted = desired.core_quota(tenant)
    key = object_key(tenant.metadata.name, QUOTA)
    found = cluster.cache(ResourceQuota.resource).get(key)
    if found is None:
        return AGAIN_SECONDS if wanted is not None else None
    if wanted is None:
        await cluster.writer.remove(ResourceQuota.resource, found.namespace, found.name, uid=found.uid)
        return None
    if not differences(wanted, found, cluster.writer.equivalent):
        return None
    asked_for = tenant.status.observed_generation != tenant.metadata.generation
    try:
        await _put_back(cluster, wanted, cast("ObservedQuota", found))
    except (Conflict, NotFound):
        return 0.1  # somebody else was there; the watch tells what came of it
    except Invalid:
        # It has scopes, which never change: the tenant controller makes it anew.
        await cluster.writer.remove(ResourceQuota.resource, found.namespace, found.name, uid=found.uid)
    if not asked_for:
        cluster.recorder.say(tenant, EventKind.NORMAL, reasons.CORRECTED, f"put back spec of ResourceQuota {QUOTA!r}")
    return None


async def _put_back(cluster: Cluster, wanted: ResourceQuota, found: ObservedQuota) -> None:
    # At the resourceVersion that was seen: a division over children that began meanwhile must not be undone.
    meta = wanted.metadata
    patch: dict[str, Any] = {
        "metadata": {
            "resourceVersion": str(found.version),
            "labels": {**dict.fromkeys(found.labels), **meta.labels},
            "annotations": {**dict.fromkeys(found.annotations), **meta.annotations},
        },
        "spec": {"hard": {**dict.fromkeys(found.hard), **wanted.spec.hard}, "scopes": None, "scopeSelector": None},
    }
    await cluster.writer.patch(ResourceQuota.resource, found.namespace, found.name, patch, quiet=True)

"""A tenant of one namespace: its ResourceQuota is the whole quota, at the cost of one write."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.errors import Conflict, Invalid, NotFound
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import object_key
from tenantry.api.tenant import Tenant
from tenantry.controllers.quota import desired
from tenantry.controllers.quota.desired import QuotaInputs
from tenantry.controllers.tenant.desired import QUOTA, core_quota
from tenantry.engine.cluster import Cluster
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Plan

AGAIN_SECONDS = 1.0
"""When to look again for a ResourceQuota that the tenant controller creates."""

CONFLICT_SECONDS = 0.1


def differs(before: Observed, after: Observed) -> bool:
    """Return whether more has changed than what is in use."""
    return (before.digest, before.labels, before.annotations) != (after.digest, after.labels, after.annotations)


async def keep(cluster: Cluster, tenant: Tenant) -> float | None:
    """Bring the ResourceQuota of a tenant's only namespace to what its spec says.

    Returns:
        In how many seconds to look again, None for never.

    Raises:
        ApiError: The API server refuses.
    """
    found = cluster.cache(ResourceQuota.resource).get(object_key(tenant.metadata.name, QUOTA))
    if found is None:
        return AGAIN_SECONDS if core_quota(tenant) is not None else None
    needed = desired.plan(QuotaInputs(tenant=tenant, quota=found), cluster.writer.equivalent)
    outcome = await cluster.writer.apply(needed)
    if isinstance(outcome.error, Conflict | NotFound):
        return CONFLICT_SECONDS  # another client wrote it; the watch brings what it is now
    if isinstance(outcome.error, Invalid):
        # It has scopes, which never change: the tenant controller creates it anew.
        outcome = await cluster.writer.apply(Plan(writes=(desired.deletion(found),)))
    if outcome.error is not None:
        raise outcome.error
    is_update = bool(needed.writes) and core_quota(tenant) is not None
    if is_update and tenant.status.observed_generation == tenant.metadata.generation:
        cluster.recorder.say(tenant, EventKind.NORMAL, reasons.CORRECTED, f"put back spec of ResourceQuota {QUOTA!r}")
    return None

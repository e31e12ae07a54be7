"""What a tenant's quota keeps from working, as the conditions of the Tenant report it: pure."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.engine.conditions import find
from tenantry.engine.plan import Blocked
from tenantry.world import quota
from tenantry.world.shares.amounts import read
from tenantry.world.shares.defaults import idle


def obstacle(tenant: Tenant, tenant_quota: TenantResourceQuota | None) -> Blocked | None:
    """Return why the quota of a tenant does not work as its spec requests; None if it does.

    Args:
        tenant: The tenant.
        tenant_quota: Its TenantResourceQuota; None if its quota is not divided.

    Raises:
        InputError: A quantity of the quota cannot be read.
    """
    # Adjustments of the quota are only there.
    is_counted = tenant_quota is not None and tenant_quota.status.batch.counted
    hard = tenant_quota.status.hard if tenant_quota is not None and is_counted else tenant.spec.quota.hard
    found = idle(read(quota.normal(hard)), (), "")
    if found is not None:
        return Blocked(reason=found.reason, message=found.message)
    stalled = find(tenant_quota.status.conditions, reasons.STALLED) if tenant_quota is not None else None
    return Blocked(reason=stalled.reason, message=stalled.message) if stalled is not None else None

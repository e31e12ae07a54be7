"""What decides about the writes of a tenant's quota, gathered from its index and the caches."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Resource, object_key
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.quota.index import Index, QuotaCaches
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Lookup
from tenantry.world.shares.batches import BatchPlanner


class QuotaInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about the next writes.

    Args:
        tenant: The tenant.
        lookup: The namespaces and ResourceQuotas, by kind and key.
        quota: The ResourceQuota of the core namespace; None if there is none.
        tenant_quota: The TenantResourceQuota; None if there is none.
        planner: Of the tenant's tree; None for a tenant of one namespace.
        verified: The uids of the namespaces that ResourceQuotas are known to be in, by the ResourceQuota's uid.
    """

    tenant: Tenant
    lookup: Lookup
    quota: Observed | None = None
    tenant_quota: TenantResourceQuota | None = None
    planner: BatchPlanner | None = None
    verified: Mapping[str, str] = {}


def gather(tenant: Tenant, caches: QuotaCaches, index: Index | None = None) -> QuotaInputs:
    """Return what decides about the next writes of a tenant's quota.

    Args:
        tenant: The tenant.
        caches: The caches.
        index: Its tree, which has taken in all changes and is divided; None for a tenant of one namespace.
    """
    by_kind = {Namespace.resource: caches.namespaces, ResourceQuota.resource: caches.quotas}

    def lookup(resource: Resource, key: str) -> Observed | None:
        return by_kind[resource].get(key)

    name = tenant.metadata.name
    inputs = QuotaInputs(tenant=tenant, lookup=lookup, quota=caches.quotas.get(object_key(name, QUOTA)))
    if index is None:
        return inputs
    return msgspec.structs.replace(
        inputs,
        tenant_quota=caches.tenant_quotas.get(name),
        planner=index.planner,
        verified=index.verified,
    )

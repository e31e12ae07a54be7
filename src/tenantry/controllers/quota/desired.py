"""What the quota controller writes next: pure.

The ResourceQuota of a tenant's only namespace is the whole quota. Over a tree, shares move in batches that are written
ahead in the TenantResourceQuota (`world.shares.batches`): `plan` returns the writes of a batch that are possible now,
and the next plan, from what the API server stored, goes on. The controller sends the same requests; it also checks
before a share grows that the ResourceQuota is in the namespace that is meant, and reads again after a conflict.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from tenantry.api.errors import AlreadyExists
from tenantry.api.kubernetes import ResourceQuota, ResourceQuotaSpec
from tenantry.api.marks import MANAGED_BY, MANAGER, QUOTA_BATCH, TENANT
from tenantry.api.model import ObjectMeta, OwnerReference
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import Batch, BatchTarget, TenantResourceQuota, TenantResourceQuotaSpec
from tenantry.controllers.tenant.desired import QUOTA, core_quota
from tenantry.engine import request
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.engine.plan import DirectWrite, Equivalent, Plan, differences, same
from tenantry.engine.request import ApiRequest
from tenantry.world.shares.amounts import ObservedTenantQuota, mark, spelled
from tenantry.world.shares.batches import (
    BatchPlanner,
    BatchStep,
    CreateQuota,
    EnforceQuota,
    RelistTree,
    RereadTenantQuota,
    UpdateQuota,
    UpdateTenantQuota,
)


class QuotaInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about the next write.

    Args:
        tenant: Whose quota it is.
        quota: The ResourceQuota of the core namespace.
        tenant_quota: None if there is none yet.
        observed: The same, in numbers.
        planner: Of the tenant's tree; None for a tenant of one namespace.
    """

    tenant: Tenant
    quota: Observed | None = None
    tenant_quota: TenantResourceQuota | None = None
    observed: ObservedTenantQuota | None = None
    planner: BatchPlanner | None = None


def plan(inputs: QuotaInputs, equivalent: Equivalent = same) -> Plan:
    """Return the writes that are possible now; an empty plan if there is nothing to write, or the caches are behind.

    Raises:
        InputError: The tenant's quota is wrong in a way that the CRD's schema did not catch.
    """
    tenant, tenant_quota = inputs.tenant, inputs.tenant_quota
    if inputs.planner is None:
        return _alone(tenant, inputs.quota, equivalent)
    if tenant_quota is None or inputs.observed is None:
        asked = request.create(new_tenant_quota(tenant))
        return Plan(writes=(DirectWrite(request=asked, quiet=True, ignores=(AlreadyExists,)),))
    steps = inputs.planner.steps(inputs.observed)
    wanted = [_request(tenant, tenant_quota, step) for step in steps]
    return Plan(
        writes=tuple(DirectWrite(request=asked, quiet=True, ignores=()) for asked in wanted if asked is not None)
    )


# -- one namespace --------------------------------------------------------------------------------


def _alone(tenant: Tenant, found: Observed | None, equivalent: Equivalent) -> Plan:
    """Return what the ResourceQuota of a tenant's only namespace lacks; the tenant controller creates it.

    Raises:
        InputError: The tenant's quota is wrong in a way that the CRD's schema did not catch.
    """
    wanted = core_quota(tenant)
    if found is None or (wanted is not None and not differences(wanted, found, equivalent)):
        return Plan()
    return Plan(writes=(_update(wanted, cast("ObservedQuota", found)) if wanted is not None else deletion(found),))


def deletion(found: Observed) -> DirectWrite:
    """Return the deletion of a ResourceQuota as it was seen."""
    asked = request.delete(ResourceQuota.resource, found.namespace, found.name, uid=found.uid)
    return DirectWrite(request=asked)


def _update(wanted: ResourceQuota, found: ObservedQuota) -> DirectWrite:
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
    asked = request.patch(ResourceQuota.resource, found.namespace, found.name, patch)
    return DirectWrite(request=asked, quiet=True, ignores=())


# -- a tree ---------------------------------------------------------------------------------------


def _request(tenant: Tenant, tenant_quota: TenantResourceQuota, step: BatchStep) -> ApiRequest | None:
    match step:
        case CreateQuota():
            return creation(tenant, step)
        case UpdateQuota():
            return update(tenant, step)
        case EnforceQuota():
            return enforcement(step)
        case UpdateTenantQuota():
            return request.replace(written_ahead(tenant_quota, step), subresource="status")
        case RereadTenantQuota() | RelistTree():
            return None


def labels(tenant: Tenant) -> dict[str, str]:
    """Return the labels of a tenant's ResourceQuotas."""
    return {MANAGED_BY: MANAGER, TENANT: tenant.metadata.name}


def creation(tenant: Tenant, step: CreateQuota) -> ApiRequest:
    """Return the request that creates the ResourceQuota of a namespace."""
    meta = ObjectMeta(
        name=QUOTA,
        namespace=step.namespace,
        labels=labels(tenant),
        annotations={QUOTA_BATCH: mark(step.number, final=False)},
    )
    return request.create(ResourceQuota(metadata=meta, spec=ResourceQuotaSpec(hard=spelled(step.hard))))


def update(tenant: Tenant, step: UpdateQuota) -> ApiRequest:
    """Return the request that changes a share, at the resourceVersion that it was decided on."""
    gone = {key: None for key in step.quota.hard if key not in step.hard}
    patch: dict[str, Any] = {
        "metadata": {
            "resourceVersion": str(step.quota.version),
            "labels": labels(tenant),
            "annotations": {QUOTA_BATCH: mark(step.number, final=step.final)},
        },
        "spec": {"hard": {**spelled(step.hard), **gone}},
    }
    return request.patch(ResourceQuota.resource, step.namespace, QUOTA, patch)


def enforcement(step: EnforceQuota) -> ApiRequest:
    """Return the request that copies the spec into the status, which Kubernetes' quota controller does later."""
    quota = step.quota
    gone = {key: None for key in quota.in_force.keys() | quota.used.keys() if key not in quota.hard}
    status = {
        "hard": {**spelled(quota.hard), **{key: None for key in quota.in_force if key not in quota.hard}},
        "used": {key: None for key in gone if key in quota.used},
    }
    patch: dict[str, Any] = {"metadata": {"resourceVersion": str(quota.version)}, "status": status}
    return request.patch(ResourceQuota.resource, step.namespace, QUOTA, patch, subresource="status")


def written_ahead(tenant_quota: TenantResourceQuota, step: UpdateTenantQuota) -> TenantResourceQuota:
    """Return the TenantResourceQuota with a batch in its status."""
    targets = tuple(BatchTarget(namespace=a.namespace, uid=a.uid, hard=spelled(a.hard)) for a in step.targets)
    status = msgspec.structs.replace(
        tenant_quota.status,
        hard=spelled(step.hard or {}),
        batch=Batch(number=step.number, counted=step.hard is not None, targets=targets),
    )
    return msgspec.structs.replace(tenant_quota, status=status)


def new_tenant_quota(tenant: Tenant) -> TenantResourceQuota:
    """Return a tenant's TenantResourceQuota as it is made: it goes with the tenant."""
    meta = tenant.metadata
    owner = OwnerReference(
        api_version=tenant.resource.api_version,
        kind=tenant.resource.kind,
        name=meta.name,
        uid=meta.uid,
        controller=True,
    )
    return TenantResourceQuota(
        metadata=ObjectMeta(name=meta.name, labels=labels(tenant), owner_references=(owner,)),
        spec=TenantResourceQuotaSpec(),
    )

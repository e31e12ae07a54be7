"""What the quota controller writes next: pure.

The ResourceQuota of a tenant's only namespace is the whole quota. Over a tree, shares move in batches that are written
ahead in the TenantResourceQuota (`world.shares.batches`). A plan has the writes of a batch that are safe now, or the
reads that must come first; the next plan is computed from the API server's responses:

    plan 1: PUT the batch in status  ─►  plan 2: everything that shrinks  ─►  plan 3: what grows  ─►  plan 4: empty
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, Conflict, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota, ResourceQuotaSpec
from tenantry.api.marks import MANAGED_BY, MANAGER, QUOTA_BATCH, TENANT
from tenantry.api.model import Json, ObjectMeta, OwnerReference, object_key
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import (
    Batch,
    BatchTarget,
    RemoteShareStatus,
    TenantResourceQuota,
    TenantResourceQuotaSpec,
)
from tenantry.controllers import tenantnamespace
from tenantry.controllers.quota.gather import QuotaInputs
from tenantry.controllers.quota.objects import observed_tenant_quota, share_quota
from tenantry.controllers.tenant.desired import QUOTA, core_quota
from tenantry.engine import request
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.engine.plan import Blocked, Child, DirectWrite, Equivalent, Plan, Read, compare, differences, same
from tenantry.engine.request import ApiRequest
from tenantry.world.shares.amounts import Amounts, RemoteShare, ShareQuota, mark, spelled
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

MANY = 8
"""From this number of namespaces on, one list costs less than a read of each."""


def plan(inputs: QuotaInputs, equivalent: Equivalent = same) -> Plan:
    """Return the writes that are possible now; an empty plan if there is nothing to write, or the caches are behind.

    Raises:
        InputError: The tenant's quota is wrong in a way that the CRD's schema did not catch.
    """
    if inputs.planner is None:
        return _alone(inputs.tenant, inputs.quota, equivalent)
    return _tree(inputs, inputs.planner)


def preview(inputs: QuotaInputs) -> Plan:
    """Return the changes of each ResourceQuota once all moves are done, instead of the moves that are safe now."""
    wanted = children(inputs)
    is_surplus = inputs.planner is None and not wanted
    stale = [(ResourceQuota.resource, inputs.quota)] if is_surplus and inputs.quota is not None else []
    return compare(wanted, inputs.lookup, stale=stale)


def children(inputs: QuotaInputs) -> list[Child]:
    """Return the tenant's ResourceQuotas as they are when all moves are done, without the marks of batches."""
    if inputs.planner is None:
        own = core_quota(inputs.tenant)
        return [_child(own)] if own is not None else []
    tree = inputs.planner.tree
    return [
        # The reserve is for namespaces that do not exist yet: it is given away when they do.
        _share(inputs, share.namespace.name, {key: max(0, share.own[key] - share.reserved[key]) for key in tree.keys})
        for share in tree.shares.values()
        if tree.keys and share.namespace is not None and not share.namespace.terminating
    ]


def _share(inputs: QuotaInputs, namespace: str, hard: Amounts) -> Child:
    found = inputs.lookup(ResourceQuota.resource, object_key(namespace, QUOTA))
    meta = ObjectMeta(
        name=QUOTA,
        namespace=namespace,
        # The mark of the last batch is no part of the desired state, so it is no difference either.
        labels=found.labels if found is not None else labels(inputs.tenant),
        annotations=found.annotations if found is not None else {},
    )
    return _child(ResourceQuota(metadata=meta, spec=ResourceQuotaSpec(hard=spelled(hard))))


def _child(quota: ResourceQuota) -> Child:
    return Child(object=quota, wave=tenantnamespace.WAVE_LIMITS)


# -- one namespace --------------------------------------------------------------------------------


def _alone(tenant: Tenant, found: Observed | None, equivalent: Equivalent) -> Plan:
    """Return what the ResourceQuota of a tenant's only namespace lacks; the tenant controller creates it."""
    wanted = core_quota(tenant)
    if found is None or (wanted is not None and not differences(wanted, found, equivalent)):
        return Plan()
    seen = cast("ObservedQuota", found)
    if wanted is None or seen.is_scoped:
        return Plan(writes=(_deletion(found),))
    # At the resourceVersion that was seen: a division over children that began meanwhile must not be undone.
    meta = wanted.metadata
    patch: Json = {
        "metadata": {
            "resourceVersion": str(found.version),
            "labels": {**dict.fromkeys(found.labels), **meta.labels},
            "annotations": {**dict.fromkeys(found.annotations), **meta.annotations},
        },
        "spec": {"hard": {**dict.fromkeys(seen.hard), **wanted.spec.hard}},
    }
    asked = request.patch(ResourceQuota.resource, found.namespace, found.name, patch)
    return Plan(writes=(DirectWrite(request=asked, quiet=True, ignores=()),))


def _deletion(found: Observed) -> DirectWrite:
    """Return the deletion of a ResourceQuota as it was seen."""
    asked = request.delete(ResourceQuota.resource, found.namespace, found.name, uid=found.uid)
    return DirectWrite(request=asked, version=found.version, ignores=(Conflict, NotFound))


# -- a tree ---------------------------------------------------------------------------------------


def _tree(inputs: QuotaInputs, planner: BatchPlanner) -> Plan:
    """Return the next writes of a tree: first its TenantResourceQuota, which batches are written ahead in."""
    tenant, found = inputs.tenant, inputs.tenant_quota
    name = tenant.metadata.name
    if found is None:
        if not planner.tree.keys:
            return Plan()  # nothing is limited
        again = (Read(resource=TenantResourceQuota.resource, name=name),)
        # A restored backup may bring one that no event has reported yet.
        create = request.create(new_tenant_quota(tenant))
        return Plan(writes=(DirectWrite(request=create, quiet=True, ignores=(AlreadyExists,), rereads=again),))
    owners = [owner.uid for owner in found.metadata.owner_references]
    if not owners:
        return Plan(writes=(_adoption(tenant, found),))
    if tenant.metadata.uid not in owners:
        message = f"TenantResourceQuota {name!r} belongs to an earlier tenant of that name; waiting until it is gone"
        return Plan(blocked=(Blocked(reason=reasons.OBJECT_EXISTS, message=message, passing=True),))
    return _batch(inputs, found, planner.steps(observed_tenant_quota(found)))


def _batch(inputs: QuotaInputs, tenant_quota: TenantResourceQuota, steps: Sequence[BatchStep]) -> Plan:
    """Return the writes that are safe now, and the reads without which the others would not be."""
    ours = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels(inputs.tenant).items())}
    match steps:
        case [RereadTenantQuota()]:
            return Plan(reads=(Read(resource=TenantResourceQuota.resource, name=inputs.tenant.metadata.name),))
        case [RelistTree()]:
            kinds = (Namespace, ResourceQuota)
            return Plan(reads=tuple(Read(resource=kind.resource, selectors=ours) for kind in kinds))
        case _:
            pass
    # A name may belong to a later namespace than the one that the batch means, a uid never does.
    unverified = {
        step.namespace
        for step in steps
        if isinstance(step, UpdateQuota) and step.grows and inputs.verified.get(step.quota.uid) != step.uid
    }
    reads = [Read(resource=Namespace.resource, name=namespace) for namespace in sorted(unverified)]
    if len(reads) >= MANY:
        reads = [Read(resource=Namespace.resource, selectors=ours)]
    writes = [
        _tenant_quota_write(tenant_quota, step)
        if isinstance(step, UpdateTenantQuota)
        else _quota_write(inputs, tenant_quota, step)
        for step in steps
        if not isinstance(step, RereadTenantQuota | RelistTree)
        and (isinstance(step, UpdateTenantQuota) or step.namespace not in unverified)
    ]
    return Plan(reads=tuple(reads), writes=tuple(writes))


def relists(found: Plan) -> bool:
    """Return whether a plan lists all objects of the tree, so that a new tree is to be built from them."""
    return any(read.resource == ResourceQuota.resource and not read.name for read in found.reads)


def _tenant_quota_write(found: TenantResourceQuota, step: UpdateTenantQuota) -> DirectWrite:
    written = written_ahead(found, step)
    asked = request.replace(written, subresource="status")
    # The links to peers wait for the records.
    quiet = written.status.clusters == found.status.clusters
    return DirectWrite(request=asked, quiet=quiet, ignores=(Conflict, NotFound), rereads=(_again(found),))


def _quota_write(
    inputs: QuotaInputs, tenant_quota: TenantResourceQuota, step: CreateQuota | UpdateQuota | EnforceQuota
) -> DirectWrite:
    then = None
    match step:
        case CreateQuota():
            asked = creation(inputs.tenant, step)
        case UpdateQuota():
            seen = inputs.lookup(ResourceQuota.resource, object_key(step.namespace, QUOTA))
            if isinstance(seen, ObservedQuota) and seen.is_scoped:
                # The API server never changes scopes: the next plan creates the ResourceQuota anew.
                return _deletion(seen)
            asked, then = update(inputs.tenant, step), _unenforced
        case EnforceQuota():
            asked = enforcement(step.namespace, step.quota)
    return DirectWrite(
        request=asked,
        quiet=True,
        # A ResourceQuota that lost its labels is there, although no cache shows it.
        once=isinstance(step, CreateQuota),
        ignores=(Conflict, NotFound),
        rereads=(*_place(inputs, step.namespace), _again(tenant_quota)),
        then=then,
    )


def _again(found: TenantResourceQuota) -> Read:
    """Return the read that shows whether another replica has written a batch since."""
    return Read(resource=found.resource, name=found.metadata.name, version=found.version)


def _place(inputs: QuotaInputs, namespace: str) -> tuple[Read, ...]:
    """Return the reads that show why a write in a namespace is refused."""
    places = ((Namespace.resource, "", namespace), (ResourceQuota.resource, namespace, QUOTA))
    seen = [inputs.lookup(resource, object_key(inside, name)) for resource, inside, name in places]
    return tuple(
        Read(resource=resource, namespace=inside, name=name, version=found.version if found is not None else 0)
        for (resource, inside, name), found in zip(places, seen, strict=True)
    )


def _unenforced(found: ObservedQuota) -> ApiRequest | None:
    """Return the request that enforces a share which was just written; None if it is enforced already."""
    quota = share_quota(found)
    return None if quota.is_enforced else enforcement(found.namespace, quota)


def _adoption(tenant: Tenant, found: TenantResourceQuota) -> DirectWrite:
    """Return the write that makes the tenant the owner of a TenantResourceQuota that another client created."""
    whole = msgspec.to_builtins(new_tenant_quota(tenant))["metadata"]
    body = {"metadata": {key: whole[key] for key in ("labels", "ownerReferences")}}
    body["metadata"]["resourceVersion"] = found.metadata.resource_version
    asked = request.patch(TenantResourceQuota.resource, "", tenant.metadata.name, body)
    return DirectWrite(request=asked, quiet=True, ignores=(Conflict, NotFound), rereads=(_again(found),))


def labels(tenant: Tenant) -> dict[str, str]:
    """Return the labels of a tenant's ResourceQuotas."""
    return {MANAGED_BY: MANAGER, TENANT: tenant.metadata.name}


def creation(tenant: Tenant, step: CreateQuota) -> ApiRequest:
    """Return the request that creates the ResourceQuota of a namespace."""
    meta = ObjectMeta(
        name=QUOTA,
        namespace=step.namespace,
        labels=labels(tenant),
        # Not final: a batch has yet to write the amounts.
        annotations={QUOTA_BATCH: mark(step.number, final=False)},
    )
    return request.create(ResourceQuota(metadata=meta, spec=ResourceQuotaSpec(hard=spelled(step.hard))))


def update(tenant: Tenant, step: UpdateQuota) -> ApiRequest:
    """Return the request that changes a share, at the resourceVersion that it was decided on."""
    # A merge patch removes a key only if it names it with null.
    gone = {key: None for key in step.quota.hard if key not in step.hard}
    patch: Json = {
        "metadata": {
            "resourceVersion": str(step.quota.version),
            "labels": labels(tenant),
            "annotations": {QUOTA_BATCH: mark(step.number, final=step.final)},
            **request.UNTRACKED,
        },
        "spec": {"hard": {**spelled(step.hard), **gone}},
    }
    return request.patch(ResourceQuota.resource, step.namespace, QUOTA, patch)


def enforcement(namespace: str, quota: ShareQuota) -> ApiRequest:
    """Return the request that copies the spec into the status, which Kubernetes' quota controller does later."""
    # Keys of an earlier spec, which the quota controller of Kubernetes has not removed yet.
    gone = {key: None for key in quota.in_force.keys() | quota.used.keys() if key not in quota.hard}
    status = {
        "hard": {**spelled(quota.hard), **{key: None for key in quota.in_force if key not in quota.hard}},
        "used": {key: None for key in gone if key in quota.used},
    }
    patch: Json = {"metadata": {"resourceVersion": str(quota.version)}, "status": status}
    return request.patch(ResourceQuota.resource, namespace, QUOTA, patch, subresource="status")


def written_ahead(tenant_quota: TenantResourceQuota, step: UpdateTenantQuota) -> TenantResourceQuota:
    """Return the TenantResourceQuota with a batch in its status."""
    targets = tuple(BatchTarget(namespace=a.namespace, uid=a.uid, hard=spelled(a.hard)) for a in step.targets)
    status = msgspec.structs.replace(
        tenant_quota.status,
        hard=spelled(step.hard or {}),
        batch=Batch(number=step.number, counted=step.hard is not None, targets=targets),
        clusters=tuple(_remote(each, tenant_quota) for each in step.remote),
    )
    return msgspec.structs.replace(tenant_quota, status=status)


def _remote(record: RemoteShare, before: TenantResourceQuota) -> RemoteShareStatus:
    same = (each for each in before.status.clusters if (each.namespace, each.peer) == record.key)
    old = next(same, RemoteShareStatus(peer=record.peer, namespace=record.namespace))
    held, given = spelled(record.held), spelled(record.given)
    return msgspec.structs.replace(old, number=record.number, held=held, given=given)


def new_tenant_quota(tenant: Tenant) -> TenantResourceQuota:
    """Return a tenant's TenantResourceQuota as it is created; Kubernetes deletes it with the tenant."""
    meta = tenant.metadata
    owner = OwnerReference(
        api_version=tenant.resource.api_version,
        kind=tenant.resource.kind,
        name=meta.name,
        uid=meta.uid,
        # The garbage collector deletes it with the tenant, also while the operator is down.
        controller=True,
    )
    return TenantResourceQuota(
        metadata=ObjectMeta(name=meta.name, labels=labels(tenant), owner_references=(owner,)),
        spec=TenantResourceQuotaSpec(),
    )

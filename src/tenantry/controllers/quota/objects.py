"""The Kubernetes objects of a tenant's tree as the division counts them: pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.marks import KIND, KIND_CORE, PARENT, PART, QUOTA_BATCH, SLICE, SUBNAMESPACE_UID, TENANT_UID
from tenantry.api.slice import ContributedQuota, Slice
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import RemoteShareStatus, ShareStatus, TenantResourceQuota
from tenantry.api.virtualcontrolplane import (
    PROCESS_FINALIZER,
    DatastoreKind,
    PlanePhase,
    PlaneResources,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
)
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.hosting import etcdserver
from tenantry.world import quota
from tenantry.world.shares.amounts import (
    Amounts,
    ObservedTenantQuota,
    RemoteShare,
    ShareQuota,
    ShareTarget,
    add,
    fits,
    higher,
    lower,
    read,
    read_mark,
    spelled,
)
from tenantry.world.shares.share import CLAIM, PLANE, ROOT, ShareRequest, TreeNamespace
from tenantry.world.shares.shortage import Shortage

ETCD_CHARGE = read(etcdserver.OWN_CHARGE)
"""What the etcd of a control plane with the datastore OwnEtcd takes of the quota, besides the processes."""


def tree_namespace(found: Observed, tenant: Tenant) -> TreeNamespace | None:
    """Return a namespace as a part of the tenant's tree, None if it is not one."""
    labels = found.labels
    if labels.get(TENANT_UID) != tenant.metadata.uid:
        return None
    if labels.get(KIND) == KIND_CORE or found.name == tenant.metadata.name:
        key, parent = ROOT, ""
        # Any client may have created a namespace of the tenant's name.
        if found.owner_uid != tenant.metadata.uid:
            return None
    else:
        key, parent = labels.get(SUBNAMESPACE_UID, ""), labels.get(PARENT, "")
        if not key or not parent:
            return None
    return TreeNamespace(
        name=found.name,
        uid=found.uid,
        key=key,
        parent=parent,
        terminating=found.deleting,
        slice=labels.get(SLICE) or labels.get(PART, ""),
    )


def share_quota(found: ObservedQuota) -> ShareQuota:
    """Return a ResourceQuota in numbers."""
    number, final = read_mark(found.annotations.get(QUOTA_BATCH, ""))
    return ShareQuota(
        uid=found.uid,
        version=found.version,
        hard=read(found.hard),
        in_force=read(found.in_force),
        used=read(found.used),
        number=number,
        final=final,
    )


def share_request(found: Subnamespace) -> ShareRequest:
    """Return the share that a Subnamespace requests."""
    meta = found.metadata
    hard: Amounts = {}
    problem = None
    try:
        hard = read(quota.normal(found.spec.quota.hard))
    except InputError as error:
        problem = Shortage(reasons.INVALID_SPEC, f"spec.quota.hard: {error}")
    return ShareRequest(
        uid=meta.uid,
        name=meta.name,
        parent=meta.namespace,
        created=meta.creation_timestamp,
        generation=meta.generation,
        hard=hard,
        deleting=bool(meta.deletion_timestamp),
        problem=problem,
        blind=found.spec.mode is Mode.SUBTENANT,
    )


def has_share(found: Slice) -> bool:
    """Return whether a claim's Slice is in the tree of shares: it is charged, or its nodes add something."""
    return bool(found.spec.charge) or _added(found) is not None


def _added(found: Slice) -> ContributedQuota | None:
    """Return what the contributed nodes of a slice may add now."""
    spec, status = found.spec.contributed, found.status.contributed
    # Both: the status bounds what ResourceQuotas have at any time, so it is written before they grow.
    if spec is UNSET or status is UNSET or (spec.namespace, spec.uid) != (status.namespace, status.uid):
        return None
    hard = spelled(lower(read(spec.hard), read(status.hard)))
    return ContributedQuota(namespace=spec.namespace, uid=spec.uid, hard={**hard})


def claim_request(found: Slice) -> ShareRequest:
    """Return the share of its tenant's quota that a claim of nodes holds, or will hold."""
    meta, claim, added = found.metadata, found.spec.claim, _added(found)
    return ShareRequest(
        uid=meta.uid,
        name=f"{CLAIM}{claim.name}",
        parent=claim.namespace,
        created=meta.creation_timestamp,
        generation=meta.generation,
        hard=read(found.spec.charge),
        slice=meta.name,
        charged=read(found.status.charged),
        added=read(added.hard) if added is not None else {},
        added_to=(added.namespace, added.uid) if added is not None else ("", ""),
    )


def is_charged(found: VirtualControlPlane) -> bool:
    """Return whether a control plane is in the tree of shares: it has a process, or waits for room to start one."""
    # Without a place for processes, the operator sets no finalizer, and nothing is charged.
    wants = PROCESS_FINALIZER in found.metadata.finalizers and found.status.phase is not PlanePhase.ASLEEP
    return bool(found.status.charged) or wants


def plane_charge(spec: VirtualControlPlaneSpec) -> Amounts:
    """Return what a control plane is charged with, by quota key: its processes, and an etcd of its own.

    Raises:
        InputError: One of the amounts is not a quantity.
    """
    each = _amounts(spec.resources)
    found = {key: amount * spec.replicas for key, amount in each.items()}
    if spec.datastore.kind is DatastoreKind.OWN_ETCD:
        add(found, ETCD_CHARGE)
    return found


def process_charge(found: VirtualControlPlane) -> Amounts:
    """Return what is charged for the processes of a control plane, by quota key: without an etcd of its own.

    An earlier version charged no etcd: what was charged is that of the processes, until the quota covers both.
    """
    charged = read(found.status.charged)
    if found.spec.datastore.kind is not DatastoreKind.OWN_ETCD:
        return charged
    least = dict(ETCD_CHARGE)
    try:
        each, whole = _amounts(found.spec.resources), plane_charge(found.spec)
    except InputError:
        return charged
    add(least, each)
    if charged != whole and (_is_multiple(charged, each) or not fits(least, charged)):
        return charged
    add(charged, ETCD_CHARGE, -1)
    return charged


def _is_multiple(charged: Amounts, each: Amounts) -> bool:
    """Return whether a charge is that of whole processes, and of nothing else."""
    counts = {charged.get(key, 0) / amount for key, amount in each.items() if amount}
    return charged.keys() == each.keys() and len(counts) == 1 and counts.pop().is_integer()


def _amounts(of: PlaneResources) -> Amounts:
    requests, limits = of.requests, of.limits
    return read({"requests.cpu": requests.cpu, "requests.memory": requests.memory, "limits.memory": limits.memory})


def plane_request(found: VirtualControlPlane) -> ShareRequest:
    """Return the share of its tenant's quota that a control plane holds, or will hold."""
    meta, charged = found.metadata, read(found.status.charged)
    hard, problem = charged, None
    try:
        # A process has what it was granted until its controller gives some of that back in the status.
        wanted = {} if found.status.phase is PlanePhase.ASLEEP else plane_charge(found.spec)
        hard = higher(wanted, charged)
    except InputError as error:
        problem = Shortage(reasons.INVALID_SPEC, f"spec.resources: {error}")
    return ShareRequest(
        uid=meta.uid,
        name=f"{PLANE}{meta.name}",
        parent=meta.namespace,
        created=meta.creation_timestamp,
        generation=meta.generation,
        round=found.status.wakes,
        hard=hard,
        deleting=bool(meta.deletion_timestamp),
        problem=problem,
        plane=found.key,
        charged=charged,
    )


def observed_tenant_quota(found: TenantResourceQuota) -> ObservedTenantQuota:
    """Return a TenantResourceQuota in numbers."""
    status = found.status
    return ObservedTenantQuota(
        version=found.version,
        # Before the first count, an empty status.hard does not mean that the tree may use nothing.
        hard=read(status.hard) if status.batch.counted else None,
        number=status.batch.number,
        targets=tuple(
            ShareTarget(namespace=target.namespace, uid=target.uid, hard=read(target.hard))
            for target in status.batch.targets
        ),
        remote=tuple(remote_share(each) for each in status.clusters),
        assigned=_assigned(status.tree),
    )


def remote_share(found: RemoteShareStatus) -> RemoteShare:
    """Return the record of what a peer holds, in numbers."""
    return RemoteShare(
        namespace=found.namespace,
        peer=found.peer,
        number=found.number,
        held=read(found.held),
        given=read(found.given),
    )


def record_of(found: TenantResourceQuota | None, namespace: str, peer: str) -> RemoteShare | None:
    """Return the record of what a peer holds for a namespace; None if it holds nothing."""
    records = found.status.clusters if found is not None else ()
    same = (each for each in records if (each.namespace, each.peer) == (namespace, peer))
    return next((remote_share(each) for each in same), None)


def _assigned(tree: Sequence[ShareStatus]) -> dict[str, Amounts]:
    """Return what each namespace has for itself: a row includes everything below its namespace."""
    found = {row.namespace: dict(read(row.assigned)) for row in tree}
    for row in tree:
        if row.parent in found:
            add(found[row.parent], read(row.assigned), -1)
    return found

"""What is known of one tenant's tree of shares, read from the caches once and kept up to date by changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import KIND, KIND_CORE, PARENT, PART, QUOTA_BATCH, SLICE, SUBNAMESPACE_UID, TENANT_UID
from tenantry.api.model import object_key
from tenantry.api.slice import Slice
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.watched import BY_BINDING, BY_NAMESPACE, BY_TENANT
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.world import quota
from tenantry.world.shares.amounts import Amounts, ObservedTenantQuota, ShareQuota, ShareTarget, read, read_mark
from tenantry.world.shares.batches import BatchPlanner
from tenantry.world.shares.division import Division
from tenantry.world.shares.share import CLAIM, ROOT, ShareRequest, TreeNamespace
from tenantry.world.shares.shortage import Shortage
from tenantry.world.shares.tree import Tree


class QuotaCaches(msgspec.Struct, frozen=True):
    """Where everything is read from."""

    tenants: Cache[Tenant]
    tenant_quotas: Cache[TenantResourceQuota]
    subnamespaces: Cache[Subnamespace]
    namespaces: Cache[Observed]
    quotas: Cache[Observed]
    slices: Cache[Slice]

    @classmethod
    def of(cls, cluster: Cluster) -> QuotaCaches:
        """Return the cluster's."""
        kinds = (Tenant, TenantResourceQuota, Subnamespace, Namespace, ResourceQuota, Slice)
        return cls(*(cluster.cache(kind.resource) for kind in kinds))


def tree_namespace(found: Observed, tenant: Tenant) -> TreeNamespace | None:
    """Return a namespace as a part of the tenant's tree, None where it is none."""
    labels = found.labels
    if labels.get(TENANT_UID) != tenant.metadata.uid:
        return None
    if labels.get(KIND) == KIND_CORE or found.name == tenant.metadata.name:
        key, parent = ROOT, ""
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
    """Return what a Subnamespace asks for."""
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


def claim_request(found: Slice) -> ShareRequest:
    """Return what a claim holds of its tenant's quota, or is to hold: with it goes its Slice."""
    meta, claim = found.metadata, found.spec.claim
    return ShareRequest(
        uid=meta.uid,
        name=f"{CLAIM}{claim.name}",
        parent=claim.namespace,
        created=meta.creation_timestamp,
        generation=meta.generation,
        hard=read(found.spec.charge),
        slice=meta.name,
        charged=read(found.status.charged),
    )


def observed_tenant_quota(found: TenantResourceQuota) -> ObservedTenantQuota:
    """Return a TenantResourceQuota in numbers."""
    status = found.status
    return ObservedTenantQuota(
        version=found.version,
        hard=read(status.hard) if status.batch.counted else None,
        number=status.batch.number,
        targets=tuple(
            ShareTarget(namespace=target.namespace, uid=target.uid, hard=read(target.hard))
            for target in status.batch.targets
        ),
    )


class Changes:
    """What has changed since it was last looked at, by key."""

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self.quotas: set[str] = set()
        self.subnamespaces: set[tuple[str, str]] = set()
        self.slices: set[tuple[str, str]] = set()


class Index:
    """The tree of one tenant.

    Args:
        tenant: Whose it is.
        whole: What it may use.
        caches: Where it is read from.
        tenant_quota: The batch under way.
        number: The batch as of which the caches are known to be in step; None for none.
        before: The index that this one replaces.
    """

    def __init__(
        self,
        tenant: Tenant,
        whole: Amounts,
        caches: QuotaCaches,
        *,
        tenant_quota: ObservedTenantQuota | None,
        number: int | None = None,
        before: Index | None = None,
    ) -> None:
        self.uid = tenant.metadata.uid
        self._tenant = tenant
        self._caches = caches
        self.changes = Changes()
        self.gone: set[str] = set()
        # ResourceQuotas by uid that were seen to be in the namespace of a uid.
        self.verified: dict[str, str] = {}
        self.tree = Tree(whole, reclaim=tenant.spec.quota.on_shortage == "Reclaim")
        self.planner = BatchPlanner(self.tree, number)
        name = tenant.metadata.name
        for found in caches.quotas.by_index(BY_TENANT, name):
            if found.name == QUOTA:
                self.tree.put_quota(found.namespace, share_quota(cast("ObservedQuota", found)))
        for found in caches.namespaces.by_index(BY_TENANT, name):
            self._put_namespace(found)
        Division(self.tree).start(
            tenant_quota.targets if tenant_quota is not None else (), before.tree if before is not None else None
        )

    def fits(self, tenant: Tenant, whole: Amounts) -> bool:
        """Tell whether the tree can follow what the tenant has become; otherwise it is made anew."""
        reclaim = tenant.spec.quota.on_shortage == "Reclaim"
        same = tenant.metadata.uid == self.uid and reclaim == self.tree.reclaim
        return same and self.tree.can_become(whole) and not self.tree.is_broken

    def follow(self) -> None:
        """Take in what has changed."""
        changes, self.changes = self.changes, Changes()
        for namespace in changes.quotas:
            self._read_quota(namespace)
        for namespace in changes.namespaces:
            self.read_namespace(namespace)
        for key, uid in changes.subnamespaces:
            found = self._caches.subnamespaces.get(key)
            if found is None or found.metadata.uid != uid:
                self.tree.drop_request(uid)
                if uid not in self.tree.shares:
                    self.gone.add(uid)
            if found is not None and self.tree.namespace(found.metadata.namespace) is not None:
                self.tree.put_request(share_request(found))
        self._follow_slices(changes.slices)
        for share in list(self.tree.pending):
            # Namespaces that we made ourselves are no news.
            for namespace in self._caches.namespaces.by_index(BY_BINDING, share.key):
                self._put_namespace(namespace)

    def _follow_slices(self, changed: Iterable[tuple[str, str]]) -> None:
        for name, uid in changed:
            found = self._caches.slices.get(name)
            if found is None or found.metadata.uid != uid:
                self.tree.drop_request(uid)
                self.gone.add(uid)
            if found is not None:
                self._put_slice(found)

    def _read_quota(self, namespace: str) -> None:
        found = self._caches.quotas.get(object_key(namespace, QUOTA))
        if found is None:
            self.tree.drop_quota(namespace)
        else:
            self.tree.put_quota(namespace, share_quota(cast("ObservedQuota", found)))

    def read_namespace(self, name: str) -> None:
        """Take in a namespace, its ResourceQuota, and the Subnamespaces inside."""
        found = self._caches.namespaces.get(name)
        if found is None or tree_namespace(found, self._tenant) is None:
            self.tree.drop_namespace(name)
        else:
            self._put_namespace(found)
        self._read_quota(name)

    def _put_namespace(self, found: Observed) -> None:
        namespace = tree_namespace(found, self._tenant)
        if namespace is None:
            return
        is_new = self.tree.namespace(namespace.name) is None
        self.tree.put_namespace(namespace)
        if is_new:
            self._read_quota(namespace.name)
            for child in self._caches.subnamespaces.by_index(BY_NAMESPACE, namespace.name):
                self.tree.put_request(share_request(child))
            for made in self._caches.slices.by_index(BY_TENANT, self._tenant.metadata.name):
                self._put_slice(made)

    def _put_slice(self, found: Slice) -> None:
        """Take in a claim's Slice, once the namespace of the claim is there; a Manual one is charged nothing."""
        is_ours = any(owner.uid == self.uid for owner in found.metadata.owner_references)
        if is_ours and found.spec.charge and self.tree.namespace(found.spec.claim.namespace) is not None:
            self.tree.put_request(claim_request(found))

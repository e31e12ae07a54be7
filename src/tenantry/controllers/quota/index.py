"""What is known of one tenant's tree of shares: read from the caches once, then kept up to date by changes.

A tree of 1,000 namespaces is not read again for each change: `follow` takes in only the objects that watches, or the
operator's own writes, have marked as changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Resource, object_key
from tenantry.api.offloading import NamespaceMap
from tenantry.api.peercluster import PeerCluster
from tenantry.api.slice import Slice
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.quota.objects import (
    claim_request,
    has_share,
    is_charged,
    plane_request,
    record_of,
    share_quota,
    share_request,
    tree_namespace,
)
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.watched import BY_BINDING, BY_NAMESPACE, BY_TENANT
from tenantry.engine.apply import Outcome
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.world.shares import remote
from tenantry.world.shares.amounts import Amounts, ObservedTenantQuota, read
from tenantry.world.shares.batches import BatchPlanner
from tenantry.world.shares.division import Division
from tenantry.world.shares.remote import RemoteKey
from tenantry.world.shares.tree import Tree


class QuotaCaches(msgspec.Struct, frozen=True):
    """The caches that a tree is read from."""

    tenants: Cache[Tenant]
    tenant_quotas: Cache[TenantResourceQuota]
    subnamespaces: Cache[Subnamespace]
    namespaces: Cache[Observed]
    quotas: Cache[Observed]
    slices: Cache[Slice]
    control_planes: Cache[VirtualControlPlane]
    maps: Cache[NamespaceMap]
    peers: Cache[PeerCluster]

    @classmethod
    def of(cls, cache: Callable[[Resource], Cache[Any]]) -> QuotaCaches:
        """Return the caches that a function returns for each kind."""
        kinds = (Tenant, TenantResourceQuota, Subnamespace, Namespace, ResourceQuota, Slice, VirtualControlPlane)
        return cls(*(cache(kind.resource) for kind in (*kinds, NamespaceMap, PeerCluster)))


class Changes:
    """The objects that have changed since the tree last took them in, by key."""

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self.quotas: set[str] = set()
        self.subnamespaces: set[tuple[str, str]] = set()
        self.slices: set[tuple[str, str]] = set()
        self.control_planes: set[tuple[str, str]] = set()
        self.remote: set[RemoteKey] = set()


class Index:
    """The tree of one tenant.

    Args:
        tenant: The tenant at its root.
        whole: The amounts to divide.
        caches: The caches that it is read from.
        tenant_quota: The TenantResourceQuota with the batch under way.
        number: The last batch that the caches are known to include; None for none.
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
        # The uid of the namespace that a ResourceQuota is in, by the ResourceQuota's uid: neither ever changes.
        self.verified: dict[str, str] = {}
        self.tree = Tree(whole, reclaim=tenant.spec.quota.on_shortage == "Reclaim")
        self.planner = BatchPlanner(self.tree, number)
        name = tenant.metadata.name
        for found in caches.quotas.by_index(BY_TENANT, name):
            if found.name == QUOTA:
                self.tree.put_quota(found.namespace, share_quota(cast("ObservedQuota", found)))
        for found in caches.namespaces.by_index(BY_TENANT, name):
            self._put_namespace(found)
        known = tenant_quota if tenant_quota is not None else ObservedTenantQuota(version=0)
        for each in known.remote:
            self._read_remote(each.key)
        remote.put_requests(self.tree, known.remote)
        Division(self.tree).start(known.targets, before.tree if before is not None else None, known.assigned)

    def fits(self, tenant: Tenant, whole: Amounts) -> bool:
        """Return whether the tree can take in the tenant as it is now; if not, a new tree is built."""
        reclaim = tenant.spec.quota.on_shortage == "Reclaim"
        same = tenant.metadata.uid == self.uid and reclaim == self.tree.reclaim
        return same and self.tree.can_become(whole) and not self.tree.is_broken

    def follow(self) -> None:
        """Take in the objects that have changed."""
        changes, self.changes = self.changes, Changes()
        for namespace in changes.quotas:
            self._read_quota(namespace)
        for namespace in changes.namespaces:
            self._read_namespace(namespace)
        for key, uid in changes.subnamespaces:
            found = self._caches.subnamespaces.get(key)
            if found is None or found.metadata.uid != uid:
                self.tree.drop_request(uid)
                # A share whose namespace still exists stays in the tree, and keeps its verdict.
                if uid not in self.tree.shares:
                    self.gone.add(uid)
            if found is not None and self.tree.namespace(found.metadata.namespace) is not None:
                self.tree.put_request(share_request(found))
        self._follow_slices(changes.slices)
        self._follow_control_planes(changes.control_planes)
        for key in changes.remote:
            self._read_remote(key)
        for share in list(self.tree.pending):
            # The operator's own writes cause no event, so the new namespace of a share is looked up.
            for namespace in self._caches.namespaces.by_index(BY_BINDING, share.key):
                self._put_namespace(namespace)

    def knows(self, uid: str, namespace: str, peer: str) -> bool:
        """Return whether a peer has a share of this tree, or a record of one."""
        found = self._caches.tenant_quotas.get(self._tenant.metadata.name)
        return uid in self.tree.shares or record_of(found, namespace, peer) is not None

    def divide(self) -> None:
        """Divide the amounts over the tree as it is."""
        Division(self.tree).divide()

    def wrote(self, plan: Plan, outcome: Outcome) -> None:
        """Record a plan that was carried out: own writes cause no event, but their responses are in the caches."""
        for write in plan.writes:
            if isinstance(write, DirectWrite) and write.request.resource == ResourceQuota.resource:
                self.changes.quotas.add(write.request.namespace)
        for write in outcome.written:
            body = write.request.body if isinstance(write, DirectWrite) else None
            if isinstance(body, TenantResourceQuota):
                self.planner.number = body.status.batch.number
        for found in outcome.found:
            if isinstance(found, Observed) and (quota := self.tree.quotas.get(found.name)) is not None:
                # The ResourceQuota was known before its namespace was read, and both are known by uid.
                self.verified[quota.uid] = found.uid

    def _follow_slices(self, changed: Iterable[tuple[str, str]]) -> None:
        for name, uid in changed:
            found = self._caches.slices.get(name)
            if found is None or found.metadata.uid != uid:
                self.tree.drop_request(uid)
                self.gone.add(uid)
            if found is not None:
                self._put_slice(found)

    def _follow_control_planes(self, changed: Iterable[tuple[str, str]]) -> None:
        for key, uid in changed:
            found = self._caches.control_planes.get(key)
            # One that sleeps has no share.
            if found is None or found.metadata.uid != uid or not is_charged(found):
                self.tree.drop_request(uid)
                self.gone.add(uid)
            if found is not None:
                self._put_control_plane(found)

    def _read_remote(self, key: RemoteKey) -> None:
        """Take in what a namespace should have at a peer, and what the peer has confirmed."""
        namespace, peer = key
        wishes, found = self.tree.remote, self._caches.maps.get(peer)
        desired = found.spec.desired.get(namespace) if found is not None else None
        confirmed = found.status.shares.get(namespace) if found is not None else None
        # An entry of another tenant is of the time before the namespace moved, or after.
        is_ours = desired is not None and desired.tenant in {"", self._tenant.metadata.name}
        wanted = read(desired.share) if desired is not None and is_ours and not desired.leaving else {}
        if any(wanted.values()):
            wishes.wanted[key] = wanted
        else:
            wishes.wanted.pop(key, None)
        lost = found.status.lost.get(namespace) if found is not None else None
        if lost is not None and lost.tenant == self._tenant.metadata.name and lost.holds:
            wishes.lost[key] = read(lost.hard)
        else:
            wishes.lost.pop(key, None)
        if confirmed is not None:
            wishes.confirmed[key] = confirmed.number
        else:
            wishes.confirmed.pop(key, None)
        if self._caches.peers.get(peer) is None:
            # To delete a PeerCluster is to give up the peer.
            wishes.given_up.add(peer)
        else:
            wishes.given_up.discard(peer)

    def _read_quota(self, namespace: str) -> None:
        found = self._caches.quotas.get(object_key(namespace, QUOTA))
        if found is None:
            self.tree.drop_quota(namespace)
        else:
            self.tree.put_quota(namespace, share_quota(cast("ObservedQuota", found)))

    def _read_namespace(self, name: str) -> None:
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
        # The tree has no place for what is in a namespace that it does not know: that is read now.
        is_new = self.tree.namespace(namespace.name) is None
        self.tree.put_namespace(namespace)
        if is_new:
            self._read_quota(namespace.name)
            for child in self._caches.subnamespaces.by_index(BY_NAMESPACE, namespace.name):
                self.tree.put_request(share_request(child))
            for made in self._caches.slices.by_index(BY_TENANT, self._tenant.metadata.name):
                self._put_slice(made)
            for plane in self._caches.control_planes.by_index(BY_NAMESPACE, namespace.name):
                self._put_control_plane(plane)
            for found_map in self._caches.maps:
                self._read_remote((namespace.name, found_map.metadata.name))

    def _put_slice(self, found: Slice) -> None:
        """Take in a claim's Slice, once the namespace of the claim is there; a Manual one is charged nothing."""
        is_ours = any(owner.uid == self.uid for owner in found.metadata.owner_references)
        # Also one that is charged nothing any more: the tree has its earlier charge.
        is_part = has_share(found) or found.metadata.uid in self.tree.shares
        if is_ours and is_part and self.tree.namespace(found.spec.claim.namespace) is not None:
            self.tree.put_request(claim_request(found))

    def _put_control_plane(self, found: VirtualControlPlane) -> None:
        """Take in a control plane, once its namespace is there."""
        if is_charged(found) and self.tree.namespace(found.metadata.namespace) is not None:
            self.tree.put_request(plane_request(found))

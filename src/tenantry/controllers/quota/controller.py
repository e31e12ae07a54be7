"""Divide every tenant's quota over its tree of namespaces: the glue between gather, plan, apply and status.

watches ─► Index (the tree) ─► gather ─► plan ─► apply ─► Index ─► … until the plan is empty ─► status, verdicts
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Conflict, InputError, NotFound, RetryableError
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import QUOTA_BATCH, TENANT
from tenantry.api.model import object_key
from tenantry.api.offloading import NamespaceMap
from tenantry.api.peercluster import PeerCluster
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.quota import changes, desired, notices, past, remotes, status
from tenantry.controllers.quota.effective import EffectiveQuota, effective_quota
from tenantry.controllers.quota.gather import gather
from tenantry.controllers.quota.index import Index, QuotaCaches
from tenantry.controllers.quota.objects import has_share, is_charged, observed_tenant_quota
from tenantry.controllers.quota.standing import obstacle
from tenantry.controllers.quota.verdicts import ShareVerdict, Verdicts
from tenantry.controllers.tenant.desired import QUOTA, core_quota
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.engine.tokenbucket import TokenBucket
from tenantry.world.shares import remote
from tenantry.world.shares.share import Share
from tenantry.world.shares.tree import Tree

ROUNDS = 200
"""How many plans one reconcile applies before other tenants have their turn."""

FAILED_ROUNDS = 8
"""How many plans in a row may meet refusals: more mean that another client writes the same objects."""

BURST = 6
"""How many reports are written at once, before one every few seconds."""

TOTALS_SECONDS = 2.0
"""How often the totals of a tenant are written, while they go on changing."""

VERDICT_SECONDS = 5.0
"""How often Subnamespaces get new totals, while these go on changing."""

QUOTA_SECONDS = 1.0
"""When to look again for a ResourceQuota that the tenant controller creates."""

CONFLICT_SECONDS = 0.1


class _Reports:
    """The shares whose totals have changed, and how often totals may be reported."""

    def __init__(self) -> None:
        self.totals = TokenBucket(TOTALS_SECONDS, burst=BURST)
        self.verdicts = TokenBucket(VERDICT_SECONDS, burst=BURST)
        self.waiting: set[Share] = set()


class QuotaController:
    """Divides quotas; the key is the tenant's name.

    Args:
        verdicts: Shared with the controllers of Subnamespaces, slices and control planes, which read them.
    """

    name = "quota"
    kind = TenantResourceQuota

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self._indexes: dict[str, Index] = {}
        self._reports: dict[str, _Reports] = {}
        # By tenant: uid, generation and number of ended adjustments that were looked at. Those of other clients stay.
        self._looked_at: dict[str, tuple[str, int, int]] = {}
        # None until the first reconcile, which reads everything that changed before it.
        self._caches: QuotaCaches | None = None

    # -- watches ----------------------------------------------------------------------------

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            watched.tenants(changes.by_spec),
            watched.tenant_quotas(watched.own_key),
            watched.subnamespaces(self._by_subnamespace),
            watched.slices(self._by_slice),
            watched.control_planes(self._by_control_plane),
            Watch(resource=NamespaceMap.resource, decode=watched.decoder(NamespaceMap), keys=self._by_map),
            Watch(resource=PeerCluster.resource, decode=watched.decoder(PeerCluster), keys=self._by_peer),
            watched.watch(Namespace.resource, self._by_namespace),
            watched.watch(ResourceQuota.resource, self._by_quota),
        ]

    def _by_subnamespace(self, change: Change[Subnamespace]) -> Iterable[str]:
        before, after = change.before, change.after
        if before is not None and after is not None and changes.same_to_us(before, after):
            return ()
        found: set[str] = set()
        for value in (before, after):
            tenant = self._tenant_of(value)
            if value is None or tenant is None:
                continue
            found.add(tenant)
            if tenant in self._indexes:
                self._indexes[tenant].changes.subnamespaces.add((value.key, value.metadata.uid))
        return found

    def _tenant_of(self, value: Subnamespace | VirtualControlPlane | None) -> str | None:
        """Return the tenant of an object that names none: the labels of its namespace do."""
        parent = self._caches.namespaces.get(value.metadata.namespace) if value and self._caches else None
        return parent.labels.get(TENANT) if parent is not None else None

    def _by_control_plane(self, change: Change[VirtualControlPlane]) -> Iterable[str]:
        before, after = change.before, change.after
        is_same = before is not None and after is not None and changes.same_to_us(before, after)
        if is_same and before is not None and after is not None:
            is_same = changes.charge(before) == changes.charge(after)
        if is_same:
            return ()
        found: set[str] = set()
        for value in (before, after):
            if value is None:
                continue
            # Also a tree that has its share: at the end, its finalizer is off, and its namespace may be gone.
            tenants = {name for name, index in self._indexes.items() if value.metadata.uid in index.tree.shares}
            tenant = self._tenant_of(value)
            if tenant is not None and is_charged(value):
                tenants.add(tenant)
            for name in tenants & self._indexes.keys():
                self._indexes[name].changes.control_planes.add((value.key, value.metadata.uid))
            found |= tenants
        return found

    def _by_slice(self, change: Change[Slice]) -> Iterable[str]:
        before, after = change.before, change.after
        is_same = before is not None and after is not None and changes.same_to_us(before, after)
        if is_same and before is not None and after is not None:
            is_same = before.status.contributed == after.status.contributed
        if is_same or not any(value is not None and has_share(value) for value in (before, after)):
            return ()
        found: set[str] = set()
        for value in (before, after):
            if value is not None:
                found.add(value.spec.tenant)
                if value.spec.tenant in self._indexes:
                    self._indexes[value.spec.tenant].changes.slices.add((value.key, value.metadata.uid))
        return found

    def _by_map(self, change: Change[NamespaceMap]) -> Iterable[str]:
        """Return the tenants of the namespaces whose share at a peer has changed, or was confirmed."""
        found: set[str] = set()
        for namespace, peer in remotes.changed(change):
            known = self._caches.namespaces.get(namespace) if self._caches is not None else None
            tenants, uid = (
                {known.labels.get(TENANT, "")} if known is not None else set[str](),
                remote.uid((namespace, peer)),
            )
            # Also a tree that has its share: its namespace may be gone.
            tenants |= {name for name, index in self._indexes.items() if index.knows(uid, namespace, peer)}
            for name in tenants & self._indexes.keys():
                self._indexes[name].changes.remote.add((namespace, peer))
            found |= tenants
        return found - {""}

    def _by_peer(self, change: Change[PeerCluster]) -> Iterable[str]:
        """Return the tenants of which a peer holds something, if it begins or ceases to answer, or is gone."""
        if (value := change.after or change.before) is None or remotes.silent_since(
            change.before
        ) == remotes.silent_since(change.after):
            return ()
        found: set[str] = set()
        for name, index in self._indexes.items():
            keys = {(each.parent, each.peer) for each in index.tree.claims if each.peer == value.metadata.name}
            index.changes.remote |= keys
            found |= {name} if keys else set()
        return found

    def _by_namespace(self, change: Change[Observed]) -> Iterable[str]:
        found: set[str] = set()
        for value in (change.before, change.after):
            tenant = value.labels.get(TENANT) if value is not None else None
            if value is not None and tenant in self._indexes:
                self._indexes[tenant].changes.namespaces.add(value.name)
                found.add(tenant)
        before, after = change.before, change.after
        # A namespace that was there before can be given to its tenant, as after a restore.
        if before is not None and after is not None and before.owner_uid != after.owner_uid:
            found.update(watched.tenant_of(after))
        return found

    def _by_quota(self, change: Change[Observed]) -> Iterable[str]:
        before, after = change.before, change.after
        found: set[str] = set()
        for value in (before, after):
            tenant = value.labels.get(TENANT) if value is not None else None
            if value is None or tenant is None or value.name != QUOTA:
                continue
            if tenant in self._indexes:
                self._indexes[tenant].changes.quotas.add(value.namespace)
                found.add(tenant)
            # Without a tree, only changes by other clients matter; the use changes with every pod.
            elif before is None or after is None or changes.differs(before, after):
                found.add(tenant)
        return found

    # -- one tenant -------------------------------------------------------------------------------

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the contract
        """Bring the shares of one tenant to what the specs request; return in how many seconds to look again.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        caches = self._caches = self._caches or QuotaCaches.of(cluster.cache)
        tenant = caches.tenants.get(key)
        if tenant is None:
            self._forget(key)
            self._verdicts.set_adding(key, frozenset())
            cluster.forget(self.name, key)
            return None
        core = caches.namespaces.get(key)
        if tenant.metadata.deletion_timestamp or core is None or core.owner_uid != tenant.metadata.uid:
            self._verdicts.set_adding(key, frozenset())
            return None  # there is nothing to divide yet, or no longer
        try:
            effective = effective_quota(tenant, caches.tenant_quotas.get(key), cluster.clock.now())
        except InputError:
            return None  # the tenant's own conditions report the error
        if not self._is_tree(tenant, caches):
            self._forget(key)
            return await self._keep(cluster, tenant, caches)
        before = obstacle(tenant, caches.tenant_quotas.get(key))
        try:
            return await self._divide(cluster, tenant, effective, caches)
        finally:
            # The Tenant's Ready reports it. Also after an error: the next reconcile starts from what is written now.
            if obstacle(tenant, caches.tenant_quotas.get(key)) != before:
                cluster.wake(Tenant, key)

    def _is_tree(self, tenant: Tenant, caches: QuotaCaches) -> bool:
        """Return whether the quota is divided over more than one namespace, or ever was."""
        name = tenant.metadata.name
        # A tenant that was divided once keeps its TenantResourceQuota, which bounds the sum of its shares.
        if name in self._indexes or caches.tenant_quotas.get(name) is not None:
            return True
        if any(has_share(found) for found in caches.slices.by_index(BY_TENANT, name)):
            return True
        # Every other namespace of a tenant makes a tree anyway.
        if any(is_charged(found) for found in caches.control_planes.by_index(BY_NAMESPACE, name)):
            return True
        if any(remotes.has_share(caches.maps, each.name) for each in caches.namespaces.by_index(BY_TENANT, name)):
            return True
        if caches.subnamespaces.count(BY_NAMESPACE, name) or caches.namespaces.count(BY_TENANT, name) > 1:
            return True
        # The mark of a batch without a TenantResourceQuota: that was deleted, and has to be created again.
        own = caches.quotas.get(object_key(name, QUOTA))
        return own is not None and QUOTA_BATCH in own.annotations

    def _forget(self, key: str) -> None:
        index = self._indexes.pop(key, None)
        self._reports.pop(key, None)
        self._looked_at.pop(key, None)
        for uid in index.tree.shares if index is not None else ():
            self._verdicts.drop(uid)

    def _index(
        self, tenant: Tenant, effective: EffectiveQuota, caches: QuotaCaches, *, anew: int | None = None
    ) -> Index:
        name = tenant.metadata.name
        index = self._indexes.get(name)
        if index is not None:
            index.follow()
        # Building a large tree takes far longer than taking in changes, so a tree is replaced only if it must be.
        if index is None or anew is not None or not index.fits(tenant, effective.hard):
            tenant_quota = caches.tenant_quotas.get(name)
            known = observed_tenant_quota(tenant_quota) if tenant_quota is not None else None
            index = Index(tenant, effective.hard, caches, tenant_quota=known, number=anew, before=index)
            index.follow()
            self._indexes[name] = index
            self._reports.setdefault(name, _Reports()).waiting = set()
        index.tree.set_hard(effective.hard)
        index.divide()
        return index

    async def _keep(self, cluster: Cluster, tenant: Tenant, caches: QuotaCaches) -> float | None:
        """Keep the ResourceQuota of a tenant's only namespace, at the cost of one write."""
        inputs = gather(tenant, caches)
        if inputs.quota is None:
            self._verdicts.set_adding(tenant.metadata.name, frozenset())
            return QUOTA_SECONDS if core_quota(tenant) is not None else None
        needed = desired.plan(inputs, cluster.writer.equivalent)
        if not needed.writes:
            self._verdicts.set_adding(tenant.metadata.name, frozenset())
        outcome = await cluster.writer.apply(needed)
        if isinstance(outcome.error, Conflict | NotFound):
            return CONFLICT_SECONDS  # another client wrote it; the watch brings it as it is now
        if outcome.error is not None:
            raise outcome.error
        if needed.writes and not outcome.written:
            # Another client deleted it first. The response has told the cache, so the watch's event wakes no reconcile.
            cluster.wake(Tenant, tenant.metadata.name)
        is_update = bool(outcome.written) and core_quota(tenant) is not None
        # After a change of the spec, the difference is the user's own.
        if is_update and tenant.status.observed_generation == tenant.metadata.generation:
            note = f"put back spec of ResourceQuota {QUOTA!r}"
            cluster.recorder.say(tenant, EventKind.NORMAL, reasons.CORRECTED, note)
        return None

    async def _divide(
        self, cluster: Cluster, tenant: Tenant, effective: EffectiveQuota, caches: QuotaCaches
    ) -> float | None:
        """Apply plans until one is empty, then report; return in how many seconds to look again.

        Raises:
            ApiError: A write failed; the queue tries again.
            RetryableError: Another client changes the same objects all the time.
        """
        name = tenant.metadata.name
        failed, anew = 0, None
        for _ in range(ROUNDS):
            index = self._index(tenant, effective, caches, anew=anew)
            inputs = gather(tenant, caches, index)
            needed = desired.plan(inputs, cluster.writer.equivalent)
            self._judge(cluster, index, name, caches)
            notices.announce_reclaims(cluster, index.tree, tenant, caches)
            if needed.blocked:
                for blocked in needed.blocked:
                    cluster.recorder.say(tenant, EventKind.WARNING, blocked.reason, blocked.message)
                return TOTALS_SECONDS
            if needed.is_empty:
                break
            # One plan at a time: what may grow depends on the responses to what shrinks.
            outcome = await cluster.writer.apply(needed)
            # Also after an error: other writes of the plan may have succeeded.
            index.wrote(needed, outcome)
            if outcome.error is not None:
                raise outcome.error
            was = inputs.tenant_quota
            anew = was.status.batch.number if was is not None and desired.relists(needed) else None
            is_done = not needed.reads and len(outcome.written) == len(needed.writes)
            failed = 0 if is_done else failed + 1
            if failed > FAILED_ROUNDS:
                raise RetryableError(f"another client also changes the shares of tenant {name!r}")
        else:
            return 0.0  # other tenants first
        again = await self._report(cluster, tenant, effective, caches)
        await self._remove_past(cluster, tenant, effective, caches)
        return min((seconds for seconds in (again, effective.next_seconds) if seconds is not None), default=None)

    async def _remove_past(
        self, cluster: Cluster, tenant: Tenant, effective: EffectiveQuota, caches: QuotaCaches
    ) -> None:
        """Remove the adjustments that have ended, once for each version of the spec.

        Raises:
            ApiError: The API server refused or failed; the queue tries again.
        """
        name = tenant.metadata.name
        tenant_quota = caches.tenant_quotas.get(name)
        if tenant_quota is None or not effective.past:
            self._looked_at.pop(name, None)
            return
        version = (tenant_quota.metadata.uid, tenant_quota.metadata.generation, len(effective.past))
        if self._looked_at.get(name) == version:
            return
        outcome = await cluster.writer.apply(past.plan(tenant_quota, effective.past))
        if outcome.error is not None:
            raise outcome.error
        self._looked_at[name] = version

    # -- reports ----------------------------------------------------------------------------------

    def _judge(self, cluster: Cluster, index: Index, name: str, caches: QuotaCaches) -> None:
        """Set the verdict of each share that has changed; reconcilers wait for totals only (see `_Reports`)."""
        tree = index.tree
        waiting = self._reports.setdefault(name, _Reports()).waiting
        stirred, tree.stirred = tree.stirred, set()
        for uid in index.gone:
            self._verdicts.drop(uid)
        index.gone = set()
        is_moving = _is_moving(index, caches.tenant_quotas.get(name)) and bool(tree.keys)
        self._note_adding(cluster, tree, name, settled=tree.has_yielded and not is_moving)
        for share in tree.claims:
            # A claim is in force only when all shares that shrink for it are.
            before, after = self._verdicts.get(share.key), status.verdict(tree, share)
            after = msgspec.structs.replace(after, in_force=after.in_force and not is_moving)
            if before is None or status.is_news(before, after):
                self._verdicts.set(share.key, after)
                notices.wake_claim(cluster, share)
        for share in stirred - tree.claims:
            if share.request is None or tree.parent_of(share) is None:
                waiting.discard(share)
                notices.wake_orphan(cluster, share, caches)
                continue
            before = self._verdicts.get(share.key)
            after = _verdict(tree, share)
            if before == after:
                continue
            if before is None or status.is_news(before, after):
                self._verdicts.set(share.key, after)
                waiting.discard(share)
                cluster.wake(Subnamespace, object_key(share.parent, share.request.name))
            else:
                waiting.add(share)

    def _note_adding(self, cluster: Cluster, tree: Tree, name: str, *, settled: bool) -> None:
        """Note which slices may have added to a ResourceQuota; one that does no more counts until that has shrunk."""
        before = self._verdicts.adding(name)
        now = frozenset(share.slice for share in tree.claims if share.request is not None and share.request.added)
        if not settled:
            now = None if before is None else now | before
        self._verdicts.set_adding(name, now)
        for slice_ in (before or frozenset()) - (now or frozenset()) if now is not None else ():
            cluster.wake(SliceClaim, slice_)

    async def _report(
        self, cluster: Cluster, tenant: Tenant, effective: EffectiveQuota, caches: QuotaCaches
    ) -> float | None:
        """Write the status, but totals not too often; return in how many seconds there is more to report."""
        name = tenant.metadata.name
        tenant_quota = caches.tenant_quotas.get(name)
        if tenant_quota is None:
            return None  # nothing is limited, and the verdicts are set
        index, reports, now = self._indexes[name], self._reports[name], cluster.clock.monotonic()
        again: list[float] = []
        if reports.waiting:
            left = reports.verdicts.left(now)
            if left > 0:
                again.append(left)
            else:
                reports.verdicts.take(now)
                self._report_totals(cluster, index, reports)
        moving = _is_moving(index, tenant_quota)
        at = rfc3339(cluster.clock.now())
        silent = remotes.silent(tenant_quota, caches.peers)
        written = status.compute(tenant_quota, index.tree, effective, moving=moving, silent=silent, now=at)
        if written != tenant_quota.status:
            left = reports.totals.left(now)
            # Conditions are written at once, because users wait for them; totals change with every pod.
            if left > 0 and written.conditions == tenant_quota.status.conditions:
                again.append(left)
            else:
                reports.totals.take(now)
                await cluster.writer.status(msgspec.structs.replace(tenant_quota, status=written))
        return min(again, default=None)

    def _report_totals(self, cluster: Cluster, index: Index, reports: _Reports) -> None:
        waiting, reports.waiting = reports.waiting, set()
        for share in waiting:
            if share.request is not None and index.tree.shares.get(share.key) is share:
                self._verdicts.set(share.key, _verdict(index.tree, share))
                cluster.wake(Subnamespace, object_key(share.parent, share.request.name))


def _verdict(tree: Tree, share: Share) -> ShareVerdict:
    """Return the verdict on a Subnamespace, and keep in the tree whether its share is in force."""
    found = status.verdict(tree, share)
    if tree.keys:
        share.was_in_force = found.in_force
    return found


def _is_moving(index: Index, found: TenantResourceQuota | None) -> bool:
    """Return whether a batch is under way, perhaps one that an earlier leader began."""
    if found is None:
        return True
    tenant_quota = observed_tenant_quota(found)
    return any(not index.planner.is_done(target, tenant_quota.number) for target in tenant_quota.targets)

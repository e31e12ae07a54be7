"""Divides every tenant's quota over its tree of namespaces: the glue between caches, the division, moves and status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api.errors import InputError, RetryableError
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import QUOTA_BATCH, SUBNAMESPACE, TENANT
from tenantry.api.model import object_key
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers import watched
from tenantry.controllers.quota import single, status
from tenantry.controllers.quota.effective import EffectiveQuota, effective_quota
from tenantry.controllers.quota.index import Index, QuotaCaches, observed_tenant_quota
from tenantry.controllers.quota.tokenbucket import TokenBucket
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.quota.writes import ResourceQuotaWriter
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.world.shares.amounts import ObservedTenantQuota
from tenantry.world.shares.batches import RelistTree, RereadTenantQuota
from tenantry.world.shares.division import Division
from tenantry.world.shares.share import Share

ROUNDS = 200
"""How many rounds of writes one reconcile makes before others have their turn."""

FAILED_ROUNDS = 8
TOTALS_SECONDS = 2.0
"""How often the totals of a tenant are written, while they go on changing."""

VERDICT_SECONDS = 5.0
"""How often Subnamespaces are told their totals, while they go on changing."""

_decode_tenant_quota = msgspec.json.Decoder(TenantResourceQuota)


class _Telling:
    """What there is to tell of a tenant, and how often it may be."""

    def __init__(self) -> None:
        self.totals = TokenBucket(TOTALS_SECONDS)
        self.verdicts = TokenBucket(VERDICT_SECONDS)
        self.waiting: set[Share] = set()


class QuotaController:
    """Divides quotas; the key is the tenant's name.

    Args:
        verdicts: Where the subnamespace controller reads what becomes of its children.
    """

    name = "quota"
    kind = TenantResourceQuota

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self._indexes: dict[str, Index] = {}
        self._tellings: dict[str, _Telling] = {}
        # Known from the first reconcile on; what changes before that is looked at then anyway.
        self._caches: QuotaCaches | None = None

    # -- what wakes it ----------------------------------------------------------------------------

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            watched.tenants(_by_spec),
            Watch(resource=TenantResourceQuota.resource, decode=_decode_tenant_quota.decode, keys=watched.own_key),
            watched.subnamespaces(self._by_subnamespace),
            watched.slices(self._by_slice),
            watched.watch(Namespace.resource, self._by_namespace),
            watched.watch(ResourceQuota.resource, self._by_quota),
        ]

    def _by_subnamespace(self, change: Change[Subnamespace]) -> Iterable[str]:
        before, after = change.before, change.after
        if before is not None and after is not None and _same_to_us(before, after):
            return ()
        found: set[str] = set()
        for value in (before, after):
            parent = self._caches.namespaces.get(value.metadata.namespace) if value and self._caches else None
            tenant = parent.labels.get(TENANT) if parent is not None else None
            if value is None or tenant is None:
                continue
            found.add(tenant)
            if tenant in self._indexes:
                self._indexes[tenant].changes.subnamespaces.add((value.key, value.metadata.uid))
        return found

    def _by_slice(self, change: Change[Slice]) -> Iterable[str]:
        before, after = change.before, change.after
        if before is not None and after is not None and _same_to_us(before, after):
            return ()
        found: set[str] = set()
        for value in (before, after):
            if value is not None and value.spec.charge:
                found.add(value.spec.tenant)
                if value.spec.tenant in self._indexes:
                    self._indexes[value.spec.tenant].changes.slices.add((value.key, value.metadata.uid))
        return found

    def _by_namespace(self, change: Change[Observed]) -> Iterable[str]:
        found: set[str] = set()
        for value in (change.before, change.after):
            tenant = value.labels.get(TENANT) if value is not None else None
            if value is not None and tenant in self._indexes:
                self._indexes[tenant].changes.namespaces.add(value.name)
                found.add(tenant)
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
            elif before is None or after is None or single.differs(before, after):
                found.add(tenant)
        return found

    # -- one tenant -------------------------------------------------------------------------------

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the contract
        """Bring the shares of one tenant to what the specs say; return in how many seconds to look again.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        caches = self._caches = self._caches or QuotaCaches.of(cluster)
        tenant = caches.tenants.get(key)
        if tenant is None:
            self._forget(key)
            cluster.forget(self.name, key)
            return None
        core = caches.namespaces.get(key)
        if tenant.metadata.deletion_timestamp or core is None or core.owner_uid != tenant.metadata.uid:
            return None  # there is nothing to divide yet, or no more
        try:
            effective = effective_quota(tenant, caches.tenant_quotas.get(key), cluster.clock.now())
        except InputError:
            return None  # the tenant's own conditions say what is wrong
        if not self._is_tree(tenant, caches):
            self._forget(key)
            return await single.keep(cluster, tenant)
        return await self._divide(cluster, tenant, effective, caches)

    def _is_tree(self, tenant: Tenant, caches: QuotaCaches) -> bool:
        """Tell whether there is more to divide over than one namespace, or ever was."""
        name = tenant.metadata.name
        if name in self._indexes or caches.tenant_quotas.get(name) is not None:
            return True
        if any(found.spec.charge for found in caches.slices.by_index(BY_TENANT, name)):
            return True
        if caches.subnamespaces.count(BY_NAMESPACE, name) or caches.namespaces.count(BY_TENANT, name) > 1:
            return True
        own = caches.quotas.get(object_key(name, QUOTA))
        return own is not None and QUOTA_BATCH in own.annotations

    def _forget(self, key: str) -> None:
        index = self._indexes.pop(key, None)
        self._tellings.pop(key, None)
        for uid in index.tree.shares if index is not None else ():
            self._verdicts.drop(uid)

    def _index(
        self, tenant: Tenant, effective: EffectiveQuota, caches: QuotaCaches, *, anew: int | None = None
    ) -> Index:
        name = tenant.metadata.name
        index = self._indexes.get(name)
        if index is not None:
            index.follow()
        if index is None or anew is not None or not index.fits(tenant, effective.hard):
            tenant_quota = caches.tenant_quotas.get(name)
            known = observed_tenant_quota(tenant_quota) if tenant_quota is not None else None
            index = Index(tenant, effective.hard, caches, tenant_quota=known, number=anew, before=index)
            index.follow()
            self._indexes[name] = index
            self._tellings.setdefault(name, _Telling()).waiting = set()
        index.tree.set_hard(effective.hard)
        return index

    async def _divide(
        self, cluster: Cluster, tenant: Tenant, effective: EffectiveQuota, caches: QuotaCaches
    ) -> float | None:
        name = tenant.metadata.name
        index = self._index(tenant, effective, caches)
        Division(index.tree).divide()
        self._judge(cluster, index, name)
        tenant_quota = caches.tenant_quotas.get(name)
        if tenant_quota is None and not effective.hard:
            return effective.next_seconds  # nothing is limited: the verdicts are all that there is to say
        writer = ResourceQuotaWriter(cluster, tenant, index)
        if tenant_quota is None:
            await writer.create_tenant_quota()
        elif not any(owner.uid == tenant.metadata.uid for owner in tenant_quota.metadata.owner_references):
            if tenant_quota.metadata.owner_references:
                return TOTALS_SECONDS  # an earlier tenant's, which goes with it
            await writer.adopt_tenant_quota(tenant_quota)
        is_quiet = await self._move(cluster, tenant, effective, caches)
        if not is_quiet:
            return 0.0
        again = await self._tell(cluster, tenant, effective, caches)
        return min((seconds for seconds in (again, effective.next_seconds) if seconds is not None), default=None)

    async def _move(self, cluster: Cluster, tenant: Tenant, effective: EffectiveQuota, caches: QuotaCaches) -> bool:
        """Carry out moves, `ROUNDS` times at most, and return whether none is left."""
        name = tenant.metadata.name
        index = self._index(tenant, effective, caches)
        failed = 0
        for _ in range(ROUNDS):
            index = self._index(tenant, effective, caches)
            found = caches.tenant_quotas.get(name)
            if found is None:
                raise RetryableError(f"TenantResourceQuota {name!r} is gone", after_seconds=0.1)
            tenant_quota: ObservedTenantQuota = observed_tenant_quota(found)
            steps = index.planner.steps(tenant_quota)
            self._judge(cluster, index, name)
            if not steps:
                return True
            writer = ResourceQuotaWriter(cluster, tenant, index)
            match steps[0]:
                case RereadTenantQuota():
                    await writer.reread()
                    failed += 1
                case RelistTree(number):
                    await writer.reload()
                    self._index(tenant, effective, caches, anew=number)
                    failed += 1
                case _:
                    failed = failed + 1 if await writer.carry_out(steps) else 0
            if failed > FAILED_ROUNDS:
                raise RetryableError(f"the shares of tenant {name!r} are changed by another client, too")
        return False

    # -- telling ----------------------------------------------------------------------------------

    def _judge(self, cluster: Cluster, index: Index, name: str) -> None:
        """Give verdicts on everything that was looked at; what is blocked or in force is told at once."""
        tree = index.tree
        waiting = self._tellings.setdefault(name, _Telling()).waiting
        stirred, tree.stirred = tree.stirred, set()
        for uid in index.gone:
            self._verdicts.drop(uid)
        index.gone = set()
        is_moving = self._is_moving(index, name)
        for share in tree.claims:
            # Whether it is in force hangs on others, too.
            before, after = self._verdicts.get(share.key), status.verdict(tree, share)
            after = msgspec.structs.replace(after, in_force=after.in_force and not is_moving)
            if before is None or status.is_news(before, after):
                self._verdicts.set(share.key, after)
                cluster.wake(SliceClaim, share.slice)
        for share in stirred - tree.claims:
            if share.request is None or tree.parent_of(share) is None:
                waiting.discard(share)
                self._point_out(cluster, share)
                continue
            before = self._verdicts.get(share.key)
            after = status.verdict(tree, share)
            if before == after:
                continue
            if before is None or status.is_news(before, after):
                self._verdicts.set(share.key, after)
                waiting.discard(share)
                cluster.wake(Subnamespace, object_key(share.parent, share.request.name))
            else:
                waiting.add(share)

    def _is_moving(self, index: Index, name: str) -> bool:
        """Return whether moves are under way, perhaps those of an earlier leader."""
        found = self._caches.tenant_quotas.get(name) if self._caches is not None else None
        if found is None:
            return True
        tenant_quota = observed_tenant_quota(found)
        return any(not index.planner.is_done(target, tenant_quota.number) for target in tenant_quota.targets)

    def _point_out(self, cluster: Cluster, share: Share) -> None:
        """Reconcile a namespace whose Subnamespace is not there."""
        namespace = share.namespace
        found = (
            self._caches.namespaces.get(namespace.name) if namespace is not None and self._caches is not None else None
        )
        name = found.labels.get(SUBNAMESPACE) if found is not None and not found.deleting else None
        if name and share.request is None:
            cluster.wake(Subnamespace, object_key(share.parent, name))

    async def _tell(
        self, cluster: Cluster, tenant: Tenant, effective: EffectiveQuota, caches: QuotaCaches
    ) -> float | None:
        """Write the status, totals not too often; return in how many seconds there is more to tell."""
        name = tenant.metadata.name
        index, telling, now = self._indexes[name], self._tellings[name], cluster.clock.monotonic()
        again: list[float] = []
        if telling.waiting:
            left = telling.verdicts.left(now)
            if left > 0:
                again.append(left)
            else:
                telling.verdicts.take(now)
                self._tell_totals(cluster, index, telling)
        tenant_quota = caches.tenant_quotas.get(name)
        if tenant_quota is None:
            return 0.0
        moving = self._is_moving(index, name)
        at = rfc3339(cluster.clock.now())
        written = status.compute(tenant_quota, index.tree, effective, moving=moving, now=at)
        if written != tenant_quota.status:
            left = telling.totals.left(now)
            if left > 0 and written.conditions == tenant_quota.status.conditions:
                again.append(left)
            else:
                telling.totals.take(now)
                await cluster.writer.status(msgspec.structs.replace(tenant_quota, status=written))
        return min(again, default=None)

    def _tell_totals(self, cluster: Cluster, index: Index, telling: _Telling) -> None:
        waiting, telling.waiting = telling.waiting, set()
        for share in waiting:
            if share.request is not None and index.tree.shares.get(share.key) is share:
                self._verdicts.set(share.key, status.verdict(index.tree, share))
                cluster.wake(Subnamespace, object_key(share.parent, share.request.name))


def _by_spec(change: Change[Any]) -> Iterable[str]:
    before, after = change.before, change.after
    if before is not None and after is not None and _same_to_us(before, after):
        return ()
    return watched.own_key(change)


def _same_to_us(before: Any, after: Any) -> bool:  # noqa: ANN401 - any object with metadata
    one, other = before.metadata, after.metadata
    return (one.uid, one.generation, one.deletion_timestamp) == (other.uid, other.generation, other.deletion_timestamp)

"""Which writes bring the ResourceQuotas of a tree to where they should be: pure.

Invariant: for every key and at every resourceVersion, the ResourceQuotas of a tree sum up to no more than
`status.hard` of the TenantResourceQuota, whichever replica writes, and however late a write arrives. What contributed
nodes add to the ResourceQuota of one namespace is left out of that sum (`Tree.added`).

1. A batch is written ahead: the TenantResourceQuota's status says which namespaces get which amounts, before any
   ResourceQuota changes. The number of a batch is the resourceVersion that it was decided on. No other batch has that
   number, because only one PUT at a resourceVersion succeeds.
2. Every ResourceQuota that shrinks is written first. Those that grow follow when the smaller amounts are enforced.
3. Each write names the resourceVersion that it was decided on and leaves the number of the batch on the object. A write
   that arrives late finds that the object has changed, and fails.
4. The next batch begins when every object of the current one is written. If a namespace meanwhile uses what it was to
   give away, the batch cannot finish: the next batch writes every open object as it is now, so that no late write can
   finish the old batch.
5. A ResourceQuota is created with 0 of every key, which is safe however late, and grows only after the operator has
   checked that it is in the namespace that the batch means, not in a later one of the same name.
6. What peers hold is recorded in the same status (`remote`), and counts as a ResourceQuota does.
7. A replica that did not write the last batch reads the tree again before it begins another one, because its caches may
   be older than that batch.

Example, for one key: the tenant has 10, its only namespace `acme` holds 10, and `team-a` is to get 4.

    TenantResourceQuota 50   batch 50: acme 6, team-a 4        written ahead
    ResourceQuota acme       10 -> 6, marked "50"              shrinks first; the sum is 6
    ResourceQuota team-a     0 -> 4, marked "50"               grows when acme is enforced at 6; the sum is 10
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.world.shares import remote
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
)
from tenantry.world.shares.division import Division
from tenantry.world.shares.tree import Tree

MAX_TARGETS = 500


class RereadTenantQuota(msgspec.Struct, frozen=True):
    """GET the TenantResourceQuota: another replica has written a later batch."""


class RelistTree(msgspec.Struct, frozen=True):
    """LIST the namespaces and ResourceQuotas of the tree, and build a new tree from them."""

    number: int


class CreateQuota(msgspec.Struct, frozen=True):
    """POST a ResourceQuota with 0 of every key."""

    namespace: str
    hard: Amounts
    number: int


class UpdateQuota(msgspec.Struct, frozen=True):
    """Change the spec of a ResourceQuota at a resourceVersion.

    Args:
        namespace: Its namespace.
        uid: Of the namespace.
        quota: The ResourceQuota as it is.
        hard: The new `spec.hard`.
        number: Of the batch.
        final: The batch does not write it again.
        grows: The writer checks the uid of the namespace first.
    """

    namespace: str
    uid: str
    quota: ShareQuota
    hard: Amounts
    number: int
    final: bool
    grows: bool


class EnforceQuota(msgspec.Struct, frozen=True):
    """Write `status.hard` of a ResourceQuota at a resourceVersion, so that admission enforces its spec."""

    namespace: str
    quota: ShareQuota


class UpdateTenantQuota(msgspec.Struct, frozen=True, kw_only=True):
    """PUT the status of the TenantResourceQuota at a resourceVersion.

    Args:
        tenant_quota: As it was observed; the write names its resourceVersion.
        hard: What the whole tree may use now; None while that is not known.
        number: Of the batch.
        targets: Of the batch.
        remote: The records of what peers hold.
    """

    tenant_quota: ObservedTenantQuota
    hard: Amounts | None
    number: int
    targets: tuple[ShareTarget, ...]
    remote: tuple[RemoteShare, ...]


BatchStep = RereadTenantQuota | RelistTree | CreateQuota | UpdateQuota | EnforceQuota | UpdateTenantQuota


class BatchPlanner:
    """Decides the next writes for one tree.

    Args:
        tree: What was observed.
        number: The last batch that the tree is known to include: read with it, or written from it; None for none. The
            caller sets it when its write of a batch succeeds.
    """

    def __init__(self, tree: Tree, number: int | None = None) -> None:
        self.tree = tree
        self.number = number
        self._division = Division(tree)
        # ResourceQuotas of a lower batch may still be written by a replica that knew an earlier `status.hard`.
        self._fence: int | None = None

    def steps(self, tenant_quota: ObservedTenantQuota) -> Sequence[BatchStep]:
        """Return the steps that can be taken now, in any order; [] if nothing is to be done but wait.

        Args:
            tenant_quota: The TenantResourceQuota as it was last observed.
        """
        tree = self.tree
        remote.put_requests(tree, tenant_quota.remote)
        self._division.divide()
        # A batch of this version of the TenantResourceQuota or a later one has at least its number.
        if tree.newest >= tenant_quota.version:
            return [RereadTenantQuota()]
        if tree.bare and tree.keys:
            nothing = dict.fromkeys(tree.keys, 0)
            return [CreateQuota(namespace, nothing, self._newest(tenant_quota)) for namespace in sorted(tree.bare)]
        open_targets = [target for target in tenant_quota.targets if not self.is_done(target, tenant_quota.number)]
        if self.number != tenant_quota.number and (open_targets or self._has_work(tenant_quota)):
            return [RelistTree(tenant_quota.number)]
        if open_targets:
            return self._go_on(tenant_quota, open_targets)
        return self._take_stock(tenant_quota) if tenant_quota.hard is None else self._next(tenant_quota)

    def _newest(self, tenant_quota: ObservedTenantQuota) -> int:
        """Return the number for new ResourceQuotas: later than the number of any write still under way.

        While `status.hard` is not known, no batch has the number just below the TenantResourceQuota's version.
        """
        return tenant_quota.version - 1 if tenant_quota.hard is None else tenant_quota.number

    def _next(self, tenant_quota: ObservedTenantQuota) -> Sequence[BatchStep]:
        tree = self.tree
        steps: list[BatchStep] = [
            EnforceQuota(namespace, tree.quotas[namespace]) for namespace in sorted(tree.unenforced)
        ]
        begin = self._record(tenant_quota) or self._begin(tenant_quota)
        if begin is not None:
            steps.append(begin)
        elif not steps and tenant_quota.hard != (hard := self._whole(tenant_quota)):
            steps.append(_update(tenant_quota, hard=hard))
        return steps

    def _has_work(self, tenant_quota: ObservedTenantQuota) -> bool:
        return (
            bool(self.tree.differing)
            or tenant_quota.hard is None
            or tenant_quota.hard != self._whole(tenant_quota)
            or self._record(tenant_quota) is not None
        )

    def _whole(self, tenant_quota: ObservedTenantQuota) -> Amounts:
        """Return `status.hard` between batches: the tenant's quota, or what is held if that is more."""
        tree, held = self.tree, self._held(tenant_quota)
        return {key: max(tree.root.granted[key], held[key]) for key in tree.keys}

    def _held(self, tenant_quota: ObservedTenantQuota) -> Amounts:
        """Return what all ResourceQuotas and all peers hold."""
        tree, away = self.tree, remote.held(tenant_quota.remote)
        return {key: tree.reach.get(key, 0) + away.get(key, 0) for key in tree.keys}

    def _record(self, tenant_quota: ObservedTenantQuota) -> UpdateTenantQuota | None:
        """Return the change of what is recorded for peers; None if all is as it should be, or waits for the tree."""
        known = {**self._held(tenant_quota), **(tenant_quota.hard or {})}
        limit = higher(known, self.tree.root.granted)
        records = remote.next_records(self.tree, tenant_quota.remote, version=tenant_quota.version, limit=limit)
        if tuple(records) == tenant_quota.remote:
            return None
        after = self._held(msgspec.structs.replace(tenant_quota, remote=tuple(records)))
        hard = {**known, **higher(known, after)}
        return msgspec.structs.replace(_update(tenant_quota, hard=hard), remote=tuple(records))

    # -- a batch under way ------------------------------------------------------------------------

    def is_done(self, target: ShareTarget, number: int) -> bool:
        """Return whether a batch has nothing left to write in a namespace."""
        found, quota = self.tree.namespace(target.namespace), self.tree.quotas.get(target.namespace)
        if found is None or found.uid != target.uid:
            return True  # the namespace is gone
        if quota is None:
            return found.terminating
        return quota.number == number and quota.final and quota.hard == target.hard

    def _go_on(self, tenant_quota: ObservedTenantQuota, open_targets: Sequence[ShareTarget]) -> Sequence[BatchStep]:
        """Shrink first; grow when the smaller amounts are enforced and nothing uses what is given away."""
        first: list[BatchStep] = []
        for target in tenant_quota.targets:
            quota = self.tree.quotas.get(target.namespace)
            if quota is None or not self._lives(target):
                continue
            low = lower(quota.hard, target.hard)
            done = self.is_done(target, tenant_quota.number)
            if not done and (low != quota.hard or low == target.hard):
                first.append(self._update(target, quota, low, tenant_quota.number, grows=False))
            elif self._must_be_enforced(quota, tenant_quota.number):
                first.append(EnforceQuota(target.namespace, quota))
        if first:
            return first
        if not all(self._is_still_wanted(target) for target in open_targets):
            return [self._freeze(tenant_quota, open_targets)]
        if not all(self._is_counted(target) for target in tenant_quota.targets):
            return []  # Kubernetes' quota controller has not computed the use yet
        return [
            self._update(target, quota, target.hard, tenant_quota.number, grows=True)
            for target in open_targets
            if (quota := self.tree.quotas.get(target.namespace)) is not None
        ]

    def _must_be_enforced(self, quota: ShareQuota, number: int) -> bool:
        """Return whether a share has shrunk and is not enforced; a share that grows is enforced with its last write."""
        return not quota.is_enforced and (quota.number == number or not fits(quota.in_force, quota.hard))

    def _lives(self, target: ShareTarget) -> bool:
        found = self.tree.namespace(target.namespace)
        return found is not None and found.uid == target.uid

    def _update(
        self, target: ShareTarget, quota: ShareQuota, hard: Amounts, number: int, *, grows: bool
    ) -> UpdateQuota:
        final = hard == target.hard
        return UpdateQuota(target.namespace, target.uid, quota, hard, number, final, grows)

    def _is_counted(self, target: ShareTarget) -> bool:
        """Return whether the use of a share that gives something away is known."""
        quota, share = self.tree.quotas.get(target.namespace), self.tree.at(target.namespace)
        if quota is None or share is None or not any(share.given.values()):
            return True
        return all(key in quota.used for key in quota.in_force)

    def _is_still_wanted(self, target: ShareTarget) -> bool:
        """Return whether the division still gives a namespace at least what the batch gives it."""
        share = self.tree.at(target.namespace)
        return share is not None and (
            fits(target.hard, share.own) or (share.namespace is not None and share.namespace.terminating)
        )

    def _freeze(self, tenant_quota: ObservedTenantQuota, open_targets: Sequence[ShareTarget]) -> UpdateTenantQuota:
        """Replace a batch that can no longer finish: its open objects are written again as they are."""
        frozen = [
            ShareTarget(namespace=target.namespace, uid=target.uid, hard=lower(quota.hard, target.hard))
            for target in open_targets
            if (quota := self.tree.quotas.get(target.namespace)) is not None
        ]
        return _update(tenant_quota, hard=tenant_quota.hard, targets=frozen)

    # -- the next batch ---------------------------------------------------------------------------

    def _begin(self, tenant_quota: ObservedTenantQuota) -> UpdateTenantQuota | None:
        """Return the next batch: everything that shrinks, and what grows within the amounts that this frees."""
        tree = self.tree
        reach = self._held(tenant_quota)
        # Namespaces may hold more of a key than the quota has, if the key is new in the quota.
        known = {**reach, **(tenant_quota.hard or {})}
        limit = higher(known, tree.root.granted)
        targets: list[ShareTarget] = []
        growing: list[ShareTarget] = []
        shrinking = [n for n in sorted(tree.differing) if self._shrinks(n)]
        is_complete = len(shrinking) <= MAX_TARGETS
        for namespace in shrinking[:MAX_TARGETS]:
            target = self._target(namespace)
            low = lower(tree.quotas[namespace].hard, target.hard)
            if low != target.hard:
                growing.append(target)
            else:
                targets.append(target)
            self._exchange(reach, namespace, tree.quotas[namespace].reach, low)
        if is_complete:
            growing += [self._target(n) for n in sorted(tree.differing - set(shrinking), key=self._by_depth)]
        for target in growing:
            quota = tree.quotas[target.namespace]
            low = lower(quota.hard, target.hard)
            after = dict(reach)
            before = low if self._shrinks(target.namespace) else quota.reach
            self._exchange(after, target.namespace, before, target.hard)
            if is_complete and len(targets) < MAX_TARGETS and fits(after, limit):
                reach = after
                targets.append(target)
            elif self._shrinks(target.namespace) and len(targets) < MAX_TARGETS:
                targets.append(msgspec.structs.replace(target, hard=low))
        if not targets:
            return None
        hard = {key: max(known.get(key, 0), reach.get(key, 0)) for key in tree.keys}
        return _update(tenant_quota, hard={**known, **hard}, targets=targets)

    def _by_depth(self, namespace: str) -> tuple[str, ...]:
        share = self.tree.at(namespace)
        return share.order if share is not None else ()

    def _target(self, namespace: str) -> ShareTarget:
        found, share = self.tree.namespace(namespace), self.tree.at(namespace)
        if found is None or share is None:
            raise KeyError(namespace)
        return ShareTarget(namespace=namespace, uid=found.uid, hard=dict(share.own))

    def _shrinks(self, namespace: str) -> bool:
        share, quota = self.tree.at(namespace), self.tree.quotas[namespace]
        return share is not None and not fits(quota.reach, share.own)

    def _exchange(self, reach: Amounts, namespace: str, before: Amounts, after: Amounts) -> None:
        for amounts, sign in ((before, -1), (after, 1)):
            counted = self.tree.without_added(namespace, amounts)
            add(reach, {key: counted.get(key, 0) for key in self.tree.keys}, sign)

    # -- a TenantResourceQuota that was just created, or lost its status ---------------------------

    def _take_stock(self, tenant_quota: ObservedTenantQuota) -> Sequence[BatchStep]:
        """Write every ResourceQuota as it is, which makes late writes fail; then `status.hard` is their sum."""
        tree = self.tree
        if self._fence is None:
            self._fence = tenant_quota.version - 1
        old = [
            ShareTarget(namespace=namespace, uid=found.uid, hard=dict(quota.hard))
            for namespace, quota in sorted(tree.quotas.items())
            if quota.number < self._fence and (found := tree.namespace(namespace)) is not None
        ]
        if old:
            return [_update(tenant_quota, hard=None, targets=old[:MAX_TARGETS])]
        hard = self._held(tenant_quota)
        return [msgspec.structs.replace(_update(tenant_quota, hard=hard), targets=())]


def _update(
    tenant_quota: ObservedTenantQuota, *, hard: Amounts | None, targets: Sequence[ShareTarget] | None = None
) -> UpdateTenantQuota:
    """Return the write of a batch of these targets; None for no other batch than the last one."""
    begins = targets is not None
    return UpdateTenantQuota(
        tenant_quota=tenant_quota,
        hard=hard,
        number=tenant_quota.version if begins else tenant_quota.number,
        targets=tuple(targets) if begins else tenant_quota.targets,
        remote=tenant_quota.remote,
    )

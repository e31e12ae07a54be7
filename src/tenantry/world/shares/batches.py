"""Which writes move the shares of a tree to where they should be: pure.

The sums over a tree are never more than the whole, at no resourceVersion, whoever writes beside us and however late:

1. What a batch will make of which namespace is written into the TenantResourceQuota before anything else. Its number is
   the resourceVersion that it was decided on: no other batch ever has it, since one PUT at a resourceVersion succeeds.
2. Everything that shrinks is written first. What grows is written when all of that is in force.
3. Every such write names the resourceVersion that it was decided on, and leaves the batch's number on the object: who
   comes late finds that the object has changed.
4. The next batch is begun when every object of this one has been written. If it cannot be finished, because a namespace
   came to use meanwhile what it was to give, the next batch writes every object that is open as it is now, so that
   nobody who is late can finish the old one.
5. A ResourceQuota is made with nothing in it, which is safe however late, and grows only once it is known to be in the
   very namespace that the batch means, not in a later one of its name.
6. Whoever did not write the last batch reads the tree anew before beginning another: caches may be older than it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.world.shares.amounts import (
    Amounts,
    ObservedTenantQuota,
    ShareQuota,
    ShareTarget,
    add,
    fits,
    higher,
    lower,
)
from tenantry.world.shares.tree import Tree

MAX_TARGETS = 500


class RereadTenantQuota(msgspec.Struct, frozen=True):
    """Read the TenantResourceQuota anew: somebody is ahead of us."""


class RelistTree(msgspec.Struct, frozen=True):
    """Read the namespaces and ResourceQuotas of the tree from the server, and begin with a new tree."""

    number: int


class CreateQuota(msgspec.Struct, frozen=True):
    """POST a ResourceQuota with nothing in it."""

    namespace: str
    hard: Amounts
    number: int


class UpdateQuota(msgspec.Struct, frozen=True):
    """Change the spec of a ResourceQuota at a resourceVersion.

    Args:
        namespace: Where it is.
        uid: The namespace's uid.
        quota: The ResourceQuota as it is.
        hard: What it becomes.
        number: The batch.
        final: The batch is done with it.
        grows: Make sure that it is in that very namespace.
    """

    namespace: str
    uid: str
    quota: ShareQuota
    hard: Amounts
    number: int
    final: bool
    grows: bool


class EnforceQuota(msgspec.Struct, frozen=True):
    """PUT the status of a ResourceQuota, so that its spec is in force: at a resourceVersion."""

    namespace: str
    quota: ShareQuota


class UpdateTenantQuota(msgspec.Struct, frozen=True, kw_only=True):
    """PUT the status of the TenantResourceQuota at a resourceVersion.

    Args:
        tenant_quota: What it was; its version is what the write names.
        hard: What the whole tree may use now; None while that is not known.
        number: The batch.
        targets: What it makes of which namespace.
    """

    tenant_quota: ObservedTenantQuota
    hard: Amounts | None
    number: int
    targets: tuple[ShareTarget, ...]


BatchStep = RereadTenantQuota | RelistTree | CreateQuota | UpdateQuota | EnforceQuota | UpdateTenantQuota


class BatchPlanner:
    """What one process knows of the batches of one tree.

    Args:
        tree: The division, with everything that was seen.
        number: The last batch as of which the tree was read, or that was written from it; None where there is none.
    """

    def __init__(self, tree: Tree, number: int | None = None) -> None:
        self.tree = tree
        self.number = number
        # While the whole is not known: ResourceQuotas with a lower batch may have been decided on before.
        self._fence: int | None = None

    def wrote(self, write: UpdateTenantQuota) -> None:
        """Take note that a write of the TenantResourceQuota succeeded."""
        self.number = write.number

    def steps(self, tenant_quota: ObservedTenantQuota) -> Sequence[BatchStep]:
        """Return the writes that may be made now, all at once; [] when there is nothing to do, or to wait for.

        Args:
            tenant_quota: The TenantResourceQuota as it is known.
        """
        tree = self.tree
        tree.plan()
        # A batch that was decided on what we know, or later, has a number of at least the version that we know.
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
        """Return the number for what is made now: later than whatever anybody may still be about to write.

        While the whole is not known, that is the last one before the TenantResourceQuota's version: no batch has it.
        """
        return tenant_quota.version - 1 if tenant_quota.hard is None else tenant_quota.number

    def _next(self, tenant_quota: ObservedTenantQuota) -> Sequence[BatchStep]:
        tree = self.tree
        steps: list[BatchStep] = [
            EnforceQuota(namespace, tree.quotas[namespace]) for namespace in sorted(tree.unenforced)
        ]
        begin = self._begin(tenant_quota)
        if begin is not None:
            steps.append(begin)
        elif not steps and tenant_quota.hard != (hard := self._whole()):
            steps.append(
                UpdateTenantQuota(
                    tenant_quota=tenant_quota, hard=hard, number=tenant_quota.number, targets=tenant_quota.targets
                )
            )
        return steps

    def _has_work(self, tenant_quota: ObservedTenantQuota) -> bool:
        return bool(self.tree.differing) or tenant_quota.hard is None or tenant_quota.hard != self._whole()

    def _whole(self) -> Amounts:
        """Return what the whole tree may use once nothing moves: its quota, or more while more is held."""
        tree = self.tree
        return {key: max(tree.root.granted[key], tree.reach.get(key, 0)) for key in tree.keys}

    # -- a batch under way ------------------------------------------------------------------------

    def is_done(self, target: ShareTarget, number: int) -> bool:
        """Tell whether a batch has nothing left to do in a namespace."""
        found, quota = self.tree.namespace(target.namespace), self.tree.quotas.get(target.namespace)
        if found is None or found.uid != target.uid:
            return True  # the namespace is gone
        if quota is None:
            return found.terminating
        return quota.number == number and quota.final and quota.hard == target.hard

    def _go_on(self, tenant_quota: ObservedTenantQuota, open_targets: Sequence[ShareTarget]) -> Sequence[BatchStep]:
        """Shrink first; grow when what shrank is in force and nobody uses what is given away."""
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
            return []  # what is in use is not known yet: Kubernetes' quota controller will say
        return [
            self._update(target, quota, target.hard, tenant_quota.number, grows=True)
            for target in open_targets
            if (quota := self.tree.quotas.get(target.namespace)) is not None
        ]

    def _must_be_enforced(self, quota: ShareQuota, number: int) -> bool:
        """Tell whether a share has shrunk without being in force: what has not shrunk may wait until it has grown."""
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
        """Tell whether it is known what is used of a share that gives something away."""
        quota, share = self.tree.quotas.get(target.namespace), self.tree.at(target.namespace)
        if quota is None or share is None or not any(share.given.values()):
            return True
        return all(key in quota.used for key in quota.in_force)

    def _is_still_wanted(self, target: ShareTarget) -> bool:
        """Tell whether the division still gives a namespace what the batch would."""
        share = self.tree.at(target.namespace)
        return share is not None and (
            fits(target.hard, share.own) or (share.namespace is not None and share.namespace.terminating)
        )

    def _freeze(self, tenant_quota: ObservedTenantQuota, open_targets: Sequence[ShareTarget]) -> UpdateTenantQuota:
        """End a batch that can no longer be finished: what is open stays as it is, and is written once more."""
        frozen = [
            ShareTarget(namespace=target.namespace, uid=target.uid, hard=lower(quota.hard, target.hard))
            for target in open_targets
            if (quota := self.tree.quotas.get(target.namespace)) is not None
        ]
        return UpdateTenantQuota(
            tenant_quota=tenant_quota, hard=tenant_quota.hard, number=tenant_quota.version, targets=tuple(frozen)
        )

    # -- the next batch ---------------------------------------------------------------------------

    def _begin(self, tenant_quota: ObservedTenantQuota) -> UpdateTenantQuota | None:
        """Return the next batch: what shrinks, and what then fits."""
        tree = self.tree
        reach = {key: tree.reach.get(key, 0) for key in tree.keys}
        # Of a key that the whole did not have until now, more may be left than it is to have.
        known = {**reach, **(tenant_quota.hard or {})}
        limit = higher(known, tree.root.granted)
        targets: list[ShareTarget] = []
        growing: list[ShareTarget] = []
        shrinking = [n for n in sorted(tree.differing) if self._shrinks(n)]
        all_of_them = len(shrinking) <= MAX_TARGETS
        for namespace in shrinking[:MAX_TARGETS]:
            target = self._target(namespace)
            low = lower(tree.quotas[namespace].hard, target.hard)
            if low != target.hard:
                growing.append(target)
            else:
                targets.append(target)
            self._exchange(reach, tree.quotas[namespace].reach, low)
        if all_of_them:
            growing += [self._target(n) for n in sorted(tree.differing - set(shrinking), key=self._by_depth)]
        for target in growing:
            quota = tree.quotas[target.namespace]
            low = lower(quota.hard, target.hard)
            after = dict(reach)
            self._exchange(after, low if self._shrinks(target.namespace) else quota.reach, target.hard)
            if all_of_them and len(targets) < MAX_TARGETS and fits(after, limit):
                reach = after
                targets.append(target)
            elif self._shrinks(target.namespace) and len(targets) < MAX_TARGETS:
                targets.append(msgspec.structs.replace(target, hard=low))
        if not targets:
            return None
        hard = {key: max(known.get(key, 0), reach.get(key, 0)) for key in tree.keys}
        return UpdateTenantQuota(
            tenant_quota=tenant_quota, hard={**known, **hard}, number=tenant_quota.version, targets=tuple(targets)
        )

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

    def _exchange(self, reach: Amounts, before: Amounts, after: Amounts) -> None:
        add(reach, {key: before.get(key, 0) for key in self.tree.keys}, -1)
        add(reach, {key: after.get(key, 0) for key in self.tree.keys})

    # -- where nothing is known -------------------------------------------------------------------

    def _take_stock(self, tenant_quota: ObservedTenantQuota) -> Sequence[BatchStep]:
        """Find out what is held: every ResourceQuota is written as it is, so that nobody who is late can change it."""
        tree = self.tree
        if self._fence is None:
            self._fence = tenant_quota.version - 1
        old = [
            ShareTarget(namespace=namespace, uid=found.uid, hard=dict(quota.hard))
            for namespace, quota in sorted(tree.quotas.items())
            if quota.number < self._fence and (found := tree.namespace(namespace)) is not None
        ]
        if old:
            return [
                UpdateTenantQuota(
                    tenant_quota=tenant_quota, hard=None, number=tenant_quota.version, targets=tuple(old[:MAX_TARGETS])
                )
            ]
        hard = {key: tree.reach.get(key, 0) for key in tree.keys}
        return [UpdateTenantQuota(tenant_quota=tenant_quota, hard=hard, number=tenant_quota.number, targets=())]

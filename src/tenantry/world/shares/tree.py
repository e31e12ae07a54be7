"""What was observed of one tenant's namespaces, claims and ResourceQuotas: pure.

The tree keeps the sums up to date and queues every share that a change concerns. `Division` empties the queues:

    an observation  ─►  Tree.put_…, drop_…  ─►  to_allocate, to_compute  ─►  Division  ─►  Share.own, `differing`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.world.shares import claims
from tenantry.world.shares import shortage as words
from tenantry.world.shares.amounts import Amounts, ShareQuota, add, beyond, fits, lower, total
from tenantry.world.shares.share import ROOT, RemoteWishes, Share, ShareQueue, ShareRequest, TreeNamespace


class Tree:
    """The namespaces, claims and ResourceQuotas of one tenant.

    Args:
        hard: The tenant's quota. Only its keys are divided.
        reclaim: Take back the shares of the youngest children if together they hold more than the quota.

    Attributes:
        shares: All shares by key.
        quotas: The ResourceQuotas by namespace.
        reach: The sum of all ResourceQuotas, without what is `added`.
        added: What contributed nodes add to ResourceQuotas, by namespace. It is no part of the tenant's quota, and no
            other namespace can get it.
        differing: Namespaces whose ResourceQuota is not as it should be.
        bare: Namespaces without a ResourceQuota.
        unenforced: Namespaces whose ResourceQuota Kubernetes does not enforce yet.
        stirred: Shares whose status may have changed.
        reclaimed: Children of the core namespace whose grants were taken back; the caller empties the list.
        newest: The latest batch that wrote any of the ResourceQuotas.
        pending: Shares whose namespace does not exist.
        claims: The shares of claims.
        remote: What namespaces should have at peers, and what peers confirm.
        is_broken: A namespace changed in a way that only a new tree can take in.
        to_allocate: Shares whose children are to be decided about, from the top down.
        to_compute: Shares whose own ResourceQuota is to be computed, from the bottom up.
    """

    def __init__(self, hard: Amounts, *, reclaim: bool = False) -> None:
        self.keys = tuple(sorted(hard))
        self.reclaim = reclaim
        self.quotas: dict[str, ShareQuota] = {}
        self.reach: Amounts = {}
        self.added: dict[str, Amounts] = {}
        self.differing: set[str] = set()
        self.bare: set[str] = set()
        self.unenforced: set[str] = set()
        self.stirred: set[Share] = set()
        self.reclaimed: list[Share] = []
        self.newest = 0
        self.pending: set[Share] = set()
        self.claims: set[Share] = set()
        self.remote = RemoteWishes()
        self.is_broken = False
        self.to_allocate = ShareQueue()
        self.to_compute = ShareQueue()
        self._at: dict[str, Share] = {}  # by the name of the namespace
        self._below: dict[str, dict[str, Share]] = {}  # the children by the name of the parent namespace
        self._adding: dict[str, set[Share]] = {}  # the claims that add to a namespace, by its name
        self.root = self._new_share(ROOT, "")
        self.root.granted = dict(hard)
        self.shares = {ROOT: self.root}

    def zero(self) -> Amounts:
        """Return an amount of 0 for every key."""
        return dict.fromkeys(self.keys, 0)

    def _new_share(self, key: str, parent: str) -> Share:
        zero = self.zero()
        return Share(key, parent, granted=zero, given=zero.copy(), reserved=zero.copy(), own=zero, overhang=zero.copy())

    # -- observations -----------------------------------------------------------------------------

    def can_become(self, hard: Amounts) -> bool:
        """Return whether the tree can take in a changed quota: a smaller one may not cover what was promised."""
        return tuple(sorted(hard)) == self.keys and fits(self.root.granted, hard)

    def set_hard(self, hard: Amounts) -> None:
        """Take in a larger quota with the same keys."""
        if hard != self.root.granted:
            self.root.granted = dict(hard)
            self.revisit(self.root)

    def put_request(self, request: ShareRequest) -> None:
        """Take in a Subnamespace or a claim."""
        share = self._share(request.uid, request.parent)
        if request.is_claim:
            if share.request != request:
                self._put_claim(share, request)
            return
        extra = [] if request.problem else [key for key in request.hard if key not in self.root.granted]
        problem = request.problem or (words.not_limited(extra) if extra and request.hard else None)
        unnamed = tuple(key for key in self.keys if key not in request.hard)
        known, hard = share.request, self._all_keys(request.hard)
        share.request = msgspec.structs.replace(request, hard=hard, unnamed=unnamed, problem=problem)
        if share.request == known:
            return
        # A share whose Subnamespace was not known keeps what it has; a key that the request no longer names does not.
        is_new = known is None and share.namespace is not None
        kept = claims.apart(self.parent_of(share), share, unnamed) if is_new else share.defaults
        share.defaults = {key: kept[key] for key in unnamed if kept.get(key, 0) > 0}
        self.unsettle(share)

    def _put_claim(self, share: Share, request: ShareRequest) -> None:
        share.slice, share.plane, share.peer = request.slice, request.plane, request.peer
        self.claims.add(share)
        self.pending.discard(share)
        hard, charged = self._all_keys(request.hard), self._all_keys(request.charged)
        before = share.request.added_to[0] if share.request is not None else ""
        added = {key: value for key, value in request.added.items() if key in self.root.granted and value > 0}
        share.request = msgspec.structs.replace(request, hard=hard, charged=charged, added=added)
        self._adding.get(before, set()).discard(share)
        if added:
            self._adding.setdefault(request.added_to[0], set()).add(share)
        for name in {before, request.added_to[0]}:
            self._sum_up_added(name)
        parent = self.parent_of(share)
        if parent is not None and share.is_charged:
            parent.claims.add(share)
            self.unsettle_children(parent)

    def _all_keys(self, amounts: Mapping[str, int]) -> Amounts:
        return {key: amounts.get(key, 0) for key in self.keys}

    def drop_request(self, uid: str) -> None:
        """Take in that a Subnamespace or a claim was deleted; its namespace may still exist."""
        share = self.shares.get(uid)
        if share is None or share is self.root:
            return
        share.request = None
        if share.namespace is None:
            self._remove(share)
        else:
            self.unsettle(share)

    def put_namespace(self, namespace: TreeNamespace) -> None:
        """Take in a namespace."""
        known = self._at.get(namespace.name)
        if known is not None and known.namespace is not None:
            if known.namespace == namespace:
                return
            if known.key != namespace.key or known.namespace.parent != namespace.parent:
                self.is_broken = True  # it was moved
                return
            if known.namespace.uid == namespace.uid:
                self._update_namespace(known, namespace, moved=known.namespace.slice != namespace.slice)
                return
            self.drop_namespace(namespace.name)
        share = self._share(namespace.key, namespace.parent)
        if share.namespace is not None:
            self.is_broken = True  # two namespaces are bound to one Subnamespace
            return
        parent = self.parent_of(share)
        if parent is not None:
            # The child has its namespace now: the promise becomes a grant.
            add(parent.reserved, share.granted, -1)
        share.namespace = namespace
        self.pending.discard(share)
        self._at[namespace.name] = share
        self._sum_up_added(namespace.name)
        children = self.children(share)
        share.given = {**self.zero(), **total(child.granted for child in children)}
        share.claims = {child for child in children if child.is_charged}
        promised = (child.granted for child in children if child.namespace is None and not child.is_claim)
        share.reserved = {**self.zero(), **total(promised)}
        share.unsettled = set(children)
        self._count_use(share, self.quotas.get(namespace.name), 1)
        self.unsettle(share)
        self.revisit(share)
        if parent is not None:
            self.recompute(parent)

    def _update_namespace(self, share: Share, namespace: TreeNamespace, *, moved: bool) -> None:
        share.namespace = namespace
        self.revisit(share)
        self.unsettle(share)
        if moved:  # its pods run on another slice: another claim is charged for them
            self.unsettle_children(share)
            if (parent := self.parent_of(share)) is not None:
                self.unsettle_children(parent)

    def drop_namespace(self, name: str) -> None:
        """Take in that a namespace is gone: its share goes back to its parent."""
        self.drop_quota(name)
        share = self._at.pop(name, None)
        self._sum_up_added(name)
        if share is None:
            return
        parent = self.parent_of(share)
        if parent is not None:
            self.set_overhang(parent, share, {})
            add(parent.given, share.granted, -1)
            self.revisit(parent)
        # The Subnamespace may still exist: its share is then pending again, with nothing granted.
        share.namespace, share.was_in_force, share.revoked, share.defaults = None, False, False, {}
        if share is not self.root:
            share.granted = self.zero()
            self.pending.add(share)
        self.compare(share, name, None)
        if share.request is None and share is not self.root:
            self._remove(share)
        else:
            self.unsettle(share)
            self.recompute(share)

    def put_quota(self, namespace: str, quota: ShareQuota) -> None:
        """Take in a ResourceQuota, unless a newer version of it is known."""
        known = self.quotas.get(namespace)
        if known is None or quota.version > known.version:
            self._exchange(namespace, known, quota)

    def drop_quota(self, namespace: str) -> None:
        """Take in that a ResourceQuota is gone."""
        known = self.quotas.get(namespace)
        if known is not None:
            self._exchange(namespace, known, None)

    def _exchange(self, namespace: str, before: ShareQuota | None, after: ShareQuota | None) -> None:
        share = self._at.get(namespace)
        if before is not None:
            add(self.reach, self.without_added(namespace, before.reach), -1)
            if share is not None:
                self._count_use(share, before, -1)
        if after is None:
            del self.quotas[namespace]
            if share is not None and before is not None:
                share.kept = self.without_added(namespace, before.hard)
        else:
            self.quotas[namespace] = after
            self.newest = max(self.newest, after.number)
            add(self.reach, self.without_added(namespace, after.reach))
        if share is None:
            return
        self._count_use(share, after, 1)
        self.recompute(share)
        # What the namespace no longer uses may be enough for a child that waits.
        waits = share.waiting or share.unsettled or share.lacking
        if waits and (before.used if before else {}) != (after.used if after else {}):
            self.allocate(share)
        self._note_spare(share, before.used if before else {}, after.used if after else {})

    def _note_spare(self, share: Share, before: Amounts, after: Amounts) -> None:
        """Queue what may take back more of a default, because a namespace uses less of it."""
        if not any(before.get(key, 0) > after.get(key, 0) for key in share.defaults):
            return
        above = self.parent_of(share)
        while share.defaults and above is not None:
            if above.waiting or above.blocked is not None:
                self.allocate(above)
            share, above = above, self.parent_of(above)

    def _count_use(self, share: Share, quota: ShareQuota | None, sign: int) -> None:
        """Add what a namespace uses to the totals of it and of everything above it."""
        if quota is None or not quota.used:
            return
        above: Share | None = share
        # Labels of namespaces can name each other as parents: a cycle must not loop forever.
        for _ in range(len(self.shares) + 1):
            if above is None:
                return
            add(above.used_below, quota.used, sign)
            self.stirred.add(above)
            above = self.parent_of(above)

    # -- what contributed nodes add ---------------------------------------------------------------

    def without_added(self, namespace: str, amounts: Amounts) -> Amounts:
        """Return amounts of a namespace without what contributed nodes add to it; at least 0 of each key."""
        added = self.added.get(namespace)
        return beyond(amounts, added) if added else amounts

    def charged_use(self, share: Share) -> Mapping[str, int]:
        """Return what the namespace of a share uses of its share: beyond what contributed nodes add."""
        used = self.used_in(share)
        return self.without_added(share.namespace.name, dict(used)) if share.namespace is not None else used

    def use_of_added(self, share: Share) -> Amounts:
        """Return what a share and everything below it use of what contributed nodes add."""
        found: Amounts = {}
        for name, added in self.added.items():
            user = above = self._at[name]
            for _ in range(len(self.shares) + 1):
                if above is share:
                    add(found, lower(added, self.used_in(user)))
                    break
                if (parent := self.parent_of(above)) is None:
                    break
                above = parent
        return found

    def _sum_up_added(self, name: str) -> None:
        """Compute anew what contributed nodes add to a namespace."""
        share = self._at.get(name)
        found = share.namespace if share is not None else None
        # A later namespace of the same name has another uid: nothing was checked about its pods.
        requests = [each.request for each in self._adding.get(name, ()) if each.request is not None]
        added = total(each.added for each in requests if found is not None and each.added_to == (name, found.uid))
        if added == self.added.get(name, {}):
            return
        quota = self.quotas.get(name)
        if quota is not None:
            add(self.reach, self.without_added(name, quota.reach), -1)
        if added:
            self.added[name] = added
        else:
            del self.added[name]
        if quota is not None:
            add(self.reach, self.without_added(name, quota.reach))
        if share is not None:
            self.revisit(share)

    # -- the tree ---------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Return the number of namespaces."""
        return len(self._at)

    @property
    def has_yielded(self) -> bool:
        """Return whether no ResourceQuota of the tree allows more than it should."""
        late = self.differing | self.unenforced
        return all(fits(self.quotas[name].reach, self._at[name].own) for name in late)

    def namespace(self, name: str) -> TreeNamespace | None:
        """Return a namespace of the tree."""
        share = self._at.get(name)
        return share.namespace if share is not None else None

    def at(self, namespace: str) -> Share | None:
        """Return the share of a namespace."""
        return self._at.get(namespace)

    def parent_of(self, share: Share) -> Share | None:
        """Return the parent; None for the root, and if the parent namespace is not known."""
        return self._at.get(share.parent) if share.parent else None

    def children_of(self, share: Share) -> list[Share]:
        """Return the children, the oldest first."""
        return sorted(self.children(share), key=lambda child: child.order)

    def children(self, share: Share) -> Sequence[Share]:
        """Return the children in any order."""
        return list(self._below.get(share.namespace.name, {}).values()) if share.namespace is not None else []

    def depth(self, share: Share) -> int:
        """Return the distance from the root."""
        depth, above = 0, self.parent_of(share)
        while above is not None and depth <= len(self.shares):
            depth, above = depth + 1, self.parent_of(above)
        return depth

    def used_in(self, share: Share) -> Mapping[str, int]:
        """Return what the namespace of a share uses itself."""
        quota = self.quotas.get(share.namespace.name) if share.namespace is not None else None
        return quota.used if quota is not None else {}

    def _share(self, key: str, parent: str) -> Share:
        share = self.shares.get(key)
        if share is None:
            share = self.shares[key] = self._new_share(key, parent)
            self.pending.add(share)
            self._below.setdefault(parent, {})[key] = share
        return share

    def _remove(self, share: Share) -> None:
        parent = self.parent_of(share)
        for name, adding in self._adding.items():
            if share in adding:
                adding.discard(share)
                self._sum_up_added(name)
        if parent is not None:
            self.grant(parent, share, self.zero())
            for group in (parent.unsettled, parent.waiting, parent.claims):
                group.discard(share)
            parent.set_lacking(share, ())
            self.revisit(parent)
            if share.is_claim:
                self.unsettle_children(parent)
        self._below[share.parent].pop(share.key, None)
        self.shares.pop(share.key, None)
        for group in (self.pending, self.stirred, self.claims):
            group.discard(share)

    # -- the queues -------------------------------------------------------------------------------

    def allocate(self, share: Share) -> None:
        """Queue a share, so that its children are decided about again."""
        self.to_allocate.add(share, self.depth(share))

    def recompute(self, share: Share) -> None:
        """Queue a share, so that its own ResourceQuota is computed again."""
        self.to_compute.add(share, -self.depth(share))

    def revisit(self, share: Share) -> None:
        """Queue a share for both."""
        self.allocate(share)
        self.recompute(share)

    def unsettle(self, share: Share) -> None:
        """Queue the parent of a share, so that the share is decided about again."""
        parent = self.parent_of(share)
        if parent is not None:
            parent.unsettled.add(share)
            self.allocate(parent)

    def unsettle_children(self, share: Share) -> None:
        """Queue all children: what one of them holds in place of a claim changes what the others get."""
        share.unsettled |= set(self.children(share))
        self.revisit(share)

    # -- results ----------------------------------------------------------------------------------

    def grant(self, parent: Share, child: Share, amounts: Amounts) -> None:
        """Set what a child has, and adjust the sums of its parent."""
        if amounts == child.granted:
            return
        promised = child.namespace is None and not child.is_claim
        for sums in (parent.given, parent.reserved) if promised else (parent.given,):
            add(sums, child.granted, -1)
            add(sums, amounts)
        child.granted = dict(amounts)
        self.recompute(parent)
        if child.namespace is not None:
            self.revisit(child)

    def set_overhang(self, parent: Share, child: Share, over: Amounts) -> None:
        """Set what a child uses beyond its share, and adjust the sum of its parent."""
        if over == child.over:
            return
        add(parent.overhang, child.over, -1)
        add(parent.overhang, over)
        child.over = over
        self.recompute(parent)
        if parent.waiting or parent.lacking:
            self.allocate(parent)

    def compare(self, share: Share, namespace: str, quota: ShareQuota | None) -> None:
        """Record how the ResourceQuota of a namespace differs from what it should be."""
        lives = share.namespace is not None and not share.namespace.terminating
        states = (
            (self.bare, quota is None),
            (self.differing, quota is not None and quota.hard != share.own),
            (self.unenforced, quota is not None and not quota.is_enforced),
        )
        for group, belongs in states:
            if lives and belongs:
                group.add(namespace)
            else:
                group.discard(namespace)

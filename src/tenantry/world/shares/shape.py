"""What is seen of a tenant's tree, and which parts of it are to be looked at again: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.world.shares import shortage as words
from tenantry.world.shares.amounts import Amounts, ShareQuota, add, fits, total
from tenantry.world.shares.share import ROOT, Marks, Share, ShareRequest, TreeNamespace, keep


class Shape:
    """The namespaces, claims and ResourceQuotas of one tenant.

    Args:
        whole: What the tenant may use: its keys are those that are divided.
        reclaim: Take back the shares of the youngest where they hold more than there is.
    """

    def __init__(self, whole: Amounts, *, reclaim: bool = False) -> None:
        self.keys = tuple(sorted(whole))
        self.reclaim = reclaim
        self.quotas: dict[str, ShareQuota] = {}
        self.reach: Amounts = {}  # the sum over all ResourceQuotas of the tree
        self.shares: dict[str, Share] = {}
        self.differing: set[str] = set()  # namespaces whose ResourceQuota is not as it should be
        self.bare: set[str] = set()  # namespaces without one
        self.unenforced: set[str] = set()  # namespaces whose ResourceQuota is not in force as it is
        self.stirred: set[Share] = set()  # nodes of which there may be something new to tell
        self.newest = 0  # the latest batch that wrote anything that was seen
        self.pending: set[Share] = set()  # nodes whose namespace is not there
        self.claims: set[Share] = set()
        self.is_broken = False  # something moved in a way that only a new tree can follow
        self._at: dict[str, Share] = {}
        self._below: dict[str, dict[str, Share]] = {}
        self._dirty = Marks()  # their children are to be looked at, from the top down
        self._touched = Marks()  # they themselves are, from the bottom up
        self.root = Share(ROOT, "", self._zero())
        self.root.granted = dict(whole)
        self.shares[ROOT] = self.root

    def _zero(self) -> Amounts:
        return dict.fromkeys(self.keys, 0)

    # -- what is seen -----------------------------------------------------------------------------

    def can_become(self, whole: Amounts) -> bool:
        """Tell whether the tree can follow a changed quota: of a smaller one, what is promised may be too much."""
        return tuple(sorted(whole)) == self.keys and fits(self.root.granted, whole)

    def set_whole(self, whole: Amounts) -> None:
        """Take in a larger quota with the same keys."""
        if whole != self.root.granted:
            self.root.granted = dict(whole)
            self._change(self.root)

    def put_request(self, request: ShareRequest) -> None:
        """Take in a Subnamespace."""
        share = self._share(request.uid, request.parent)
        if share.request == request:
            return
        if request.slice:
            self._put_claim(share, request)
            return
        extra = [] if request.problem else [key for key in request.hard if key not in self.root.granted]
        problem = request.problem or (words.not_limited(extra) if extra and request.hard else None)
        hard = {key: request.hard.get(key, 0) for key in self.keys}
        share.request = msgspec.structs.replace(request, hard=hard, problem=problem)
        self._unsettle(share)

    def _put_claim(self, share: Share, request: ShareRequest) -> None:
        share.slice = request.slice
        self.claims.add(share)
        self.pending.discard(share)
        hard, charged = ({key: each.get(key, 0) for key in self.keys} for each in (request.hard, request.charged))
        share.request = msgspec.structs.replace(request, hard=hard, charged=charged)
        parent = self.parent_of(share)
        if parent is not None:
            parent.claims.add(share)
            self._unsettle_all(parent)

    def drop_request(self, uid: str) -> None:
        """Take note that a Subnamespace or a claim is gone; its namespace may be there still."""
        share = self.shares.get(uid)
        if share is None or share is self.root:
            return
        share.request = None
        if share.namespace is None:
            self._remove(share)
        else:
            self._unsettle(share)

    def put_namespace(self, found: TreeNamespace) -> None:
        """Take in a namespace."""
        known = self._at.get(found.name)
        if known is not None and known.namespace is not None:
            if known.namespace == found:
                return
            if known.key != found.key or known.namespace.parent != found.parent:
                self.is_broken = True  # it was moved
                return
            if known.namespace.uid == found.uid:
                moved, known.namespace = known.namespace.slice != found.slice, found
                self._change(known)
                self._unsettle(known)
                if moved:
                    self._unsettle_all(known)
                    if (above := self.parent_of(known)) is not None:
                        self._unsettle_all(above)
                return
            self.drop_namespace(found.name)
        share = self._share(found.key, found.parent)
        if share.namespace is not None:
            self.is_broken = True  # two namespaces for one
            return
        parent = self.parent_of(share)
        if parent is not None:
            add(parent.reserved, share.granted, -1)
        share.namespace = found
        self.pending.discard(share)
        self._at[found.name] = share
        children = self._below.get(found.name, {})
        share.given = {**self._zero(), **total(child.granted for child in children.values())}
        share.claims = {child for child in children.values() if child.is_claim}
        promised = (c.granted for c in children.values() if c.namespace is None and not c.is_claim)
        share.reserved = {**self._zero(), **total(promised)}
        share.unsettled = set(children.values())
        self._account(share, self.quotas.get(found.name), 1)
        self._unsettle(share)
        self._change(share)
        if parent is not None:
            self._touch(parent)

    def drop_namespace(self, namespace: str) -> None:
        """Take note that a namespace is gone: what it had goes back to its parent."""
        self.drop_quota(namespace)
        share = self._at.pop(namespace, None)
        if share is None:
            return
        parent = self.parent_of(share)
        if parent is not None:
            self._overhang(parent, share, {})
            add(parent.given, share.granted, -1)
            self._change(parent)
        share.namespace, share.was_in_force, share.revoked = None, False, False
        if share is not self.root:
            share.granted = self._zero()
            self.pending.add(share)
        self._sort(share, namespace, None)
        if share.request is None and share is not self.root:
            self._remove(share)
        else:
            self._unsettle(share)
            self._touch(share)

    def put_quota(self, namespace: str, quota: ShareQuota) -> None:
        """Take in a ResourceQuota, as long as it is not older than what is known."""
        known = self.quotas.get(namespace)
        if known is not None and quota.version <= known.version:
            return
        self._exchange(namespace, known, quota)

    def drop_quota(self, namespace: str) -> None:
        """Take note that a ResourceQuota is gone."""
        known = self.quotas.get(namespace)
        if known is not None:
            self._exchange(namespace, known, None)

    def _exchange(self, namespace: str, before: ShareQuota | None, after: ShareQuota | None) -> None:
        share = self._at.get(namespace)
        if before is not None:
            add(self.reach, before.reach, -1)
            if share is not None:
                self._account(share, before, -1)
        if after is None:
            del self.quotas[namespace]
            if share is not None and before is not None:
                share.kept = before.hard
        else:
            self.quotas[namespace] = after
            self.newest = max(self.newest, after.number)
            add(self.reach, after.reach)
        if share is None:
            return
        if after is not None:
            self._account(share, after, 1)
        self._touch(share)
        if (share.waiting or share.unsettled) and (before.used if before else {}) != (after.used if after else {}):
            self._mark_dirty(share)

    def _account(self, share: Share, quota: ShareQuota | None, sign: int) -> None:
        """Count what a namespace uses into everything above it."""
        if quota is None or not quota.used:
            return
        above: Share | None = share
        for _ in range(len(self.shares) + 1):
            if above is None:
                return
            add(above.used_below, quota.used, sign)
            self.stirred.add(above)
            above = self.parent_of(above)

    # -- the shape --------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Return how many namespaces there are."""
        return len(self._at)

    @property
    def has_yielded(self) -> bool:
        """Tell whether no ResourceQuota of the tree allows more than it should."""
        late = self.differing | self.unenforced
        return all(fits(self.quotas[name].reach, self._at[name].own) for name in late)

    def namespace(self, namespace: str) -> TreeNamespace | None:
        """Return a namespace of the tree."""
        share = self._at.get(namespace)
        return share.namespace if share is not None else None

    def at(self, namespace: str) -> Share | None:
        """Return the node whose namespace this is."""
        return self._at.get(namespace)

    def parent_of(self, share: Share) -> Share | None:
        """Return the node above, None for the top and for what hangs loose."""
        return self._at.get(share.parent) if share.parent else None

    def children_of(self, share: Share) -> list[Share]:
        """Return the nodes below, oldest first."""
        return sorted(self._children(share), key=lambda child: child.order)

    def _children(self, share: Share) -> Sequence[Share]:
        return list(self._below.get(share.namespace.name, {}).values()) if share.namespace is not None else []

    def _share(self, key: str, parent: str) -> Share:
        share = self.shares.get(key)
        if share is None:
            share = self.shares[key] = Share(key, parent, self._zero())
            self.pending.add(share)
            self._below.setdefault(parent, {})[key] = share
        return share

    def _remove(self, share: Share) -> None:
        parent = self.parent_of(share)
        if parent is not None:
            self._grant(parent, share, self._zero())
            parent.unsettled.discard(share)
            parent.waiting.discard(share)
            parent.claims.discard(share)
            self._change(parent)
            if share.is_claim:
                self._unsettle_all(parent)
        self._below[share.parent].pop(share.key, None)
        self.shares.pop(share.key, None)
        self.pending.discard(share)
        self.stirred.discard(share)
        self.claims.discard(share)

    # -- what is to be looked at ------------------------------------------------------------------

    def _depth(self, share: Share) -> int:
        depth, above = 0, self.parent_of(share)
        while above is not None and depth <= len(self.shares):
            depth, above = depth + 1, self.parent_of(above)
        return depth

    def _mark_dirty(self, share: Share) -> None:
        self._dirty.add(share, self._depth(share))

    def _touch(self, share: Share) -> None:
        self._touched.add(share, -self._depth(share))

    def _change(self, share: Share) -> None:
        self._mark_dirty(share)
        self._touch(share)

    def _unsettle(self, share: Share) -> None:
        parent = self.parent_of(share)
        if parent is not None:
            parent.unsettled.add(share)
            self._mark_dirty(parent)

    def _unsettle_all(self, share: Share) -> None:
        """Have all children of a node decided about anew: what one holds in a claim's stead concerns the others."""
        share.unsettled |= set(self._children(share))
        self._change(share)

    def _used(self, share: Share) -> Mapping[str, int]:
        quota = self.quotas.get(share.namespace.name) if share.namespace is not None else None
        return quota.used if quota is not None else {}

    # -- what follows from a grant --------------------------------------------------------------------

    def _grant(self, parent: Share, child: Share, amounts: Amounts) -> None:
        if amounts == child.granted:
            return
        promised = child.namespace is None and not child.is_claim
        for whole in (parent.given, parent.reserved) if promised else (parent.given,):
            add(whole, child.granted, -1)
            add(whole, amounts)
        child.granted = dict(amounts)
        self._touch(parent)
        if child.namespace is not None:
            self._change(child)

    def _overhang(self, parent: Share, share: Share, over: Amounts) -> None:
        if over == share.over:
            return
        add(parent.overhang, share.over, -1)
        add(parent.overhang, over)
        share.over = over
        self._touch(parent)
        if parent.waiting:
            self._mark_dirty(parent)

    def _sort(self, share: Share, namespace: str, quota: ShareQuota | None) -> None:
        lives = share.namespace is not None and not share.namespace.terminating
        keep(self.bare, namespace, lives and quota is None)
        keep(self.differing, namespace, lives and quota is not None and quota.hard != share.own)
        keep(self.unenforced, namespace, lives and quota is not None and not quota.is_enforced)

"""Decides how a tenant's quota is divided over its tree of namespaces: pure.

Rules, applied from the top of the tree down:

1. A child gets what its Subnamespace requests: all of what it lacks or nothing of it, the oldest child first.
2. What a namespace has given to its children it does not use itself: its own ResourceQuota is the rest.
3. What a namespace uses beyond its share stays out of reach of its siblings until it is free.
4. A child without a namespace gets a promise: the amount is reserved, and nothing holds it yet.
5. Of a key that its Subnamespace does not name, a child gets a default when all requests are served, see `defaults`.
   What a default holds and nothing uses is taken back for a request, and when the parent gets less.
6. A claim of nodes is a child that is charged together with the namespaces that use it, see `claims`. A claim for a
   control plane is a child that has no users.
7. What contributed nodes add to one ResourceQuota is no part of what is divided: it comes last, on top.

Example: the Tenant `acme` has 10 CPUs. Its core namespace uses 2. The Subnamespaces request, oldest first,

    team-a 4, team-b 3, team-c 3          and team-a has the child team-a1 that requests 3

    namespace   granted   given to children   own ResourceQuota
    acme        10        7 = 4 + 3           3
    team-a       4        3                   1
    team-a1      3        0                   3
    team-b       3        0                   3
    team-c       0        0                   0       blocked: 3 requested, 1 available (10 - 7 - 2)

The own ResourceQuotas sum up to the 10 of the tenant. If team-b lowers its request to 1, 2 more are available, and
team-c gets its 3: own ResourceQuotas 2, 1, 3, 1, 3.

The tree queues what has changed. `divide` looks only at the queue, so the change of one namespace costs nothing for the
others, whatever the size of the tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenantry.api.wording import SHOWN
from tenantry.world.shares import claims, defaults
from tenantry.world.shares import shortage as words
from tenantry.world.shares.amounts import Amounts, ShareTarget, add, fits, lower, total
from tenantry.world.shares.share import Share
from tenantry.world.shares.tree import Tree


class Division:
    """Divides the quota of one tree; all state is in the tree.

    Args:
        tree: What was observed. Its shares get the results.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def start(
        self,
        targets: Sequence[ShareTarget],
        before: Tree | None = None,
        assigned: Mapping[str, Amounts] = {},
    ) -> None:
        """Derive the grants of a new tree from its ResourceQuotas, as the batch under way will leave them.

        Args:
            targets: Of the batch under way.
            before: The tree that this one replaces. It knows the last ResourceQuota of a namespace that lost its own.
            assigned: What each namespace had for itself when the status was last written, for one that lost its
                ResourceQuota while no tree was there to see it.
        """
        tree = self._tree
        after_batch = {
            target.namespace: target.hard
            for target in targets
            if (found := tree.namespace(target.namespace)) and found.uid == target.uid
        }
        held: dict[str, Amounts] = {}  # by key of the share, with everything below it
        for share in sorted(tree.shares.values(), key=tree.depth, reverse=True):
            parent = tree.parent_of(share)
            if share.is_claim and share.request is not None and parent is not None:
                held[share.key] = dict(share.request.charged)
                add(held.setdefault(parent.key, tree.zero()), share.request.charged)
            if share.namespace is None:
                continue
            hard = self._last_hard(share, after_batch, before, assigned)
            share.used_below = total([tree.used_in(share), *(child.used_below for child in tree.children(share))])
            have = held.setdefault(share.key, tree.zero())
            add(have, {key: hard.get(key, 0) for key in tree.keys})
            for claim in share.claims:
                # The users of a claim hold the claim's amounts in its place: count them once.
                users = [held.get(user.key, {}) for user in claims.users(tree.children(share), claim)]
                own = [hard] if claims.uses(share, claim) else []
                add(have, lower(held.get(claim.key, {}), {**tree.zero(), **total([*users, *own])}), -1)
            if parent is not None:
                add(held.setdefault(parent.key, tree.zero()), have)
        for share in tree.shares.values():
            if share is not tree.root:
                share.granted = tree.zero() if self._is_promise(share) else held.get(share.key, tree.zero())
        for share in tree.shares.values():
            # What claims have is known only now.
            share.defaults = claims.apart(tree.parent_of(share), share, share.request.unnamed) if share.request else {}
            share.given = {**tree.zero(), **total(child.granted for child in tree.children(share))}
            share.reserved = tree.zero()
            share.unsettled = set(tree.children(share))
            tree.revisit(share)

    def _last_hard(
        self,
        share: Share,
        after_batch: Mapping[str, Amounts],
        before: Tree | None,
        assigned: Mapping[str, Amounts],
    ) -> Amounts:
        """Return `spec.hard` of the ResourceQuota of a namespace, or its last known value.

        Kubernetes deletes the ResourceQuota of a terminating namespace while finalizers hold claims or pods in it. What
        these use is still a part of the tenant's quota, and only the status of the TenantResourceQuota knows how much
        that was after a restart of the operator. A status that leaves the namespace out has to be replaced by the
        request of its Subnamespace.
        """
        tree, namespace = self._tree, share.namespace
        if namespace is None:
            return {}
        quota = tree.quotas.get(namespace.name)
        hard = after_batch.get(namespace.name, quota.hard if quota is not None else {})
        old = before.shares.get(share.key) if before is not None and quota is None else None
        if old is not None and old.namespace is not None and old.namespace.uid == namespace.uid:
            return share.kept_as(old.kept)  # pods that this quota admitted may still run
        if quota is None and namespace.terminating and namespace.name not in after_batch:
            requested = share.request.hard if share.request is not None else {}
            return share.kept_as(assigned.get(namespace.name, requested))
        return tree.without_added(namespace.name, dict(hard))

    def divide(self) -> None:
        """Decide about every queued share; `differing` and `stirred` of the tree have the results.

        Raises:
            RuntimeError: The division oscillates, which is a bug.
        """
        tree = self._tree
        for _ in range(1000 + 100 * len(tree.shares)):
            share = tree.to_allocate.pop()
            if share is not None:
                if tree.shares.get(share.key) is share:
                    self._allocate(share)
                continue
            share = tree.to_compute.pop()
            if share is None:
                return
            if tree.shares.get(share.key) is share:
                self._compute_own(share)
        raise RuntimeError("the division of a quota does not come to rest")

    # -- the children of one namespace ------------------------------------------------------------

    def _allocate(self, share: Share) -> None:
        if share.namespace is None:
            return
        if share.revoked:
            self._revoke_below(share)
            return
        candidates = share.unsettled | share.waiting
        share.unsettled, share.waiting = set(), set()
        waiting = [child for child in sorted(candidates, key=lambda c: c.order) if not self._settle(share, child)]
        if share is self._tree.root:
            waiting = self._look_for_shortage(waiting)
        if not share.claims and self._make_room(share, total(self._need(share, child) for child in waiting)):
            # One by one, each might have to wait for what another gives up. Together they fit.
            for child in waiting:
                self._hand_over(share, child)
            waiting = []
        free = self._free(share)
        while waiting:
            known: dict[str, str] = {}
            before = dict(free)
            waiting = [child for child in waiting if not self._give(share, child, free, known)]
            if all(free[key] <= before[key] for key in self._tree.keys):
                break  # no child gave anything back: another round changes nothing
        self._give_defaults(share)
        if share.lasts and not fits(share.granted, self._wants(self._tree.parent_of(share), share)):
            self._tree.unsettle(share)  # its children held more than it requests, and may hold less now

    def _settle(self, share: Share, child: Share) -> bool:
        """Decide about a child that gets no more than it has; return False for a child that requests more."""
        request = child.request
        if request is None or request.deleting:
            child.blocked = None
            share.set_lacking(child, ())
        elif request.problem is not None:
            child.blocked = request.problem
            share.set_lacking(child, ())
        elif self._is_promise(child) or child.revoked or not fits(self._wants(share, child), child.granted):
            if self._is_promise(child):
                child.defaults = {}
                self._tree.grant(share, child, self._tree.zero())
            return False
        else:
            self._set(share, child, self._wants(share, child))
            share.set_lacking(child, self._lacks(child))
        if self._is_promise(child):
            self._tree.grant(share, child, self._tree.zero())
        self._tree.recompute(child)
        return True

    def _set(self, share: Share, child: Share, hard: Amounts) -> None:
        """Give a child what it requests, and the excess that its own children hold."""
        keys = self._tree.keys
        self._take_beyond(child, hard)
        placed = self._placed(child)
        self._tree.grant(share, child, {key: max(hard[key], placed[key]) for key in keys})
        lack = {key: placed[key] - hard[key] for key in keys if placed[key] > hard[key]}
        blind = child.request is not None and child.request.blind
        child.blocked = words.short(lack, hard, {} if blind else self._holders(child, lack)) if lack else None

    def _give(self, share: Share, child: Share, free: Amounts, known: dict[str, str]) -> bool:
        """Give a child all of what it lacks or nothing; return whether it got it.

        Args:
            share: The parent.
            child: The child.
            free: What the parent has left; updated.
            known: The largest holders by key, computed once for all children.
        """
        if child.request is None:
            return True
        keys = self._tree.keys
        need = self._need(share, child)
        lacks = [key for key in keys if need[key] > 0 and need[key] > free[key]]
        if lacks and self._make_room(share, {key: need[key] for key in lacks}):
            free.update(self._free(share))
            lacks = []
        if not lacks:
            self._hand_over(share, child)
            if share.claims:
                free.update(self._free(share))
            else:
                add(free, need, -1)
            return True
        share.waiting.add(child)
        # A namespace that cannot grow can still run what it has.
        share.set_lacking(child, self._lacks(child) if child.namespace is not None and not child.revoked else ())
        for key in lacks[:SHOWN]:
            if key not in known:
                known[key] = words.holders(key, ((c.name, c.granted) for c in self._tree.children(share)))
        spare = self._spare(share)
        available = {key: max(free[key], 0) + spare.get(key, 0) for key in lacks}
        child.blocked = words.insufficient([self._lacking(share, child, key, available, known) for key in lacks])
        self._tree.recompute(child)
        return False

    def _hand_over(self, share: Share, child: Share) -> None:
        """Give a child what it requests."""
        child.revoked = False
        if child.request is not None:
            self._set(share, child, self._wants(share, child))
            share.set_lacking(child, self._lacks(child))
        if self._is_promise(child):
            share.waiting.add(child)  # an older child may come before its namespace does
        self._tree.recompute(child)

    # -- keys that a child does not name ----------------------------------------------------------

    def _lacks(self, child: Share) -> list[str]:
        """Return the keys that a child does not name and has no default of, or no more than one pod needs."""
        if child.request is None or child.is_claim:
            return []
        return [key for key in child.request.unnamed if child.defaults.get(key, 0) <= defaults.LEAST.get(key, 0)]

    def _give_defaults(self, share: Share) -> None:
        """Give children a default of each key that they lack, as far as the parent has some free."""
        if not share.lacking:
            return
        free = self._free(share)
        changed: set[Share] = set()
        for key in [key for key in share.lacking if defaults.default(key, free[key]) > 0]:
            for child in sorted(share.lacking[key], key=lambda c: c.order):
                if self._wants(share, child)[key] != child.wanted[key]:
                    continue  # it has the nodes of a claim
                amount = defaults.default(key, free[key])
                if amount == 0:
                    break
                has = child.granted[key]
                if key in child.defaults and amount <= has:
                    continue
                child.defaults = {**child.defaults, key: max(has, amount)}
                free[key] -= child.defaults[key] - has
                self._tree.grant(share, child, {**child.granted, key: child.defaults[key]})
                changed.add(child)
        for child in changed:
            share.set_lacking(child, self._lacks(child))
            if fits(self._wants(share, child), child.granted):
                self._set(share, child, self._wants(share, child))
            self._tree.recompute(child)
        if any(claims.uses(child, claim) for child in changed for claim in share.claims):
            self._tree.unsettle_children(share)  # what one of them has, another one cannot have of the claim

    def _make_room(self, share: Share, need: Amounts) -> bool:
        """Take back what a namespace lacks to give some amounts; return False if that is impossible."""
        free = self._free(share)
        lack = _positive({key: value - free[key] for key, value in need.items() if value > 0 or free[key] < 0})
        if not lack:
            return True
        if not fits(lack, self._spare(share)):
            return False
        self._take_back(share, lack, {})
        return True

    def _take_beyond(self, share: Share, hard: Amounts) -> None:
        """Take back what the children of a namespace hold beyond its share and its own use, as far as possible."""
        free = self._free(share)
        lack = {key: share.granted[key] - hard[key] - free[key] - share.reserved[key] for key in self._tree.keys}
        if lack := _positive(lack):
            self._take_back(share, lack, {key: defaults.LEAST.get(key, 0) for key in lack})

    def _spare(self, share: Share) -> Amounts:
        """Return what the defaults of the children hold and nothing uses."""
        return total(self._spare_of(share, child) for child in self._tree.children(share) if child.defaults)

    def _spare_of(self, share: Share, child: Share) -> Amounts:
        terminating = child.namespace is not None and child.namespace.terminating
        if not child.defaults or not child.lasts or terminating or (child.request and child.request.problem):
            return {}
        free, below = self._free(child), self._spare(child)
        return {
            key: max(0, min(child.defaults[key], free[key] + below.get(key, 0)))
            for key in claims.apart(share, child, child.defaults)
        }

    def _take_back(self, share: Share, lack: Amounts, extra: Amounts) -> None:
        """Take back from the defaults of the children, the youngest first, and down to what one pod needs first.

        Args:
            share: The parent.
            lack: How much is lacking, by key.
            extra: What the parent should have beside it, as far as each child keeps what one pod needs.
        """
        rest: Amounts = {}
        add(rest, lack)
        add(rest, extra)
        down_to: tuple[Amounts, ...] = (defaults.LEAST, {})
        for least in down_to:
            for child in reversed(self._tree.children_of(share)):
                spare = self._spare_of(share, child)
                most = {key: min(value, child.defaults[key] - least.get(key, 0)) for key, value in spare.items()}
                if taken := _positive(lower(rest, most)):
                    self._take(share, child, taken)
                    add(rest, taken, -1)
            rest = {key: value - extra.get(key, 0) for key, value in rest.items()}

    def _take(self, share: Share, child: Share, taken: Amounts) -> None:
        free = self._free(child)
        if below := _positive({key: value - max(0, free[key]) for key, value in taken.items()}):
            self._take_back(child, below, {})
        child.defaults = _positive({key: value - taken.get(key, 0) for key, value in child.defaults.items()})
        self._tree.grant(share, child, {key: value - taken.get(key, 0) for key, value in child.granted.items()})
        share.set_lacking(child, self._lacks(child))
        self._tree.recompute(child)

    # -- amounts ----------------------------------------------------------------------------------

    def _is_promise(self, child: Share) -> bool:
        """Return whether nothing can hold what a child gets, because its namespace does not exist."""
        return child.namespace is None and not child.is_claim

    def _wants(self, parent: Share | None, child: Share) -> Amounts:
        return claims.wants(parent, child, self._tree.children(parent) if parent is not None and parent.claims else ())

    def _free(self, share: Share) -> Amounts:
        """Return what a namespace can still give to its children."""
        keys, used = self._tree.keys, self._tree.charged_use(share)
        free = {k: share.granted[k] - share.given[k] - used.get(k, 0) - share.overhang[k] for k in keys}
        if share.claims:
            children = self._tree.children(share)
            lent = claims.lent(share, children)
            add(free, {key: min(used.get(key, 0), value) for key, value in lent.items()})
            add(free, claims.credit(share, children))
        return free

    def _need(self, share: Share, child: Share) -> Amounts:
        """Return what a parent has to give to a child beyond what the child has; negative if it gets some back."""
        keys = self._tree.keys
        wanted, placed = self._wants(share, child), self._placed(child)
        need = {key: max(wanted[key], placed[key]) - child.granted[key] for key in keys}
        if not share.claims:
            return need
        # A claim and its users hold the same amounts, which are given once.
        children = self._tree.children(share)
        soon = {child.key: {key: child.granted[key] + need[key] for key in keys}}
        before, after = claims.credit(share, children), claims.credit(share, children, soon)
        return {key: need[key] - after.get(key, 0) + before.get(key, 0) for key in keys}

    def _placed(self, child: Share) -> Amounts:
        """Return what the children of a child hold; what a claim and its users both hold counts once."""
        twice = claims.credit(child, self._tree.children(child)) if child.claims else {}
        return {key: child.given[key] - child.reserved[key] - twice.get(key, 0) for key in self._tree.keys}

    def _lacking(self, share: Share, child: Share, key: str, available: Amounts, known: dict[str, str]) -> str:
        return words.lacking(
            key,
            requested=self._wants(share, child)[key],
            available=available[key] + child.granted[key],
            parent=share.namespace.name if share.namespace is not None else "",
            used=self._tree.charged_use(share).get(key, 0),
            held=known.get(key, ""),
        )

    def _holders(self, share: Share, keys: Mapping[str, int]) -> dict[str, str]:
        held = [(child.name, child.granted) for child in self._tree.children(share) if not self._is_promise(child)]
        return {key: words.holders(key, held) for key in keys}

    # -- a tenant's quota that no longer suffices -------------------------------------------------

    def _look_for_shortage(self, waiting: list[Share]) -> list[Share]:
        """Report what the tenant's quota lacks, or take it back from the youngest children (onShortage: Reclaim)."""
        tree, root = self._tree, self._tree.root
        self._take_beyond(root, root.granted)
        twice = claims.credit(root, tree.children(root)) if root.claims else {}
        lack = _positive({k: root.given[k] - root.reserved[k] - root.granted[k] - twice.get(k, 0) for k in tree.keys})
        if lack and tree.reclaim:
            for child in reversed(tree.children_of(root)):
                if child.namespace is None or not child.lasts or not any(child.granted[key] for key in lack):
                    continue
                lack = _positive({key: value - child.granted[key] for key, value in lack.items()})
                self._revoke(root, child)
                tree.reclaimed.append(child)
                waiting = [*waiting, child] if child not in waiting else waiting
                if not lack:
                    break
            waiting.sort(key=lambda child: child.order)
        root.blocked = words.short(lack, root.granted, self._holders(root, lack)) if lack else None
        return waiting

    def _revoke(self, share: Share, child: Share) -> None:
        """Take back everything from a child and from everything below it: what it gets next is for itself alone."""
        child.revoked = child.namespace is not None
        child.defaults = {}
        if child.namespace is not None:
            self._revoke_below(child)
        self._tree.grant(share, child, self._tree.zero())

    def _revoke_below(self, share: Share) -> None:
        for child in self._tree.children(share):
            self._revoke(share, child)
            share.waiting.add(child)
            if child.lasts:
                child.blocked = words.insufficient([f"namespace {share.parent!r} had to take back its quota"])
            self._tree.recompute(child)

    # -- the ResourceQuota of one namespace -------------------------------------------------------

    def _compute_own(self, share: Share) -> None:
        tree, namespace = self._tree, share.namespace
        tree.stirred.add(share)
        if namespace is None:
            share.own = tree.zero()
            return
        own = {k: share.granted[k] - share.given[k] + share.reserved[k] - share.overhang[k] for k in tree.keys}
        if share.claims:
            children = tree.children(share)
            add(own, claims.credit(share, children))
            own |= claims.lent(share, children)
        added = tree.added.get(namespace.name, {})
        share.own = {key: max(0, value) + added.get(key, 0) for key, value in own.items()}
        used = tree.used_in(share)
        over = {key: used[key] - share.own[key] for key in tree.keys if used.get(key, 0) > share.own[key]}
        parent = tree.parent_of(share)
        if parent is not None:
            tree.set_overhang(parent, share, over)
        share.over = over
        tree.compare(share, namespace.name, tree.quotas.get(namespace.name))


def _positive(amounts: Amounts) -> Amounts:
    return {key: value for key, value in amounts.items() if value > 0}

"""How a tenant's quota is divided over its tree: pure, and kept up to date by changes alone.

Every child gets what its Subnamespace asks for, all of it or nothing of what it lacks, oldest first; what a namespace
gives to its children it does not use itself. A claim of nodes is a child, too: see `shares_claims`. What is changed is
marked, and `plan` looks at what is marked: a change of one namespace costs nothing for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenantry.api.wording import SHOWN
from tenantry.world.shares import claims
from tenantry.world.shares import shortage as words
from tenantry.world.shares.amounts import Amounts, ShareTarget, add, fits, lower, total
from tenantry.world.shares.shape import Shape
from tenantry.world.shares.share import Share


class Tree(Shape):
    """The division of one tenant's quota; see `Shape`."""

    def start(self, targets: Sequence[ShareTarget], before: Tree | None = None) -> None:
        """Begin with what is held, as it will be when a batch that is under way is done.

        Args:
            targets: The batch.
            before: The tree that this one replaces: it knows what namespaces had whose ResourceQuota went first.
        """
        soon = {
            target.namespace: target.hard
            for target in targets
            if (found := self.namespace(target.namespace)) and found.uid == target.uid
        }
        below: dict[str, Amounts] = {}
        for share in sorted(self.shares.values(), key=self._depth, reverse=True):
            found, parent = share.namespace, self.parent_of(share)
            if share.is_claim and share.request is not None and parent is not None:
                below[share.key] = dict(share.request.charged)
                add(below.setdefault(parent.key, self._zero()), share.request.charged)
            if found is None:
                continue
            held = self.quotas.get(found.name)
            hard = soon.get(found.name, held.hard if held is not None else {})
            old = before.shares.get(share.key) if before is not None and held is None else None
            if old is not None and old.namespace is not None and old.namespace.uid == found.uid:
                hard = share.kept = old.kept  # what it ran may run still
            share.used_below = total([self._used(share), *(child.used_below for child in self._children(share))])
            have = below.setdefault(share.key, self._zero())
            add(have, {key: hard.get(key, 0) for key in self.keys})
            for claim in share.claims:
                # What its users hold they hold in its stead.
                users = [below.get(user.key, {}) for user in claims.users(self._children(share), claim)]
                own = [hard] if claims.uses(share, claim) else []
                add(have, lower(below.get(claim.key, {}), {**self._zero(), **total([*users, *own])}), -1)
            if parent is not None:
                add(below.setdefault(parent.key, self._zero()), have)
        for share in self.shares.values():
            if share is not self.root:
                is_there = share.namespace is not None or share.is_claim
                share.granted = below.get(share.key, self._zero()) if is_there else self._zero()
        for share in self.shares.values():
            share.given = {**self._zero(), **total(child.granted for child in self._children(share))}
            share.reserved = self._zero()
            share.unsettled = set(self._children(share))
            self._change(share)

    # -- deciding ---------------------------------------------------------------------------------

    def plan(self) -> None:
        """Decide about everything that is marked; `differing` and `stirred` say what came of it."""
        for _ in range(1000 + 100 * len(self.shares)):
            share = self._dirty.pop()
            if share is None:
                share = self._touched.pop()
                if share is None:
                    return
                if self.shares.get(share.key) is share:
                    self._compute_own(share)
            elif self.shares.get(share.key) is share:
                self._allocate(share)
        raise RuntimeError("the division of a quota does not come to rest")

    def _allocate(self, share: Share) -> None:
        if share.namespace is None:
            return
        if share.revoked:
            self._revoke_below(share)
            return
        candidates = share.unsettled | share.waiting
        share.unsettled, share.waiting = set(), set()
        waiting = [child for child in sorted(candidates, key=lambda c: c.order) if not self._settle(share, child)]
        if share is self.root:
            waiting = self._look_for_shortage(waiting)
        free = self._free(share)
        if not share.claims and fits(total(self._need(share, child) for child in waiting), free):
            for child in waiting:  # each may have to wait for what another gives up: together it fits
                self._hand_over(share, child)
            waiting = []
        while waiting:
            known: dict[str, str] = {}
            before = dict(free)
            waiting = [child for child in waiting if not self._give(share, child, free, known)]
            if all(free[key] <= before[key] for key in self.keys):
                break  # nobody gave anything back while getting something else: who waits waits on
        if share.lasts and not fits(share.granted, self._wants(self.parent_of(share), share)):
            self._unsettle(share)  # its children hold more than it asks for: they may hold less now

    def _settle(self, share: Share, child: Share) -> bool:
        """Decide about a child that gets no more than it has; return False for one that asks for more."""
        request = child.request
        if request is None or request.deleting:
            child.blocked = None
        elif request.problem is not None:
            child.blocked = request.problem
        elif self._is_promise(child) or child.revoked or not fits(self._wants(share, child), child.granted):
            if self._is_promise(child):
                self._grant(share, child, self._zero())
            return False
        else:
            self._set(share, child, self._wants(share, child))
        if self._is_promise(child):
            self._grant(share, child, self._zero())
        self._touch(child)
        return True

    def _set(self, share: Share, child: Share, hard: Amounts) -> None:
        """Give a child what it asks for, and as much more as its own children hold."""
        held = self._placed(child)
        self._grant(share, child, {key: max(hard[key], held[key]) for key in self.keys})
        lack = {key: held[key] - hard[key] for key in self.keys if held[key] > hard[key]}
        blind = child.request is not None and child.request.blind
        child.blocked = words.short(lack, hard, {} if blind else self._holders(child, lack)) if lack else None

    def _is_promise(self, child: Share) -> bool:
        """Tell whether what a child is to have cannot be held yet: its namespace is not there."""
        return child.namespace is None and not child.is_claim

    def _wants(self, parent: Share | None, child: Share) -> Amounts:
        return claims.wants(parent, child, self._children(parent) if parent is not None and parent.claims else ())

    def _free(self, share: Share) -> Amounts:
        used = self._used(share)
        free = {k: share.granted[k] - share.given[k] - used.get(k, 0) - share.overhang[k] for k in self.keys}
        if share.claims:
            children = self._children(share)
            lent = claims.lent(share, children)
            add(free, {key: min(used.get(key, 0), value) for key, value in lent.items()})
            add(free, claims.credit(share, children))
        return free

    def _give(self, share: Share, child: Share, free: Amounts, known: dict[str, str]) -> bool:
        """Give a child what it asks for, all of what it lacks or nothing; tell whether it got it."""
        if child.request is None:
            return True
        need = self._need(share, child)
        lacks = [key for key in self.keys if need[key] > 0 and need[key] > free[key]]
        if not lacks:
            self._hand_over(share, child)
            if share.claims:
                free.update(self._free(share))
            else:
                add(free, need, -1)
        else:
            share.waiting.add(child)
            for key in lacks[:SHOWN]:
                if key not in known:
                    known[key] = words.holders(key, ((c.name, c.granted) for c in self._children(share)))
            child.blocked = words.insufficient([self._lacking(share, child, key, free, known) for key in lacks])
            self._touch(child)
        return not lacks

    def _hand_over(self, share: Share, child: Share) -> None:
        """Give a child what it asks for."""
        child.revoked = False
        if child.request is not None:
            self._set(share, child, self._wants(share, child))
        if self._is_promise(child):
            share.waiting.add(child)  # what is only promised is looked at again each time
        self._touch(child)

    def _need(self, share: Share, child: Share) -> Amounts:
        """Return what a node is to give to a child beyond what it has; negative where it gets something back."""
        wanted = self._wants(share, child)
        placed = self._placed(child)
        need = {key: max(wanted[key], placed[key]) - child.granted[key] for key in self.keys}
        if not share.claims:
            return need
        # What a claim and its users hold twice is not given twice.
        children = self._children(share)
        soon = {child.key: {key: child.granted[key] + need[key] for key in self.keys}}
        before, after = claims.credit(share, children), claims.credit(share, children, soon)
        return {key: need[key] - after.get(key, 0) + before.get(key, 0) for key in self.keys}

    def _placed(self, child: Share) -> Amounts:
        """Return what the children of a child hold of it, what claims and their users hold twice counted once."""
        twice = claims.credit(child, self._children(child)) if child.claims else {}
        return {key: child.given[key] - child.reserved[key] - twice.get(key, 0) for key in self.keys}

    def _lacking(self, share: Share, child: Share, key: str, free: Amounts, known: dict[str, str]) -> str:
        request = self._wants(share, child)[key]
        return words.lacking(
            key,
            request=request,
            free=max(free[key], 0) + child.granted[key],
            parent=share.namespace.name if share.namespace is not None else "",
            used=self._used(share).get(key, 0),
            held=known.get(key, ""),
        )

    def _holders(self, share: Share, keys: Mapping[str, int]) -> dict[str, str]:
        held = [(child.name, child.granted) for child in self._children(share) if not self._is_promise(child)]
        return {key: words.holders(key, held) for key in keys}

    # -- shortage ---------------------------------------------------------------------------------

    def _look_for_shortage(self, waiting: list[Share]) -> list[Share]:
        """Say what the tenant's quota lacks, or take back what the youngest hold."""
        root = self.root
        twice = claims.credit(root, self._children(root)) if root.claims else {}
        lack = {k: root.given[k] - root.reserved[k] - root.granted[k] - twice.get(k, 0) for k in self.keys}
        lack = {key: value for key, value in lack.items() if value > 0}
        if lack and self.reclaim:
            for child in reversed(self.children_of(root)):
                if child.namespace is None or not child.lasts or not any(child.granted[key] for key in lack):
                    continue
                lack = {key: value - child.granted[key] for key, value in lack.items()}
                lack = {key: value for key, value in lack.items() if value > 0}
                self._revoke(root, child)
                waiting = [*waiting, child] if child not in waiting else waiting
                if not lack:
                    break
            waiting.sort(key=lambda child: child.order)
        root.blocked = words.short(lack, root.granted, self._holders(root, lack)) if lack else None
        return waiting

    def _revoke(self, share: Share, child: Share) -> None:
        """Take everything back from a child, and at once from everything below: what it gets next is for it alone."""
        child.revoked = child.namespace is not None
        if child.namespace is not None:
            self._revoke_below(child)
        self._grant(share, child, self._zero())

    def _revoke_below(self, share: Share) -> None:
        for child in self._children(share):
            self._revoke(share, child)
            share.waiting.add(child)
            if child.lasts:
                child.blocked = words.insufficient([f"namespace {share.parent!r} had to take back what it gave"])
            self._touch(child)

    # -- what follows for one namespace -----------------------------------------------------------

    def _compute_own(self, share: Share) -> None:
        self.stirred.add(share)
        found = share.namespace
        if found is None:
            share.own = self._zero()
            return
        own = {k: share.granted[k] - share.given[k] + share.reserved[k] - share.overhang[k] for k in self.keys}
        if share.claims:
            children = self._children(share)
            add(own, claims.credit(share, children))
            own |= claims.lent(share, children)
        share.own = {key: max(0, value) for key, value in own.items()}
        held = self.quotas.get(found.name)
        used = held.used if held is not None else {}
        over = {key: used[key] - share.own[key] for key in self.keys if used.get(key, 0) > share.own[key]}
        parent = self.parent_of(share)
        if parent is not None:
            self._overhang(parent, share, over)
        share.over = over
        self._sort(share, found.name, held)

"""How a tenant's quota is divided over its tree: pure, and kept up to date by changes alone.

Every child gets what its Subnamespace asks for, all of it or nothing of what it lacks, oldest first; what a namespace
gives to its children it does not use itself. A claim of nodes is a child, too: see `shares_claims`. What is changed is
marked, and `plan` looks at what is marked: a change of one namespace costs nothing for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenantry.world.shares import claims
from tenantry.world.shares import shortage as words
from tenantry.world.shares.amounts import Aim, Amounts, add, fits, lower, total
from tenantry.world.shares.nodes import Node
from tenantry.world.shares.shape import Shape


class Tree(Shape):
    """The division of one tenant's quota; see `Shape`."""

    def start(self, aims: Sequence[Aim], before: Tree | None = None) -> None:
        """Begin with what is held, as it will be when a batch that is under way is done.

        Args:
            aims: The batch.
            before: The tree that this one replaces: it knows what namespaces had whose ResourceQuota went first.
        """
        soon = {aim.namespace: aim.hard for aim in aims if (room := self.room(aim.namespace)) and room.uid == aim.uid}
        below: dict[str, Amounts] = {}
        for node in sorted(self.nodes.values(), key=self._depth, reverse=True):
            room, parent = node.room, self.parent_of(node)
            if node.is_claim and node.asked is not None and parent is not None:
                below[node.key] = dict(node.asked.charged)
                add(below.setdefault(parent.key, self._zero()), node.asked.charged)
            if room is None:
                continue
            held = self.quotas.get(room.namespace)
            hard = soon.get(room.namespace, held.hard if held is not None else {})
            old = before.nodes.get(node.key) if before is not None and held is None else None
            if old is not None and old.room is not None and old.room.uid == room.uid:
                hard = node.kept = old.kept  # what it ran may run still
            node.used_below = total([self._used(node), *(child.used_below for child in self._children(node))])
            have = below.setdefault(node.key, self._zero())
            add(have, {key: hard.get(key, 0) for key in self.keys})
            for claim in node.claims:
                # What its users hold they hold in its stead.
                users = [below.get(user.key, {}) for user in claims.users(self._children(node), claim)]
                own = [hard] if claims.uses(node, claim) else []
                add(have, lower(below.get(claim.key, {}), {**self._zero(), **total([*users, *own])}), -1)
            if parent is not None:
                add(below.setdefault(parent.key, self._zero()), have)
        for node in self.nodes.values():
            if node is not self.root:
                is_there = node.room is not None or node.is_claim
                node.granted = below.get(node.key, self._zero()) if is_there else self._zero()
        for node in self.nodes.values():
            node.given = {**self._zero(), **total(child.granted for child in self._children(node))}
            node.reserved = self._zero()
            node.unsettled = set(self._children(node))
            self._change(node)

    # -- deciding ---------------------------------------------------------------------------------

    def plan(self) -> None:
        """Decide about everything that is marked; `differing` and `stirred` say what came of it."""
        for _ in range(1000 + 100 * len(self.nodes)):
            node = self._dirty.pop()
            if node is None:
                node = self._touched.pop()
                if node is None:
                    return
                if self.nodes.get(node.key) is node:
                    self._aim(node)
            elif self.nodes.get(node.key) is node:
                self._allocate(node)
        raise RuntimeError("the division of a quota does not come to rest")

    def _allocate(self, node: Node) -> None:
        if node.room is None:
            return
        if node.revoked:
            self._revoke_below(node)
            return
        candidates = node.unsettled | node.waiting
        node.unsettled, node.waiting = set(), set()
        waiting = [child for child in sorted(candidates, key=lambda c: c.order) if not self._settle(node, child)]
        if node is self.root:
            waiting = self._look_for_shortage(waiting)
        free = self._free(node)
        if not node.claims and fits(total(self._need(node, child) for child in waiting), free):
            for child in waiting:  # each may have to wait for what another gives up: together it fits
                self._hand_over(node, child)
            waiting = []
        while waiting:
            known: dict[str, str] = {}
            before = dict(free)
            waiting = [child for child in waiting if not self._give(node, child, free, known)]
            if all(free[key] <= before[key] for key in self.keys):
                break  # nobody gave anything back while getting something else: who waits waits on
        if node.lasts and not fits(node.granted, self._wants(self.parent_of(node), node)):
            self._unsettle(node)  # its children hold more than it asks for: they may hold less now

    def _settle(self, node: Node, child: Node) -> bool:
        """Decide about a child that gets no more than it has; return False for one that asks for more."""
        asked = child.asked
        if asked is None or asked.deleting:
            child.blocked = None
        elif asked.problem is not None:
            child.blocked = asked.problem
        elif self._is_promise(child) or child.revoked or not fits(self._wants(node, child), child.granted):
            if self._is_promise(child):
                self._grant(node, child, self._zero())
            return False
        else:
            self._set(node, child, self._wants(node, child))
        if self._is_promise(child):
            self._grant(node, child, self._zero())
        self._touch(child)
        return True

    def _set(self, node: Node, child: Node, hard: Amounts) -> None:
        """Give a child what it asks for, and as much more as its own children hold."""
        held = self._placed(child)
        self._grant(node, child, {key: max(hard[key], held[key]) for key in self.keys})
        lack = {key: held[key] - hard[key] for key in self.keys if held[key] > hard[key]}
        blind = child.asked is not None and child.asked.blind
        child.blocked = words.short(lack, hard, {} if blind else self._holders(child, lack)) if lack else None

    def _is_promise(self, child: Node) -> bool:
        """Tell whether what a child is to have cannot be held yet: its namespace is not there."""
        return child.room is None and not child.is_claim

    def _wants(self, parent: Node | None, child: Node) -> Amounts:
        return claims.wants(parent, child, self._children(parent) if parent is not None and parent.claims else ())

    def _free(self, node: Node) -> Amounts:
        used = self._used(node)
        free = {k: node.granted[k] - node.given[k] - used.get(k, 0) - node.overhang[k] for k in self.keys}
        if node.claims:
            children = self._children(node)
            lent = claims.lent(node, children)
            add(free, {key: min(used.get(key, 0), value) for key, value in lent.items()})
            add(free, claims.credit(node, children))
        return free

    def _give(self, node: Node, child: Node, free: Amounts, known: dict[str, str]) -> bool:
        """Give a child what it asks for, all of what it lacks or nothing; tell whether it got it."""
        if child.asked is None:
            return True
        need = self._need(node, child)
        lacks = [key for key in self.keys if need[key] > 0 and need[key] > free[key]]
        if not lacks:
            self._hand_over(node, child)
            if node.claims:
                free.update(self._free(node))
            else:
                add(free, need, -1)
        else:
            node.waiting.add(child)
            for key in lacks[: words.SHOWN]:
                if key not in known:
                    known[key] = words.holders(key, ((c.name, c.granted) for c in self._children(node)))
            child.blocked = words.insufficient([self._lacking(node, child, key, free, known) for key in lacks])
            self._touch(child)
        return not lacks

    def _hand_over(self, node: Node, child: Node) -> None:
        """Give a child what it asks for."""
        child.revoked = False
        if child.asked is not None:
            self._set(node, child, self._wants(node, child))
        if self._is_promise(child):
            node.waiting.add(child)  # what is only promised is looked at again each time
        self._touch(child)

    def _need(self, node: Node, child: Node) -> Amounts:
        """Return what a node is to give to a child beyond what it has; negative where it gets something back."""
        wanted = self._wants(node, child)
        placed = self._placed(child)
        need = {key: max(wanted[key], placed[key]) - child.granted[key] for key in self.keys}
        if not node.claims:
            return need
        # What a claim and its users hold twice is not given twice.
        children = self._children(node)
        soon = {child.key: {key: child.granted[key] + need[key] for key in self.keys}}
        before, after = claims.credit(node, children), claims.credit(node, children, soon)
        return {key: need[key] - after.get(key, 0) + before.get(key, 0) for key in self.keys}

    def _placed(self, child: Node) -> Amounts:
        """Return what the children of a child hold of it, what claims and their users hold twice counted once."""
        twice = claims.credit(child, self._children(child)) if child.claims else {}
        return {key: child.given[key] - child.reserved[key] - twice.get(key, 0) for key in self.keys}

    def _lacking(self, node: Node, child: Node, key: str, free: Amounts, known: dict[str, str]) -> str:
        asked = self._wants(node, child)[key]
        return words.lacking(
            key,
            asked=asked,
            free=max(free[key], 0) + child.granted[key],
            parent=node.room.namespace if node.room is not None else "",
            used=self._used(node).get(key, 0),
            held=known.get(key, ""),
        )

    def _holders(self, node: Node, keys: Mapping[str, int]) -> dict[str, str]:
        held = [(child.name, child.granted) for child in self._children(node) if not self._is_promise(child)]
        return {key: words.holders(key, held) for key in keys}

    # -- shortage ---------------------------------------------------------------------------------

    def _look_for_shortage(self, waiting: list[Node]) -> list[Node]:
        """Say what the tenant's quota lacks, or take back what the youngest hold."""
        root = self.root
        twice = claims.credit(root, self._children(root)) if root.claims else {}
        lack = {k: root.given[k] - root.reserved[k] - root.granted[k] - twice.get(k, 0) for k in self.keys}
        lack = {key: value for key, value in lack.items() if value > 0}
        if lack and self.reclaim:
            for child in reversed(self.children_of(root)):
                if child.room is None or not child.lasts or not any(child.granted[key] for key in lack):
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

    def _revoke(self, node: Node, child: Node) -> None:
        """Take everything back from a child, and at once from everything below: what it gets next is for it alone."""
        child.revoked = child.room is not None
        if child.room is not None:
            self._revoke_below(child)
        self._grant(node, child, self._zero())

    def _revoke_below(self, node: Node) -> None:
        for child in self._children(node):
            self._revoke(node, child)
            node.waiting.add(child)
            if child.lasts:
                child.blocked = words.insufficient([f"namespace {node.parent!r} had to take back what it gave"])
            self._touch(child)

    # -- what follows for one namespace -----------------------------------------------------------

    def _aim(self, node: Node) -> None:
        self.stirred.add(node)
        room = node.room
        if room is None:
            node.own = self._zero()
            return
        own = {k: node.granted[k] - node.given[k] + node.reserved[k] - node.overhang[k] for k in self.keys}
        if node.claims:
            children = self._children(node)
            add(own, claims.credit(node, children))
            own |= claims.lent(node, children)
        node.own = {key: max(0, value) for key, value in own.items()}
        held = self.quotas.get(room.namespace)
        used = held.used if held is not None else {}
        over = {key: used[key] - node.own[key] for key in self.keys if used.get(key, 0) > node.own[key]}
        parent = self.parent_of(node)
        if parent is not None:
            self._overhang(parent, node, over)
        node.over = over
        self._sort(node, room.namespace, held)

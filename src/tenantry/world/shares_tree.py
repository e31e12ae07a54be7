"""How a tenant's quota is divided over its tree: pure, and kept up to date by changes alone.

Every child gets what its Subnamespace asks for, all of it or nothing of what it lacks, oldest first; what a namespace
gives to its children it does not use itself. What is changed is marked, and `plan` looks at what is marked: a change of
one namespace costs nothing for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.world import shares_words as words
from tenantry.world.shares import Aim, Amounts, Held, add, fits, total
from tenantry.world.shares_nodes import ROOT, Asked, Marks, Node, Room, keep


class Tree:
    """The division of one tenant's quota.

    Args:
        whole: What the tenant may use: its keys are those that are divided.
        reclaim: Take back the shares of the youngest where they hold more than there is.
    """

    def __init__(self, whole: Amounts, *, reclaim: bool = False) -> None:
        self.keys = tuple(sorted(whole))
        self.reclaim = reclaim
        self.quotas: dict[str, Held] = {}
        self.reach: Amounts = {}  # the sum over all ResourceQuotas of the tree
        self.nodes: dict[str, Node] = {}
        self.differing: set[str] = set()  # namespaces whose ResourceQuota is not as it should be
        self.bare: set[str] = set()  # namespaces without one
        self.unenforced: set[str] = set()  # namespaces whose ResourceQuota is not in force as it is
        self.stirred: set[Node] = set()  # nodes of which there may be something new to tell
        self.newest = 0  # the latest batch that wrote anything that was seen
        self.pending: set[Node] = set()  # nodes whose namespace is not there
        self.is_broken = False  # something moved in a way that only a new tree can follow
        self._at: dict[str, Node] = {}
        self._below: dict[str, dict[str, Node]] = {}
        self._dirty = Marks()  # their children are to be looked at, from the top down
        self._touched = Marks()  # they themselves are, from the bottom up
        self.root = Node(ROOT, "", self._zero())
        self.root.granted = dict(whole)
        self.nodes[ROOT] = self.root

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

    def put_child(self, asked: Asked) -> None:
        """Take in a Subnamespace."""
        node = self._node(asked.uid, asked.parent)
        if node.asked == asked:
            return
        extra = [] if asked.problem else [key for key in asked.hard if key not in self.root.granted]
        problem = asked.problem or (words.not_limited(extra) if extra and asked.hard else None)
        hard = {key: asked.hard.get(key, 0) for key in self.keys}
        node.asked = msgspec.structs.replace(asked, hard=hard, problem=problem)
        self._unsettle(node)

    def drop_child(self, uid: str) -> None:
        """Take note that a Subnamespace is gone; its namespace may be there still."""
        node = self.nodes.get(uid)
        if node is None or node is self.root:
            return
        node.asked = None
        if node.room is None:
            self._remove(node)
        else:
            self._unsettle(node)

    def put_room(self, room: Room) -> None:
        """Take in a namespace."""
        known = self._at.get(room.namespace)
        if known is not None and known.room is not None:
            if known.room == room:
                return
            if known.key != room.key or known.room.parent != room.parent:
                self.is_broken = True  # it was moved
                return
            if known.room.uid == room.uid:
                known.room = room
                self._change(known)
                self._unsettle(known)
                return
            self.drop_room(room.namespace)
        node = self._node(room.key, room.parent)
        if node.room is not None:
            self.is_broken = True  # two namespaces for one
            return
        parent = self.parent_of(node)
        if parent is not None:
            add(parent.reserved, node.granted, -1)
        node.room = room
        self.pending.discard(node)
        self._at[room.namespace] = node
        children = self._below.get(room.namespace, {})
        node.given = {**self._zero(), **total(child.granted for child in children.values())}
        node.reserved = {**self._zero(), **total(c.granted for c in children.values() if c.room is None)}
        node.unsettled = set(children.values())
        self._account(node, self.quotas.get(room.namespace), 1)
        self._unsettle(node)
        self._change(node)
        if parent is not None:
            self._touch(parent)

    def drop_room(self, namespace: str) -> None:
        """Take note that a namespace is gone: what it had goes back to its parent."""
        self.drop_quota(namespace)
        node = self._at.pop(namespace, None)
        if node is None:
            return
        parent = self.parent_of(node)
        if parent is not None:
            self._overhang(parent, node, {})
            add(parent.given, node.granted, -1)
            self._change(parent)
        node.room, node.was_in_force, node.revoked = None, False, False
        if node is not self.root:
            node.granted = self._zero()
            self.pending.add(node)
        self._sort(node, namespace, None)
        if node.asked is None and node is not self.root:
            self._remove(node)
        else:
            self._unsettle(node)
            self._touch(node)

    def put_quota(self, namespace: str, held: Held) -> None:
        """Take in a ResourceQuota, as long as it is not older than what is known."""
        known = self.quotas.get(namespace)
        if known is not None and held.version <= known.version:
            return
        self._exchange(namespace, known, held)

    def drop_quota(self, namespace: str) -> None:
        """Take note that a ResourceQuota is gone."""
        known = self.quotas.get(namespace)
        if known is not None:
            self._exchange(namespace, known, None)

    def _exchange(self, namespace: str, before: Held | None, after: Held | None) -> None:
        node = self._at.get(namespace)
        if before is not None:
            add(self.reach, before.reach, -1)
            if node is not None:
                self._account(node, before, -1)
        if after is None:
            del self.quotas[namespace]
            if node is not None and before is not None:
                node.kept = before.hard
        else:
            self.quotas[namespace] = after
            self.newest = max(self.newest, after.number)
            add(self.reach, after.reach)
        if node is None:
            return
        if after is not None:
            self._account(node, after, 1)
        self._touch(node)
        if (node.waiting or node.unsettled) and (before.used if before else {}) != (after.used if after else {}):
            self._mark_dirty(node)

    def _account(self, node: Node, held: Held | None, sign: int) -> None:
        """Count what a namespace uses into everything above it."""
        if held is None or not held.used:
            return
        above: Node | None = node
        for _ in range(len(self.nodes) + 1):
            if above is None:
                return
            add(above.used_below, held.used, sign)
            self.stirred.add(above)
            above = self.parent_of(above)

    # -- the shape --------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Return how many namespaces there are."""
        return len(self._at)

    def room(self, namespace: str) -> Room | None:
        """Return a namespace of the tree."""
        node = self._at.get(namespace)
        return node.room if node is not None else None

    def at(self, namespace: str) -> Node | None:
        """Return the node whose namespace this is."""
        return self._at.get(namespace)

    def parent_of(self, node: Node) -> Node | None:
        """Return the node above, None for the top and for what hangs loose."""
        return self._at.get(node.parent) if node.parent else None

    def children_of(self, node: Node) -> list[Node]:
        """Return the nodes below, oldest first."""
        return sorted(self._children(node), key=lambda child: child.order)

    def _children(self, node: Node) -> Sequence[Node]:
        return list(self._below.get(node.room.namespace, {}).values()) if node.room is not None else []

    def _node(self, key: str, parent: str) -> Node:
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = Node(key, parent, self._zero())
            self.pending.add(node)
            self._below.setdefault(parent, {})[key] = node
        return node

    def _remove(self, node: Node) -> None:
        parent = self.parent_of(node)
        if parent is not None:
            self._grant(parent, node, self._zero())
            parent.unsettled.discard(node)
            parent.waiting.discard(node)
            self._change(parent)
        self._below[node.parent].pop(node.key, None)
        self.nodes.pop(node.key, None)
        self.pending.discard(node)
        self.stirred.discard(node)

    # -- what is to be looked at ------------------------------------------------------------------

    def _depth(self, node: Node) -> int:
        depth, above = 0, self.parent_of(node)
        while above is not None and depth <= len(self.nodes):
            depth, above = depth + 1, self.parent_of(above)
        return depth

    def _mark_dirty(self, node: Node) -> None:
        self._dirty.add(node, self._depth(node))

    def _touch(self, node: Node) -> None:
        self._touched.add(node, -self._depth(node))

    def _change(self, node: Node) -> None:
        self._mark_dirty(node)
        self._touch(node)

    def _unsettle(self, node: Node) -> None:
        parent = self.parent_of(node)
        if parent is not None:
            parent.unsettled.add(node)
            self._mark_dirty(parent)

    def start(self, aims: Sequence[Aim], before: Tree | None = None) -> None:
        """Begin with what is held, as it will be when a batch that is under way is done.

        Args:
            aims: The batch.
            before: The tree that this one replaces: it knows what namespaces had whose ResourceQuota went first.
        """
        soon = {aim.namespace: aim.hard for aim in aims if (room := self.room(aim.namespace)) and room.uid == aim.uid}
        below: dict[str, Amounts] = {}
        for node in sorted(self.nodes.values(), key=self._depth, reverse=True):
            room = node.room
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
            parent = self.parent_of(node)
            if parent is not None:
                add(below.setdefault(parent.key, self._zero()), have)
        for node in self.nodes.values():
            if node is not self.root:
                node.granted = below.get(node.key, self._zero()) if node.room is not None else self._zero()
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
        if fits(total(self._need(child) for child in waiting), free):
            for child in waiting:  # each may have to wait for what another gives up: together it fits
                self._hand_over(node, child)
            waiting = []
        while waiting:
            known: dict[str, str] = {}
            before = dict(free)
            waiting = [child for child in waiting if not self._give(node, child, free, known)]
            if all(free[key] <= before[key] for key in self.keys):
                break  # nobody gave anything back while getting something else: who waits waits on
        if node.lasts and not fits(node.granted, node.asked.hard if node.asked is not None else {}):
            self._unsettle(node)  # its children hold more than it asks for: they may hold less now

    def _settle(self, node: Node, child: Node) -> bool:
        """Decide about a child that gets no more than it has; return False for one that asks for more."""
        asked = child.asked
        if asked is None or asked.deleting:
            child.blocked = None
        elif asked.problem is not None:
            child.blocked = asked.problem
        elif child.room is None or child.revoked or not fits(asked.hard, child.granted):
            if child.room is None:
                self._grant(node, child, self._zero())
            return False
        else:
            self._set(node, child, asked.hard)
        if child.room is None:
            self._grant(node, child, self._zero())
        self._touch(child)
        return True

    def _set(self, node: Node, child: Node, hard: Amounts) -> None:
        """Give a child what it asks for, and as much more as its own children hold."""
        held = {key: self._placed(child, key) for key in self.keys}
        self._grant(node, child, {key: max(hard[key], held[key]) for key in self.keys})
        lack = {key: held[key] - hard[key] for key in self.keys if held[key] > hard[key]}
        blind = child.asked is not None and child.asked.blind
        child.blocked = words.short(lack, hard, {} if blind else self._holders(child, lack)) if lack else None

    def _free(self, node: Node) -> Amounts:
        used = self._used(node)
        return {k: node.granted[k] - node.given[k] - used.get(k, 0) - node.overhang[k] for k in self.keys}

    def _used(self, node: Node) -> Mapping[str, int]:
        held = self.quotas.get(node.room.namespace) if node.room is not None else None
        return held.used if held is not None else {}

    def _give(self, node: Node, child: Node, free: Amounts, known: dict[str, str]) -> bool:
        """Give a child what it asks for, all of what it lacks or nothing; tell whether it got it."""
        if child.asked is None:
            return True
        need = self._need(child)
        lacks = [key for key in self.keys if need[key] > 0 and need[key] > free[key]]
        if not lacks:
            self._hand_over(node, child)
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
            self._set(node, child, child.asked.hard)
        if child.room is None:
            node.waiting.add(child)  # what is only promised is looked at again each time
        self._touch(child)

    def _need(self, child: Node) -> Amounts:
        """Return what a child is to get beyond what it has; negative where it gives something back."""
        asked = child.asked.hard if child.asked is not None else child.granted
        return {key: max(asked[key], self._placed(child, key)) - child.granted[key] for key in self.keys}

    def _placed(self, child: Node, key: str) -> int:
        return child.given[key] - child.reserved[key]

    def _lacking(self, node: Node, child: Node, key: str, free: Amounts, known: dict[str, str]) -> str:
        asked = child.asked.hard[key] if child.asked is not None else 0
        return words.lacking(
            key,
            asked=asked,
            free=max(free[key], 0) + child.granted[key],
            parent=node.room.namespace if node.room is not None else "",
            used=self._used(node).get(key, 0),
            held=known.get(key, ""),
        )

    def _holders(self, node: Node, keys: Mapping[str, int]) -> dict[str, str]:
        held = [(child.name, child.granted) for child in self._children(node) if child.room is not None]
        return {key: words.holders(key, held) for key in keys}

    def _grant(self, parent: Node, child: Node, amounts: Amounts) -> None:
        if amounts == child.granted:
            return
        for whole in (parent.given, parent.reserved) if child.room is None else (parent.given,):
            add(whole, child.granted, -1)
            add(whole, amounts)
        child.granted = dict(amounts)
        self._touch(parent)
        if child.room is not None:
            self._change(child)

    # -- shortage ---------------------------------------------------------------------------------

    def _look_for_shortage(self, waiting: list[Node]) -> list[Node]:
        """Say what the tenant's quota lacks, or take back what the youngest hold."""
        root = self.root
        lack = {key: root.given[key] - root.reserved[key] - root.granted[key] for key in self.keys}
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
        node.own = {key: max(0, value) for key, value in own.items()}
        held = self.quotas.get(room.namespace)
        used = held.used if held is not None else {}
        over = {key: used[key] - node.own[key] for key in self.keys if used.get(key, 0) > node.own[key]}
        parent = self.parent_of(node)
        if parent is not None:
            self._overhang(parent, node, over)
        node.over = over
        self._sort(node, room.namespace, held)

    def _overhang(self, parent: Node, node: Node, over: Amounts) -> None:
        if over == node.over:
            return
        add(parent.overhang, node.over, -1)
        add(parent.overhang, over)
        node.over = over
        self._touch(parent)
        if parent.waiting:
            self._mark_dirty(parent)

    def _sort(self, node: Node, namespace: str, held: Held | None) -> None:
        lives = node.room is not None and not node.room.terminating
        keep(self.bare, namespace, lives and held is None)
        keep(self.differing, namespace, lives and held is not None and held.hard != node.own)
        keep(self.unenforced, namespace, lives and held is not None and not held.is_enforced)

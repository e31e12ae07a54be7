"""What is seen of a tenant's tree, and which parts of it are to be looked at again: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.world.shares import shortage as words
from tenantry.world.shares.amounts import Amounts, Held, add, fits, total
from tenantry.world.shares.nodes import ROOT, Asked, Marks, Node, Room, keep


class Shape:
    """The namespaces, claims and ResourceQuotas of one tenant.

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
        self.claims: set[Node] = set()
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
        if asked.slice:
            self._put_claim(node, asked)
            return
        extra = [] if asked.problem else [key for key in asked.hard if key not in self.root.granted]
        problem = asked.problem or (words.not_limited(extra) if extra and asked.hard else None)
        hard = {key: asked.hard.get(key, 0) for key in self.keys}
        node.asked = msgspec.structs.replace(asked, hard=hard, problem=problem)
        self._unsettle(node)

    def _put_claim(self, node: Node, asked: Asked) -> None:
        node.slice = asked.slice
        self.claims.add(node)
        self.pending.discard(node)
        hard, charged = ({key: each.get(key, 0) for key in self.keys} for each in (asked.hard, asked.charged))
        node.asked = msgspec.structs.replace(asked, hard=hard, charged=charged)
        parent = self.parent_of(node)
        if parent is not None:
            parent.claims.add(node)
            self._unsettle_all(parent)

    def drop_child(self, uid: str) -> None:
        """Take note that a Subnamespace or a claim is gone; its namespace may be there still."""
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
                moved, known.room = known.room.slice != room.slice, room
                self._change(known)
                self._unsettle(known)
                if moved:
                    self._unsettle_all(known)
                    if (above := self.parent_of(known)) is not None:
                        self._unsettle_all(above)
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
        node.claims = {child for child in children.values() if child.is_claim}
        promised = (c.granted for c in children.values() if c.room is None and not c.is_claim)
        node.reserved = {**self._zero(), **total(promised)}
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

    @property
    def has_yielded(self) -> bool:
        """Tell whether no ResourceQuota of the tree allows more than it should."""
        late = self.differing | self.unenforced
        return all(fits(self.quotas[name].reach, self._at[name].own) for name in late)

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
            parent.claims.discard(node)
            self._change(parent)
            if node.is_claim:
                self._unsettle_all(parent)
        self._below[node.parent].pop(node.key, None)
        self.nodes.pop(node.key, None)
        self.pending.discard(node)
        self.stirred.discard(node)
        self.claims.discard(node)

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

    def _unsettle_all(self, node: Node) -> None:
        """Have all children of a node decided about anew: what one holds in a claim's stead concerns the others."""
        node.unsettled |= set(self._children(node))
        self._change(node)

    def _used(self, node: Node) -> Mapping[str, int]:
        held = self.quotas.get(node.room.namespace) if node.room is not None else None
        return held.used if held is not None else {}

    # -- what follows from a grant --------------------------------------------------------------------

    def _grant(self, parent: Node, child: Node, amounts: Amounts) -> None:
        if amounts == child.granted:
            return
        promised = child.room is None and not child.is_claim
        for whole in (parent.given, parent.reserved) if promised else (parent.given,):
            add(whole, child.granted, -1)
            add(whole, amounts)
        child.granted = dict(amounts)
        self._touch(parent)
        if child.room is not None:
            self._change(child)

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

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

from tenantry.world.shares.amounts import Aim, Amounts, Book, Held, add, fits, higher, lower
from tenantry.world.shares.tree import Tree

MAX_AIMS = 500


class Reread(msgspec.Struct, frozen=True):
    """Read the TenantResourceQuota anew: somebody is ahead of us."""


class Reload(msgspec.Struct, frozen=True):
    """Read the namespaces and ResourceQuotas of the tree from the server, and begin with a new tree."""

    number: int


class Make(msgspec.Struct, frozen=True):
    """POST a ResourceQuota with nothing in it."""

    namespace: str
    hard: Amounts
    number: int


class Shape(msgspec.Struct, frozen=True):
    """Change the spec of a ResourceQuota at a resourceVersion.

    Args:
        namespace: Where it is.
        uid: The namespace's uid.
        held: The ResourceQuota as it is.
        hard: What it becomes.
        number: The batch.
        final: The batch is done with it.
        grows: Make sure that it is in that very namespace.
    """

    namespace: str
    uid: str
    held: Held
    hard: Amounts
    number: int
    final: bool
    grows: bool


class Enforce(msgspec.Struct, frozen=True):
    """PUT the status of a ResourceQuota, so that its spec is in force: at a resourceVersion."""

    namespace: str
    held: Held


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """PUT the status of the TenantResourceQuota at a resourceVersion.

    Args:
        book: What it was; its version is what the write names.
        hard: What the whole tree may use now; None while that is not known.
        number: The batch.
        aims: What it makes of which namespace.
    """

    book: Book
    hard: Amounts | None
    number: int
    aims: tuple[Aim, ...]


Move = Reread | Reload | Make | Shape | Enforce | Write


class Mover:
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

    def wrote(self, write: Write) -> None:
        """Take note that a write of the TenantResourceQuota succeeded."""
        self.number = write.number

    def moves(self, book: Book) -> Sequence[Move]:
        """Return the writes that may be made now, all at once; [] when there is nothing to do, or to wait for.

        Args:
            book: The TenantResourceQuota as it is known.
        """
        tree = self.tree
        tree.plan()
        # A batch that was decided on what we know, or later, has a number of at least the version that we know.
        if tree.newest >= book.version:
            return [Reread()]
        if tree.bare and tree.keys:
            nothing = dict.fromkeys(tree.keys, 0)
            return [Make(namespace, nothing, self._newest(book)) for namespace in sorted(tree.bare)]
        open_aims = [aim for aim in book.aims if not self.is_done(aim, book.number)]
        if self.number != book.number and (open_aims or self._has_work(book)):
            return [Reload(book.number)]
        if open_aims:
            return self._go_on(book, open_aims)
        return self._take_stock(book) if book.hard is None else self._next(book)

    def _newest(self, book: Book) -> int:
        """Return the number for what is made now: later than whatever anybody may still be about to write.

        While the whole is not known, that is the last one before the book's own version: no batch has it.
        """
        return book.version - 1 if book.hard is None else book.number

    def _next(self, book: Book) -> Sequence[Move]:
        tree = self.tree
        moves: list[Move] = [Enforce(namespace, tree.quotas[namespace]) for namespace in sorted(tree.unenforced)]
        begin = self._begin(book)
        if begin is not None:
            moves.append(begin)
        elif not moves and book.hard != (hard := self._whole()):
            moves.append(Write(book=book, hard=hard, number=book.number, aims=book.aims))
        return moves

    def _has_work(self, book: Book) -> bool:
        return bool(self.tree.differing) or book.hard is None or book.hard != self._whole()

    def _whole(self) -> Amounts:
        """Return what the whole tree may use once nothing moves: its quota, or more while more is held."""
        tree = self.tree
        return {key: max(tree.root.granted[key], tree.reach.get(key, 0)) for key in tree.keys}

    # -- a batch under way ------------------------------------------------------------------------

    def is_done(self, aim: Aim, number: int) -> bool:
        """Tell whether a batch has nothing left to do in a namespace."""
        room, held = self.tree.room(aim.namespace), self.tree.quotas.get(aim.namespace)
        if room is None or room.uid != aim.uid:
            return True  # the namespace is gone
        if held is None:
            return room.terminating
        return held.number == number and held.final and held.hard == aim.hard

    def _go_on(self, book: Book, open_aims: Sequence[Aim]) -> Sequence[Move]:
        """Shrink first; grow when what shrank is in force and nobody uses what is given away."""
        first: list[Move] = []
        for aim in book.aims:
            held = self.tree.quotas.get(aim.namespace)
            if held is None or not self._lives(aim):
                continue
            low = lower(held.hard, aim.hard)
            done = self.is_done(aim, book.number)
            if not done and (low != held.hard or low == aim.hard):
                first.append(self._shape(aim, held, low, book.number, grows=False))
            elif self._must_be_enforced(held, book.number):
                first.append(Enforce(aim.namespace, held))
        if first:
            return first
        if not all(self._is_still_wanted(aim) for aim in open_aims):
            return [self._freeze(book, open_aims)]
        if not all(self._is_counted(aim) for aim in book.aims):
            return []  # what is in use is not known yet: Kubernetes' quota controller will say
        return [
            self._shape(aim, held, aim.hard, book.number, grows=True)
            for aim in open_aims
            if (held := self.tree.quotas.get(aim.namespace)) is not None
        ]

    def _must_be_enforced(self, held: Held, number: int) -> bool:
        """Tell whether a share has shrunk without being in force: what has not shrunk may wait until it has grown."""
        return not held.is_enforced and (held.number == number or not fits(held.in_force, held.hard))

    def _lives(self, aim: Aim) -> bool:
        room = self.tree.room(aim.namespace)
        return room is not None and room.uid == aim.uid

    def _shape(self, aim: Aim, held: Held, hard: Amounts, number: int, *, grows: bool) -> Shape:
        final = hard == aim.hard
        return Shape(aim.namespace, aim.uid, held, hard, number, final, grows)

    def _is_counted(self, aim: Aim) -> bool:
        """Tell whether it is known what is used of a share that gives something away."""
        held, node = self.tree.quotas.get(aim.namespace), self.tree.at(aim.namespace)
        if held is None or node is None or not any(node.given.values()):
            return True
        return all(key in held.used for key in held.in_force)

    def _is_still_wanted(self, aim: Aim) -> bool:
        """Tell whether the division still gives a namespace what the batch would."""
        node = self.tree.at(aim.namespace)
        return node is not None and (fits(aim.hard, node.own) or (node.room is not None and node.room.terminating))

    def _freeze(self, book: Book, open_aims: Sequence[Aim]) -> Write:
        """End a batch that can no longer be finished: what is open stays as it is, and is written once more."""
        frozen = [
            Aim(namespace=aim.namespace, uid=aim.uid, hard=lower(held.hard, aim.hard))
            for aim in open_aims
            if (held := self.tree.quotas.get(aim.namespace)) is not None
        ]
        return Write(book=book, hard=book.hard, number=book.version, aims=tuple(frozen))

    # -- the next batch ---------------------------------------------------------------------------

    def _begin(self, book: Book) -> Write | None:
        """Return the next batch: what shrinks, and what then fits."""
        tree = self.tree
        reach = {key: tree.reach.get(key, 0) for key in tree.keys}
        # Of a key that the whole did not have until now, more may be left than it is to have.
        known = {**reach, **(book.hard or {})}
        limit = higher(known, tree.root.granted)
        aims: list[Aim] = []
        growing: list[Aim] = []
        shrinking = [n for n in sorted(tree.differing) if self._shrinks(n)]
        all_of_them = len(shrinking) <= MAX_AIMS
        for namespace in shrinking[:MAX_AIMS]:
            aim = self._aim(namespace)
            low = lower(tree.quotas[namespace].hard, aim.hard)
            if low != aim.hard:
                growing.append(aim)
            else:
                aims.append(aim)
            self._exchange(reach, tree.quotas[namespace].reach, low)
        if all_of_them:
            growing += [self._aim(n) for n in sorted(tree.differing - set(shrinking), key=self._by_depth)]
        for aim in growing:
            held = tree.quotas[aim.namespace]
            low = lower(held.hard, aim.hard)
            after = dict(reach)
            self._exchange(after, low if self._shrinks(aim.namespace) else held.reach, aim.hard)
            if all_of_them and len(aims) < MAX_AIMS and fits(after, limit):
                reach = after
                aims.append(aim)
            elif self._shrinks(aim.namespace) and len(aims) < MAX_AIMS:
                aims.append(msgspec.structs.replace(aim, hard=low))
        if not aims:
            return None
        hard = {key: max(known.get(key, 0), reach.get(key, 0)) for key in tree.keys}
        return Write(book=book, hard={**known, **hard}, number=book.version, aims=tuple(aims))

    def _by_depth(self, namespace: str) -> tuple[str, ...]:
        node = self.tree.at(namespace)
        return node.order if node is not None else ()

    def _aim(self, namespace: str) -> Aim:
        room, node = self.tree.room(namespace), self.tree.at(namespace)
        if room is None or node is None:
            raise KeyError(namespace)
        return Aim(namespace=namespace, uid=room.uid, hard=dict(node.own))

    def _shrinks(self, namespace: str) -> bool:
        node, held = self.tree.at(namespace), self.tree.quotas[namespace]
        return node is not None and not fits(held.reach, node.own)

    def _exchange(self, reach: Amounts, before: Amounts, after: Amounts) -> None:
        add(reach, {key: before.get(key, 0) for key in self.tree.keys}, -1)
        add(reach, {key: after.get(key, 0) for key in self.tree.keys})

    # -- where nothing is known -------------------------------------------------------------------

    def _take_stock(self, book: Book) -> Sequence[Move]:
        """Find out what is held: every ResourceQuota is written as it is, so that nobody who is late can change it."""
        tree = self.tree
        if self._fence is None:
            self._fence = book.version - 1
        old = [
            Aim(namespace=namespace, uid=room.uid, hard=dict(held.hard))
            for namespace, held in sorted(tree.quotas.items())
            if held.number < self._fence and (room := tree.room(namespace)) is not None
        ]
        if old:
            return [Write(book=book, hard=None, number=book.version, aims=tuple(old[:MAX_AIMS]))]
        hard = {key: tree.reach.get(key, 0) for key in tree.keys}
        return [Write(book=book, hard=hard, number=book.number, aims=())]

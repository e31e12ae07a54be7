"""What a tree of shares is made of: what Subnamespaces ask for, the namespaces, and what both have: pure."""

from __future__ import annotations

import heapq

import msgspec

from tenantry.world.shares.amounts import Amounts
from tenantry.world.shares.shortage import Shortage

ROOT = ""
"""The key of the core namespace; the others are known by the uid of their Subnamespace, or of their claim's Slice."""


CLAIM = "claim "
"""What the name of a claim begins with where names of Subnamespaces are told, too."""


class ShareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a Subnamespace asks for.

    Args:
        uid: Its uid.
        name: Its name, a claim's behind CLAIM.
        parent: The namespace that it is in.
        created: Its creationTimestamp: the older is served first.
        generation: Of its spec.
        hard: By normal key.
        deleting: It keeps what it has until its namespace is gone.
        problem: Why what it asks for cannot be read; it keeps what it has.
        blind: Its parent's people are not told who is inside.
        slice: It is no Subnamespace but a claim, and this its slice.
        charged: What a claim is known to hold.
    """

    uid: str
    name: str
    parent: str
    created: str = ""
    generation: int = 0
    hard: Amounts = {}
    deleting: bool = False
    problem: Shortage | None = None
    blind: bool = False
    slice: str = ""
    charged: Amounts = {}


class TreeNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace of the tree as it was last seen.

    Args:
        name: Its name.
        uid: Its uid.
        key: The uid of the Subnamespace that it is bound to; ROOT for the core namespace.
        parent: The namespace above it.
        terminating: It is going.
        slice: What its pods run on; "" for any node.
    """

    name: str
    uid: str
    key: str = ROOT
    parent: str = ""
    terminating: bool = False
    slice: str = ""


class Share:
    """A Subnamespace, its namespace, or both; what they have and what they should have."""

    __slots__ = (
        "blocked",
        "claims",
        "given",
        "granted",
        "kept",
        "key",
        "namespace",
        "over",
        "overhang",
        "own",
        "parent",
        "request",
        "reserved",
        "revoked",
        "slice",
        "unsettled",
        "used_below",
        "waiting",
        "was_in_force",
    )

    def __init__(self, key: str, parent: str, zero: Amounts) -> None:
        self.key = key
        self.parent = parent
        self.request: ShareRequest | None = None
        self.namespace: TreeNamespace | None = None
        self.slice = ""  # of a claim, which has no namespace of its own
        self.claims: set[Share] = set()  # those in its namespace
        self.granted = zero  # what it and everything below may have
        self.given = dict(zero)  # of that, its children's
        self.reserved = dict(zero)  # of that, of children whose namespace is not there yet
        self.own = zero  # what its ResourceQuota should say
        self.kept: Amounts = {}  # what its ResourceQuota said before it went
        self.over: Amounts = {}  # in use beyond its own
        self.overhang = dict(zero)  # the sum of that over its children: not to be given to others
        self.used_below: Amounts = {}  # in use by it and everything below
        self.revoked = False
        self.blocked: Shortage | None = None
        self.unsettled: set[Share] = set()
        self.waiting: set[Share] = set()
        self.was_in_force = False

    @property
    def order(self) -> tuple[str, str, str]:
        """Return what is compared to know who is served first."""
        request = self.request
        return (request.created, request.name, self.key) if request is not None else ("", "", self.key)

    @property
    def name(self) -> str:
        """Return what people know it by."""
        if self.request is not None:
            return self.request.name
        return self.namespace.name if self.namespace is not None else self.key

    @property
    def is_claim(self) -> bool:
        """Tell whether it is a claim of nodes, not a Subnamespace."""
        return self.slice != ""

    @property
    def lasts(self) -> bool:
        """Tell whether it is meant to stay and may ask for something."""
        return self.request is not None and not self.request.deleting


class Marks:
    """Nodes that are to be looked at, each once, by rank."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Share]] = []
        self._keys: set[str] = set()
        self._order = 0

    def add(self, share: Share, rank: int) -> None:
        """Mark a node; one that is marked already keeps its rank."""
        if share.key not in self._keys:
            self._keys.add(share.key)
            self._order += 1
            heapq.heappush(self._heap, (rank, self._order, share))

    def pop(self) -> Share | None:
        """Return the marked node of the lowest rank, None where none is marked."""
        if not self._heap:
            return None
        share = heapq.heappop(self._heap)[2]
        self._keys.discard(share.key)
        return share


def keep(group: set[str], item: str, belongs: bool) -> None:  # noqa: FBT001 - what it is is said by its name
    """Have an item in a group, or not in it."""
    if belongs:
        group.add(item)
    else:
        group.discard(item)

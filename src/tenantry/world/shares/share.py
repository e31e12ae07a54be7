"""What a tree of shares consists of: the requests of Subnamespaces and claims, the namespaces, and a share for each.

A claim has no namespace of its own. It is for nodes, for the process of a control plane, or for a peer.

Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

import msgspec

from tenantry.world.shares.amounts import Amounts
from tenantry.world.shares.shortage import Shortage

ROOT = ""
"""The key of the core namespace. The key of any other share is the uid in its request, see `ShareRequest`."""

CLAIM = "claim "
PLANE = "control plane "
PEER = "share at peer "
"""The prefixes of the names of claims in messages that also name Subnamespaces."""


class ShareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The quota that a Subnamespace or a claim requests.

    Args:
        uid: Of the Subnamespace, of the claim's Slice, or of the VirtualControlPlane; see `remote.uid` for a peer.
        name: Of the Subnamespace, or of the claim with the prefix CLAIM, PLANE or PEER.
        parent: The namespace that it is in.
        created: Its creationTimestamp: the older request is served first.
        generation: Of its spec.
        round: How often a claim was withdrawn and made again.
        hard: By normal key.
        deleting: It is being deleted, and keeps its share until its namespace is gone.
        unnamed: The keys of the tree that the Subnamespace does not name; 0 in `hard` (see `defaults`).
        problem: Why its spec is invalid: it keeps the share that it has.
        blind: The parent's owners must not see the names inside (Subtenants).
        slice: The name of the Slice of a claim of nodes; "" for any other request.
        plane: The key of the VirtualControlPlane whose process the claim is for; "" for any other request.
        peer: The PeerCluster that a claim is for; "" for any other request.
        charged: What a claim is known to hold.
        added: What the contributed nodes of a claim add to one ResourceQuota, beside the tenant's quota.
        added_to: The name and the uid of that namespace; ("", "") for none.
    """

    uid: str
    name: str
    parent: str
    created: str = ""
    generation: int = 0
    round: int = 0
    hard: Amounts = {}
    deleting: bool = False
    unnamed: tuple[str, ...] = ()
    problem: Shortage | None = None
    blind: bool = False
    slice: str = ""
    plane: str = ""
    peer: str = ""
    charged: Amounts = {}
    added: Amounts = {}
    added_to: tuple[str, str] = ("", "")

    @property
    def is_claim(self) -> bool:
        """Return whether it is a claim, not a Subnamespace."""
        return self.slice != "" or self.plane != "" or self.peer != ""


class RemoteWishes(msgspec.Struct):
    """What namespaces should have at peers, and what is confirmed; the keys are the namespace at home and the peer.

    Args:
        wanted: What should be there; a missing key means nothing.
        lost: What pods may use there that home has let go, because the peer is silent.
        confirmed: The number of the last record that the peer is known to follow.
        given_up: Peers that are not used any more: what they hold is given back without their word.
        left_out: What the records have no room for.
    """

    wanted: dict[tuple[str, str], Amounts] = {}
    lost: dict[tuple[str, str], Amounts] = {}
    confirmed: dict[tuple[str, str], int] = {}
    given_up: set[str] = set()
    left_out: frozenset[tuple[str, str]] = frozenset()

    @property
    def keys(self) -> set[tuple[str, str]]:
        """Return the namespaces and peers for which something should be held."""
        return {*self.wanted, *self.lost}


class TreeNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace of the tree as it was last seen.

    Args:
        name: Its name.
        uid: Its uid.
        key: The uid of the Subnamespace that it is bound to; ROOT for the core namespace.
        parent: The parent namespace.
        terminating: It is being deleted.
        slice: The slice that its pods run on; "" for shared nodes.
    """

    name: str
    uid: str
    key: str = ROOT
    parent: str = ""
    terminating: bool = False
    slice: str = ""


class Share(msgspec.Struct, eq=False):
    """The part of the tenant's quota that a Subnamespace with its namespace, or a claim, has and should have.

    Args:
        key: ROOT, or the uid in the request.
        parent: The parent namespace; "" for the root.
        granted: For it and everything below it.
        request: None after the Subnamespace or the claim is deleted.
        namespace: None while it does not exist.
        slice: Of a claim of nodes, see `ShareRequest`.
        plane: Of a claim for a control plane, see `ShareRequest`.
        peer: Of a claim for a peer, see `ShareRequest`.
        claims: The claims in its namespace that are charged.
        defaults: What it was given of keys that its request does not name; a part of `granted`.
        lacking: Its children without a default of a key that they do not name, or with the least one, by key.
        given: What it gave to its children; a part of `granted`.
        reserved: What it promised to children without a namespace; a part of `given`.
        own: What its ResourceQuota should say.
        kept: What its ResourceQuota said before it was deleted.
        over: What is in use beyond `own`.
        overhang: The sum of `over` of its children, which no other child can get.
        used_below: What it and everything below it uses.
        revoked: Its grant was taken back, because the tenant's quota no longer suffices.
        blocked: Why it has less than it requests.
        unsettled: Children whose requests, namespaces or neighbours have changed since they were decided.
        waiting: Children that wait for more quota, or for their namespace.
        was_in_force: Kubernetes has enforced its ResourceQuota before.
    """

    key: str
    parent: str
    granted: Amounts
    request: ShareRequest | None = None
    namespace: TreeNamespace | None = None
    slice: str = ""
    plane: str = ""
    peer: str = ""
    claims: set[Share] = set()
    defaults: Amounts = {}
    lacking: dict[str, set[Share]] = {}
    given: Amounts = {}
    reserved: Amounts = {}
    own: Amounts = {}
    kept: Amounts = {}
    over: Amounts = {}
    overhang: Amounts = {}
    used_below: Amounts = {}
    revoked: bool = False
    blocked: Shortage | None = None
    unsettled: set[Share] = set()
    waiting: set[Share] = set()
    was_in_force: bool = False

    def kept_as(self, amounts: Amounts) -> Amounts:
        """Record what its deleted ResourceQuota said, and return it."""
        self.kept = amounts
        return amounts

    def set_lacking(self, child: Share, keys: Collection[str]) -> None:
        """Record of which keys a child is to get a default, or a larger one."""
        for key in [key for key, children in self.lacking.items() if child in children and key not in keys]:
            self.lacking[key].discard(child)
            if not self.lacking[key]:
                del self.lacking[key]
        for key in keys:
            self.lacking.setdefault(key, set()).add(child)

    @property
    def wanted(self) -> Amounts:
        """Return what it requests, with its defaults; what it has if its request is gone."""
        if self.request is None:
            return self.granted
        if not self.defaults:
            return self.request.hard
        return {**self.request.hard, **{key: self.defaults.get(key, 0) for key in self.request.unnamed}}

    @property
    def order(self) -> tuple[str, str, str]:
        """Return the sort key by which requests are served."""
        request = self.request
        return (request.created, request.name, self.key) if request is not None else ("", "", self.key)

    @property
    def name(self) -> str:
        """Return the name that messages use."""
        if self.request is not None:
            return self.request.name
        return self.namespace.name if self.namespace is not None else self.key

    @property
    def is_claim(self) -> bool:
        """Return whether this is a claim, which has no namespace of its own."""
        return self.slice != "" or self.plane != "" or self.peer != ""

    @property
    def is_charged(self) -> bool:
        """Return whether this is a claim that holds or requests a part of the tenant's quota."""
        requested = self.request.hard if self.request is not None else {}
        return self.is_claim and (any(requested.values()) or any(self.granted.values()))

    @property
    def lasts(self) -> bool:
        """Return whether its Subnamespace or claim exists and is not being deleted."""
        return self.request is not None and not self.request.deleting


class ShareQueue:
    """A priority queue that holds each share at most once."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Share]] = []
        self._keys: set[str] = set()
        self._order = 0

    def add(self, share: Share, rank: int) -> None:
        """Queue a share; a share that is queued already keeps its rank."""
        if share.key not in self._keys:
            self._keys.add(share.key)
            self._order += 1
            heapq.heappush(self._heap, (rank, self._order, share))

    def pop(self) -> Share | None:
        """Return the first share of the lowest rank, None if the queue is empty."""
        if not self._heap:
            return None
        share = heapq.heappop(self._heap)[2]
        self._keys.discard(share.key)
        return share

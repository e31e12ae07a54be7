"""The share that a namespace has at a peer, and how it grows and shrinks there: pure.

A share at a peer is a claim in the tree of the tenant at home: its namespace is charged all of it, and no ResourceQuota
of the home has it. The record of it is in the status of the TenantResourceQuota, where batches are written ahead, too.

Invariant, at every moment and whatever the network does: the ResourceQuotas of the tree and the amounts `held` of all
records sum up to no more than `status.hard`, and no peer holds more than `held` says.

1. Grow: the home shrinks; the record is written; then the peer is raised.
2. Shrink, in reverse: the record says what remains (`given`); the peer is lowered; its use is compared; `held` is
   lowered; the home grows.
3. A record is changed by a PUT of the TenantResourceQuota at a resourceVersion. So no batch and no other change of a
   record can come in between. A new `given` has a new number: the resourceVersion that it was decided on.
4. Every write at the peer names the resourceVersion of the object there, and leaves the number of the record on it,
   also if the amounts are right already. That write is the fence: a larger one that was sent before, and has no answer
   yet, names an older resourceVersion. A peer confirms a record with its number.
5. A replica reads the record again, from the API server, after it has read the object that it is to raise, because its
   cache of the record may be older than the object. The object is created with nothing, and raised by a second write.

6. Pods that a silent peer may still run, although home has let them go (`lost`), are held in the same record. The peer
   is given nothing for them, so its number stays. They leave `lost` when the peer has shown that they are gone.

Example, for one key: the tenant has 10, its only namespace `acme` holds 10, and peer `b` is to get 4, then 1.

    ResourceQuota acme       10 -> 6              the division gives 4 to the claim
    record acme, b           50: held 4, given 4  written at version 50 of the TenantResourceQuota
    peer b                   0 -> 4, marked 50    the sum is 10
    record acme, b           61: held 4, given 1
    peer b                   4 -> 1, marked 61    uses at most 1: the peer confirms 61
    record acme, b           61: held 1, given 1
    ResourceQuota acme       6 -> 9               the sum is 10
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tenantry.api.tenantresourcequota import MAX_REMOTE
from tenantry.world.shares.amounts import Amounts, RemoteShare, add, fits, higher, lower, total
from tenantry.world.shares.share import PEER, Share, ShareRequest
from tenantry.world.shares.tree import Tree

MARK = "peer share"

RemoteKey = tuple[str, str]
"""A namespace at home, and a peer."""


class PeerQuota(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace has at a peer, as it was last seen.

    Args:
        version: The resourceVersion of the object.
        hard: What it says now, beside what follows pods.
        number: Of the record that was written last; 0 for none.
        reach: What the peer may still enforce, or has in use, beside what follows pods.
    """

    version: str
    hard: Amounts
    number: int = 0
    reach: Amounts = {}


class RereadRecord(msgspec.Struct, frozen=True):
    """GET the TenantResourceQuota: the object at the peer may be newer than the record that is known."""


class PeerWrite(msgspec.Struct, frozen=True, kw_only=True):
    """Change the object at the peer at a resourceVersion.

    Args:
        version: The resourceVersion.
        hard: What it should say, beside what follows pods.
        number: Of the record; it is left on the object.
    """

    version: str
    hard: Amounts
    number: int


def uid(key: RemoteKey) -> str:
    """Return the key of a share in the tree; the uid of an object never has a space."""
    return f"{MARK} {key[0]} {key[1]}"


# -- at home --------------------------------------------------------------------------------------


def put_requests(tree: Tree, records: Iterable[RemoteShare]) -> None:
    """Take in the records and the wishes as claims, once their namespaces are in the tree.

    Those beyond the most records that a TenantResourceQuota has get nothing, so that it can be written.
    """
    known = {each.key: each for each in records}
    new = sorted(tree.remote.keys - known.keys())
    tree.remote.left_out = frozenset(new[max(0, MAX_REMOTE - len(known)) :])
    for key in {*known, *tree.remote.keys}:
        if tree.namespace(key[0]) is not None:
            asked = _request(key, known.get(key), total([_wanted(tree, key), _lost(tree, key)]))
            tree.put_request(asked)
            _take(tree, tree.shares[asked.uid], asked.charged)
    for share in [each for each in tree.claims if each.peer]:
        if (share.parent, share.peer) not in {*known, *tree.remote.keys}:
            tree.drop_request(share.key)


def _take(tree: Tree, share: Share, charged: Amounts) -> None:
    """Give a claim what another replica has recorded for it: no division can take that back."""
    parent = tree.parent_of(share)
    least = {key: value for key, value in charged.items() if key in tree.keys}
    if parent is not None and not fits(least, share.granted):
        tree.grant(parent, share, higher(share.granted, least))
        tree.unsettle(parent)


def _wanted(tree: Tree, key: RemoteKey) -> Amounts:
    return _limited(tree, key, tree.remote.wanted)


def _lost(tree: Tree, key: RemoteKey) -> Amounts:
    return _limited(tree, key, tree.remote.lost)


def _limited(tree: Tree, key: RemoteKey, amounts: Mapping[RemoteKey, Amounts]) -> Amounts:
    """Return the amounts that the quota of the tenant limits."""
    found = {} if key in tree.remote.left_out else amounts.get(key, {})
    return {name: found[name] for name in tree.keys if found.get(name, 0) > 0}


def _request(key: RemoteKey, record: RemoteShare | None, wanted: Amounts) -> ShareRequest:
    """Return a share as a claim: it keeps what is recorded until the peer has given it back."""
    held = record.held if record is not None else {}
    hard = higher(wanted, held)
    return ShareRequest(uid=uid(key), name=f"{PEER}{key[1]}", parent=key[0], peer=key[1], hard=hard, charged=held)


def held(records: Iterable[RemoteShare]) -> Amounts:
    """Return what all peers may hold."""
    found: Amounts = {}
    for each in records:
        add(found, each.held)
    return found


def next_records(tree: Tree, records: Sequence[RemoteShare], *, version: int, limit: Amounts) -> list[RemoteShare]:
    """Return the records as they should be written now.

    Args:
        tree: The tree, divided with the records as claims; no batch is under way.
        records: As they are.
        version: The resourceVersion of the TenantResourceQuota that has them.
        limit: What all ResourceQuotas and all records may sum up to.
    """
    known = {each.key: each for each in records}
    freed = {key: _freed(tree, each) for key, each in known.items()}
    total = held(freed.values())
    add(total, tree.reach)
    room = {key: value - total.get(key, 0) for key, value in limit.items()}
    found: list[RemoteShare] = []
    for key in sorted({*known, *tree.remote.keys}):
        before = freed.get(key, RemoteShare(namespace=key[0], peer=key[1]))
        after = _next(before, _wanted(tree, key), _lost(tree, key), _granted(tree, key), room)
        if after.given != before.given:
            after = msgspec.structs.replace(after, number=version)
        if after.held or after.given:
            found.append(after)
    return found


def _freed(tree: Tree, record: RemoteShare) -> RemoteShare:
    """Return a record that holds no more than was given, and what was lost, if the peer has confirmed that."""
    # Without a number, the peer never got anything: what is held is for pods that were let go.
    is_confirmed = not record.number or tree.remote.confirmed.get(record.key) == record.number
    if not is_confirmed and record.peer not in tree.remote.given_up:
        return record
    most = total([record.given, _lost(tree, record.key)])
    return msgspec.structs.replace(record, held=_positive(lower(most, record.held)))


def _granted(tree: Tree, key: RemoteKey) -> Amounts:
    share = tree.shares.get(uid(key))
    return share.granted if share is not None else {}


def _next(record: RemoteShare, wanted: Amounts, lost: Amounts, granted: Amounts, room: Amounts) -> RemoteShare:
    """Return a record that gives what is wanted: what is above it is taken back, and all that it lacks or nothing."""
    given, whole = _positive(lower(record.given, wanted)), total([wanted, lost])
    more = {key: max(0, value - record.held.get(key, 0)) for key, value in whole.items()}
    # What is held already may be given again without room.
    if fits(whole, higher(granted, record.held)) and fits(_positive(more), room):
        add(room, more, -1)
        return msgspec.structs.replace(record, given=dict(wanted), held=higher(record.held, whole))
    return msgspec.structs.replace(record, given=given)


def _positive(amounts: Mapping[str, int]) -> Amounts:
    return {key: value for key, value in amounts.items() if value > 0}


# -- at the peer ----------------------------------------------------------------------------------


def peer_step(record: RemoteShare | None, there: PeerQuota, *, is_fresh: bool) -> PeerWrite | RereadRecord | None:
    """Return what to do about the object at the peer; None if it follows the record.

    Args:
        record: The record; None if the peer should hold nothing.
        there: The object.
        is_fresh: The record was read from the API server after the object.
    """
    number, given = (record.number, record.given) if record is not None else (0, {})
    follows = _positive(there.hard) == given
    # After the end of a record, its last number stays on the object.
    if follows and (there.number == number or record is None):
        return None
    if not is_fresh and (there.number > number or not fits(given, there.hard)):
        return RereadRecord()
    return PeerWrite(version=there.version, hard=dict(given), number=number)


def confirms(record: RemoteShare, there: PeerQuota | None) -> bool:
    """Return whether the peer holds, enforces and uses no more than a record gives, and no late write changes that.

    Args:
        record: The record, as it was when the object was read, or earlier.
        there: The object; None if the peer has none.
    """
    if there is None:
        # One that is created later has nothing, and is raised by what the record says by then.
        return not record.given
    return there.number == record.number and fits(there.hard, record.given) and fits(there.reach, record.given)

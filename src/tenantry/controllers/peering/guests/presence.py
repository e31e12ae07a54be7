"""Whether a guest still lives, and which cluster it is: pure.

The home renews its Lease here every ten seconds. By the clock of this cluster, after the last renewal that was seen:

    leaseSeconds ─► its Tenant is suspended; the first renewal resumes it
    keepSeconds more ─► its Tenant is deleted, with everything in it

The Lease names the cluster id of the home. It must be the one in the guest half, if that states one; otherwise the
first one is recorded. Another one is refused, because the names of namespaces here are of that id. The home writes its
Lease itself, so an id that another guest half states, or has recorded, counts as taken.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.peercluster import CONTENDER, MAX_REPORTED, PeerCluster, PeerGuest
from tenantry.engine.clock import rfc3339
from tenantry.engine.lease import Lease
from tenantry.engine.plan import Blocked
from tenantry.world.leases import instant

CONTACT_PARTS = 10
"""The time of the last contact is written at most so often in `leaseSeconds`."""


class Stage(StrEnum):
    """What becomes of a guest."""

    SERVED = "Served"
    SUSPENDED = "Suspended"
    ENDED = "Ended"


class GuestPresence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a guest.

    Args:
        stage: What becomes of it.
        guest_id: The id of the home; "" before the first contact, unless it is stated.
        last_contact: When the home was last seen to renew its Lease; "" before the first contact.
        twice: Another home that waits for the Lease; "" for none.
        problem: Why the home is not served as it is; None if it is.
        next_seconds: When the stage changes without a renewal.
    """

    stage: Stage = Stage.SERVED
    guest_id: str = ""
    last_contact: str = ""
    twice: str = ""
    problem: Blocked | None = None
    next_seconds: float | None = None


def judge(
    found: PeerCluster,
    half: PeerGuest,
    lease: Lease | None,
    *,
    seen: str | None,
    taken: Iterable[str],
    now: dt.datetime,
) -> GuestPresence:
    """Return what is known of a guest now.

    Args:
        found: The PeerCluster.
        half: Its guest half.
        lease: The Lease of its home; None if there is none yet.
        seen: The renewal that was seen last; None before the first look, when only a later one than the last contact
            counts.
        taken: The ids of this cluster and of the homes that other guest halves state or have recorded.
        now: The time.
    """
    status = found.status
    renewed = (lease.spec.renew_time or "") if lease is not None else ""
    holder = (lease.spec.holder_identity or "") if lease is not None else ""
    is_news = bool(renewed) and (renewed != seen if seen is not None else _is_later(renewed, status.last_contact))
    # The time begins with the first look: a home of an earlier version may have been served before.
    contact = _contact(status.last_contact, half, now) if is_news or not status.last_contact else status.last_contact
    # What the administrator states counts, whatever another guest claims.
    known_id = half.cluster_id or status.guest_id
    now_id = holder.partition("/")[0][:MAX_REPORTED]
    problem = None
    if now_id and now_id != half.cluster_id and now_id in set(taken):
        problem = Blocked(
            reason=reasons.IDENTITY_TAKEN,
            message=f"the home has the id {now_id!r}, which this cluster or another guest has: each home must be a"
            " cluster of its own",
        )
    elif now_id and known_id and now_id != known_id:
        problem = Blocked(
            reason=reasons.IDENTITY_CHANGED,
            message=f"the home has the id {now_id!r}, and must be {known_id!r}: for another cluster, delete the"
            " PeerCluster and create it again",
        )
    else:
        known_id = known_id or now_id
    stage, left = _stage(contact, half, now)
    if stage is not Stage.SERVED and problem is None:
        words = {Stage.SUSPENDED: "it is suspended until the home is back", Stage.ENDED: "its Tenant is deleted"}[stage]
        problem = Blocked(
            reason=reasons.GUEST_SILENT,
            message=f"the home was last seen at {contact}: {words}",
        )
    return GuestPresence(
        stage=Stage.SUSPENDED if stage is Stage.SERVED and problem is not None else stage,
        guest_id=known_id,
        last_contact=contact,
        twice=lease.metadata.annotations.get(CONTENDER, "")[: 4 * MAX_REPORTED] if lease is not None else "",
        problem=problem,
        next_seconds=left,
    )


def _time(text: str) -> dt.datetime | None:
    """Return a time that a home wrote; None if it is none."""
    try:
        return instant(text)
    except InputError:
        return None


def _is_later(renewed: str, contact: str) -> bool:
    one, other = _time(renewed), _time(contact)
    return one is not None and (other is None or one > other)


def _contact(before: str, half: PeerGuest, now: dt.datetime) -> str:
    """Return the time of a contact as it is written: not with each renewal."""
    last = _time(before)
    if last is not None and now - last < dt.timedelta(seconds=half.lease_seconds / CONTACT_PARTS):
        return before
    return rfc3339(now)


def _stage(since: str, half: PeerGuest, now: dt.datetime) -> tuple[Stage, float | None]:
    """Return the stage of a guest, and in how many seconds the next one begins."""
    last = _time(since)
    if last is None:
        return Stage.SERVED, None
    silence = (now - last).total_seconds()
    if silence < half.lease_seconds:
        return Stage.SERVED, half.lease_seconds - silence
    if silence < half.lease_seconds + half.keep_seconds:
        return Stage.SUSPENDED, half.lease_seconds + half.keep_seconds - silence
    return Stage.ENDED, None

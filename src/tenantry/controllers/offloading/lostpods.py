"""The pods of a peer that is given up: which of them are let go, and what they may still use there. Pure.

    pods on the Node ─► record(): their uids, and what they request ─► the quota of the tenant holds that
                     ─► releases(): their deletion at home, without the word of the peer

The uids are recorded before any pod is deleted, so that each counts once, also if the operator stops in between. A pod
is let go if it was sent, or is being deleted: one that the peer has not got waits for the peer, or for another Node.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable

from tenantry.api import reasons
from tenantry.api.offloading import LostPods
from tenantry.api.peercluster import PeerCluster
from tenantry.controllers.evictions import deletion
from tenantry.controllers.offloading.leaving import BoundPod, has_ended
from tenantry.controllers.peering.status import SILENT_SECONDS, UNKNOWN_SECONDS
from tenantry.engine import conditions
from tenantry.engine.plan import DirectWrite
from tenantry.world.leases import instant
from tenantry.world.podcharges import charge
from tenantry.world.shares.amounts import RemoteShare, add, fits, read, spelled


def is_silent(found: PeerCluster, now: dt.datetime) -> bool:
    """Return whether a peer has been silent, or has refused this cluster, for so long that its Node is not ready."""
    reachable = conditions.find(found.status.conditions, reasons.REACHABLE)
    if reachable is None or reachable.status == "True":
        return False
    # The condition changes when the peer has been silent for some time already.
    return (now - instant(reachable.last_transition_time)).total_seconds() >= SILENT_SECONDS - UNKNOWN_SECONDS


def is_concerned(pod: BoundPod) -> bool:
    """Return whether a pod on the Node of a peer may run there."""
    return not has_ended(pod) and (pod.is_sent or bool(pod.metadata.deletion_timestamp))


def record(
    before: LostPods | None, pods: Iterable[BoundPod], *, tenant: str, holds: bool, most: int
) -> LostPods | None:
    """Return the pods of a namespace that are let go; None for none.

    Args:
        before: Those that are recorded already.
        pods: Those on the Node.
        tenant: The Tenant of the namespace.
        holds: Whether its quota holds what they use.
        most: How many more pods are recorded.
    """
    known = set(before.uids) if before is not None else set[str]()
    new = [each for each in pods if is_concerned(each) and each.metadata.uid not in known][:most]
    if before is None and not new:
        return None
    hard = read(before.hard) if before is not None else {}
    for each in new:
        add(hard, charge(each.spec))
    return LostPods(
        tenant=before.tenant if before is not None else tenant,
        uids=(*(before.uids if before is not None else ()), *(each.metadata.uid for each in new)),
        hard=spelled(hard),
        holds=holds,
        released=before is not None and before.released and not new,
    )


def is_held(lost: LostPods, share: RemoteShare | None, limited: Collection[str]) -> bool:
    """Return whether pods may be let go: the quota holds what they use, or need not.

    Args:
        lost: The pods.
        share: The record of what the peer holds for their namespace; None for none.
        limited: The keys that the quota of their tenant limits.
    """
    wanted = {key: value for key, value in read(lost.hard).items() if key in limited and value}
    if not lost.holds or not wanted:
        return True
    if share is None:
        return False
    add(wanted, {key: share.given.get(key, 0) for key in wanted})
    return fits(wanted, share.held)


def releases(pods: Iterable[BoundPod], lost: LostPods) -> list[DirectWrite]:
    """Return the deletions of pods that are let go."""
    uids = set(lost.uids)
    found = [each.metadata for each in pods if each.metadata.uid in uids and not has_ended(each)]
    return [deletion(each.namespace, each.name, each.uid, grace_period_seconds=0) for each in found]

"""What a PeerCluster reports while it is given up: pure."""

from __future__ import annotations

from msgspec import UnsetType

from tenantry.api import reasons
from tenantry.api.offloading import MOST_LOST, NamespaceMap
from tenantry.api.peercluster import PeerCluster
from tenantry.api.wording import shortened
from tenantry.engine.conditions import Wanted


def condition(found: PeerCluster, known: NamespaceMap | None, *, answers: bool) -> Wanted | None:
    """Return the condition GivenUp; None if the peer is not given up.

    Args:
        found: The PeerCluster.
        known: Its NamespaceMap; None for none.
        answers: Whether the peer answers.
    """
    if not found.give_up:
        return None
    if answers:
        words = "the peer answers again: what it still runs of the pods that were let go is deleted there"
        return Wanted(reasons.GIVEN_UP, False, reasons.PEER_IS_BACK, words)
    if known is None:
        return Wanted(reasons.GIVEN_UP, True, reasons.PODS_LET_GO, "no pods of this cluster were at the peer")
    progress = known.status.give_up
    if isinstance(progress, UnsetType) or progress.request != found.give_up:
        words = "the pods are let go when the peer has been silent for so long that its Node is not ready"
        return Wanted(reasons.GIVEN_UP, False, reasons.PEER_NOT_SILENT, words)
    gone = f"{progress.pods} pods were let go; they may run at the peer until it is back"
    if not progress.waiting:
        return Wanted(reasons.GIVEN_UP, True, reasons.PODS_LET_GO, gone)
    return _waits(known, f"{gone}; {progress.waiting} pods wait")


def _waits(known: NamespaceMap, words: str) -> Wanted:
    """Return the condition while pods are not let go, with the cause."""
    lost = known.status.lost
    if sum(len(each.uids) for each in lost.values()) >= MOST_LOST:
        words += f": no more than {MOST_LOST} are recorded for one peer; they go when it is back, or it is removed"
        return Wanted(reasons.GIVEN_UP, False, reasons.LIMIT_REACHED, words)
    waiting = sorted(name for name, each in lost.items() if not each.released)
    words += (
        f", in {shortened(waiting)}: the quota has no room for what they may still use at the peer; raise the quota,"
        " delete other pods, or set spec.forgetUnreachable of the NamespaceOffloading"
    )
    return Wanted(reasons.GIVEN_UP, False, reasons.QUOTA_INSUFFICIENT, words)


def is_over(found: PeerCluster, known: NamespaceMap | None, *, answers: bool) -> bool:
    """Return whether a peer that was given up is used again: it is back, and runs none of the pods that were let go."""
    return bool(found.give_up) and answers and (known is None or not known.status.lost)

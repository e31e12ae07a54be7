"""When a PeerCluster that is being deleted is removed, although its namespaces are still at the peer: pure.

    nothing is left ─────────────────────────────────────────────────► removed
    the peer is silent, or nothing can be written there, for 10 s ───► given up
    it answers, and its namespaces do not end in time ───────────────► given up

In the third case, the operator of the peer may be stopped, or the peer may lie. Neither must keep the finalizers of a
tenant's namespaces for ever. Without its Lease, this home must not write at the peer: its copy works there.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec

from tenantry.api.wording import shortened

GIVE_UP_SECONDS = 10.0
"""How long a deleted PeerCluster waits for a peer at which nothing can be written."""

MOST_SECONDS = 600.0
"""How long it waits for a peer that answers: pods leave within their budgets for a minute, and then end in time."""

MOST_SECONDS_AT_ONCE = 60.0
"""The same, if the pods do not leave within their budgets."""


class Removal(StrEnum):
    """What becomes of a PeerCluster that is being deleted."""

    WAIT = "Wait"
    FINISH = "Finish"
    GIVE_UP = "GiveUp"


class RemovalInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about a PeerCluster that is being deleted.

    Args:
        left: The namespaces that should be at the peer, or are.
        silence: For how many seconds nothing could be written at the peer; 0 if that is possible.
        deleting: For how many seconds the PeerCluster has been deleted.
        at_once: Its pods do not leave within their budgets.
    """

    left: Collection[str]
    silence: float
    deleting: float
    at_once: bool = False


def decide(inputs: RemovalInputs) -> Removal:
    """Return what becomes of a PeerCluster that is being deleted."""
    if not inputs.left:
        return Removal.FINISH
    most = MOST_SECONDS_AT_ONCE if inputs.at_once else MOST_SECONDS
    if inputs.silence >= GIVE_UP_SECONDS or inputs.deleting >= most:
        return Removal.GIVE_UP
    return Removal.WAIT


def leftovers(inputs: RemovalInputs, guest: str) -> str:
    """Return what may be left at a peer that is given up, and what to do about it.

    Args:
        inputs: What decided about it.
        guest: The PeerCluster at the peer that serves this home.
    """
    why = "nothing could be written at the peer" if inputs.silence >= GIVE_UP_SECONDS else "the peer did not end them"
    return (
        f"namespaces may be left at the peer, with pods that run: {shortened(inputs.left)}: {why}; delete PeerCluster"
        f" {guest!r} there"
    )

"""The pods of a namespace that leaves a peer: which of them are evicted, and which deleted. Pure.

since ──── disruption budgets hold ────┬──►
evicted                                │ deleted
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.api.model import ObjectMeta
from tenantry.api.offloading import MappedNamespace, MapPhase
from tenantry.api.peercluster import PREFIX
from tenantry.controllers.evictions import deletion, eviction
from tenantry.engine.plan import DirectWrite
from tenantry.world.podrequests import PodSpecRequests

PATIENCE_SECONDS = 60.0
"""After which pods are deleted that disruption budgets keep: a tenant must not keep a peer by a budget of its own."""

SENT = f"{PREFIX}/Mirrored"
"""The condition of a pod that has, or had, a pod at the peer: see `Profile.condition`."""

_ENDED = ("Succeeded", "Failed")


class PodState(msgspec.Struct, frozen=True):
    """A condition of a pod."""

    type: str
    status: str


class BoundStatus(msgspec.Struct, frozen=True):
    """The status of a pod."""

    phase: str = ""
    conditions: tuple[PodState, ...] | None = None


class BoundPod(msgspec.Struct, frozen=True):
    """A pod that is bound to the Node of a peer."""

    metadata: ObjectMeta
    spec: PodSpecRequests = PodSpecRequests()
    status: BoundStatus = BoundStatus()

    @property
    def is_sent(self) -> bool:
        """Return whether it has, or had, a pod at the peer, and has not ended."""
        conditions = self.status.conditions or ()
        is_recorded = any((each.type, each.status) == (SENT, "True") for each in conditions)
        return is_recorded and self.status.phase not in _ENDED


def has_ended(pod: BoundPod) -> bool:
    """Return whether all containers of a pod have ended."""
    return pod.status.phase in _ENDED


def is_gone(known: MappedNamespace | None) -> bool:
    """Return whether nothing of a namespace runs at the peer."""
    return known is None or (
        known.phase in {MapPhase.LOST, MapPhase.REFUSED, MapPhase.NAME_TAKEN} and not known.peer_namespace
    )


def departures(pods: Iterable[BoundPod], known: MappedNamespace | None, seconds: float) -> list[DirectWrite]:
    """Return what to do with the pods of a namespace that are bound to the Node of a peer that it leaves.

    Args:
        pods: The pods.
        known: The namespace at the peer; None for none.
        seconds: Since when it leaves.
    """
    return [write for each in pods if (write := _departure(each, known, seconds)) is not None]


def _departure(pod: BoundPod, known: MappedNamespace | None, seconds: float) -> DirectWrite | None:
    meta = pod.metadata
    if pod.status.phase in _ENDED:
        return None
    if pod.is_sent and is_gone(known):
        # Nothing else ends it: its pod, and the namespace of that, are gone.
        return deletion(meta.namespace, meta.name, meta.uid, grace_period_seconds=0)
    if meta.deletion_timestamp:
        return None
    if seconds >= PATIENCE_SECONDS:
        return deletion(meta.namespace, meta.name, meta.uid)
    return eviction(meta.namespace, meta.name, meta.uid)

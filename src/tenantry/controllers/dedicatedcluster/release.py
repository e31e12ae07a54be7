"""What becomes of the nodes of a DedicatedCluster that sleeps: pure.

With `spec.sleep.nodes: Release`, a cluster is drained while its control plane is awake, and sleeps without nodes:

    awake ─► a request to sleep, or asleep by itself ─► Releasing: handovers and claims end, for which it wakes
    Releasing ─► they are gone ─► Sleeping: the control plane gets the request to sleep
    Sleeping ─► asleep ─► Released
    Released ─► a client, a request or its spec has woken the control plane ─► it claims nodes again

The stage is in the status, so that an operator goes on where another one has ended.
"""

from __future__ import annotations

from tenantry.api.dedicatedcluster import DedicatedCluster, SleepingNodes, SleepStage
from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.virtualcontrolplane import MAX_REQUEST, PlanePhase
from tenantry.controllers.dedicatedcluster import contributed
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.engine.clock import rfc3339


def pending(found: DedicatedCluster) -> PlanePhase | None:
    """Return the phase that a user requests, and that was not brought to the control plane; None for nothing."""
    value = found.metadata.annotations.get(REQUESTED_PHASE, "")
    if not value or len(value) > MAX_REQUEST or value == found.status.requests.phase:
        return None
    word = value.partition(" ")[0]
    return PlanePhase(word) if word in (PlanePhase.ASLEEP, PlanePhase.AWAKE) else None


def is_without_nodes(stage: SleepStage) -> bool:
    """Return whether a cluster has no nodes in a stage."""
    return stage is not SleepStage.NONE


def is_held_back(inputs: ClusterInputs) -> bool:
    """Return whether a request to sleep waits for the nodes."""
    found = inputs.found
    is_released = found.spec.sleep.nodes is SleepingNodes.RELEASE
    has_nodes = found.status.sleep in (SleepStage.NONE, SleepStage.RELEASING)
    return is_released and has_nodes and pending(found) is PlanePhase.ASLEEP


def stage(inputs: ClusterInputs) -> SleepStage:
    """Return the next stage of a cluster."""
    found, plane, before = inputs.found, inputs.own_plane, inputs.found.status.sleep
    is_released = found.spec.sleep.nodes is SleepingNodes.RELEASE and not found.spec.paused
    asked = pending(found)
    if not is_released or plane is None or found.metadata.deletion_timestamp or asked is PlanePhase.AWAKE:
        return SleepStage.NONE
    is_asleep = plane.status.phase is PlanePhase.ASLEEP
    if before is SleepStage.NONE:
        begins = (is_asleep or asked is PlanePhase.ASLEEP) and bool(plane.status.kubeconfig_secret)
        return SleepStage.RELEASING if begins else SleepStage.NONE
    if before is SleepStage.RELEASING:
        return SleepStage.SLEEPING if _are_gone(inputs) else before
    if is_asleep:
        return SleepStage.RELEASED
    if before is SleepStage.SLEEPING and plane.status.handled_request != found.status.requests.sleep:
        return before
    return SleepStage.NONE


def next_request(inputs: ClusterInputs) -> str:
    """Return the request to sleep of the stage Sleeping, which is made when that begins."""
    found, plane = inputs.found, inputs.own_plane
    before, following = found.status.sleep, stage(inputs)
    if following is not SleepStage.SLEEPING or plane is None:
        return ""
    if before is SleepStage.SLEEPING:
        return found.status.requests.sleep
    if pending(found) is PlanePhase.ASLEEP:
        return found.metadata.annotations[REQUESTED_PHASE]
    return f"{PlanePhase.ASLEEP} {rfc3339(inputs.now)} {plane.status.wakes}"


def sleep_request(inputs: ClusterInputs) -> str:
    """Return the request that the control plane gets; "" for none."""
    found, plane = inputs.found, inputs.own_plane
    if found.status.sleep is not SleepStage.SLEEPING or plane is None or plane.status.phase is PlanePhase.ASLEEP:
        return ""
    return found.status.requests.sleep


def _are_gone(inputs: ClusterInputs) -> bool:
    # Machines from outside are no nodes of the host: they stay members of a cluster that sleeps.
    return all(map(contributed.is_outside, inputs.handovers.values())) and not inputs.own_claims

"""Decides when a control plane sleeps, and what wakes it: pure.

    awake    activity, pods of both sides, due times ─► Sleep(next wake) | StayAwake(reason, when to look again)
    asleep   status, time, digest of the pods on the host ─► why it wakes; "" if it sleeps on

What wakes it is read from state alone, so that nothing is missed while no operator runs.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.virtualcontrolplane import (
    MAX_REQUEST,
    PlanePhase,
    SleepWorkloads,
    VirtualControlPlane,
    VirtualControlPlaneStatus,
)
from tenantry.api.wording import shortened
from tenantry.controllers.joining import certificates
from tenantry.controllers.virtualcontrolplane import rotation
from tenantry.engine.clock import rfc3339
from tenantry.engine.conditions import Wanted, find, merge
from tenantry.hosting.reports import Activity
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import PODS

SOON_SECONDS = 60
"""An event that is due within this time is waited for: a sleep would not pay."""

LOOK_AGAIN_SECONDS = 30.0
"""When to look again at what ends without an event for this controller, as a pending pod."""

RENEWAL_SECONDS = 600.0
"""How long a control plane that is to sleep waits for certificates of its nodes: a kubelet tries every half minute."""

RENEWAL = "certificates of its nodes are renewed, for at most 10 minutes"

MOST_SLEEP = dt.timedelta(days=7)
"""The longest sleep: each start renews the certificates that are due, so that the users' never end in their Secret."""

_ENDED = ("Succeeded", "Failed")


class SleepInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a control plane that is awake sleeps.

    Args:
        now: The time.
        after_seconds: `spec.sleep.afterIdleSeconds`.
        is_requested: A user requests that it sleeps, whatever else happens.
        activity: What its process reports.
        is_busy: The mirror writes.
        waiting: The keys of pods that wait for the mirror, the host or their end.
        renewal: When the first token of its pods is renewed; None for never.
        certificate: When the first certificate of its nodes ends; None for never.
        following: When the first of those ends that are not due yet; None for never.
        waited_seconds: How long it has stayed awake for certificates already.
        is_converting: The objects of its tenant are about to move into it or out of it, or do.
    """

    now: dt.datetime
    after_seconds: int
    is_requested: bool = False
    activity: Activity
    is_busy: bool = False
    waiting: Sequence[str] = ()
    renewal: dt.datetime | None = None
    certificate: dt.datetime | None = None
    following: dt.datetime | None = None
    waited_seconds: float = 0.0
    is_converting: bool = False


class Sleep(msgspec.Struct, frozen=True, kw_only=True):
    """The control plane sleeps now.

    Args:
        next_wake: When it wakes at the latest.
        message: For the condition Ready.
    """

    next_wake: dt.datetime
    message: str


class StayAwake(msgspec.Struct, frozen=True, kw_only=True):
    """The control plane stays awake.

    Args:
        reason: Why, for the log.
        again_seconds: When to look again; None to wait until its clients are idle again.
        is_renewal: Certificates of its nodes are waited for.
    """

    reason: str
    again_seconds: float | None = None
    is_renewal: bool = False


def decide(given: SleepInputs) -> Sleep | StayAwake:
    """Return whether a control plane sleeps now."""
    activity = given.activity
    if activity.error:
        return StayAwake(reason=f"the next event is not known: {activity.error}", again_seconds=LOOK_AGAIN_SECONDS)
    if given.is_converting:
        # Also by request: the request is handled afterwards.
        return StayAwake(reason="the objects of its tenant move", again_seconds=LOOK_AGAIN_SECONDS)
    rotation_due = _due(given.certificate)
    if rotation_due is not None and rotation_due <= given.now + dt.timedelta(seconds=SOON_SECONDS):
        if given.waited_seconds < RENEWAL_SECONDS:
            # Also by request.
            return StayAwake(reason=RENEWAL, again_seconds=LOOK_AGAIN_SECONDS, is_renewal=True)
        # A kubelet that does not renew its own must not keep it awake.
        rotation_due = _due(given.following)
    times = (activity.next_event, given.renewal, rotation_due, given.now + MOST_SLEEP)
    next_wake = min(each for each in times if each is not None)
    if given.is_requested:
        return Sleep(next_wake=next_wake, message=_by_request(given))
    obstacle = _obstacle(given, (next_wake - given.now).total_seconds())
    if obstacle is not None:
        return obstacle
    return Sleep(next_wake=next_wake, message=f"it sleeps after {given.after_seconds} s without a request; {_AWAKENED}")


def _due(certificate: dt.datetime | None) -> dt.datetime | None:
    return certificate - certificates.MARGIN if certificate is not None else None


def _obstacle(given: SleepInputs, left: float) -> StayAwake | None:
    """Return why a control plane stays awake that sleeps by itself only, if it does.

    Args:
        given: The inputs.
        left: The seconds until the next event.
    """
    activity, found = given.activity, None
    if not given.after_seconds:
        found = StayAwake(reason="spec.sleep.afterIdleSeconds is 0")
    elif activity.open_requests or activity.idle_seconds < given.after_seconds:
        found = StayAwake(reason="clients are active")
    elif given.is_busy:
        found = StayAwake(reason="the mirror writes", again_seconds=LOOK_AGAIN_SECONDS)
    elif given.waiting:
        found = StayAwake(reason=f"pods wait: {shortened(given.waiting)}", again_seconds=LOOK_AGAIN_SECONDS)
    elif left <= SOON_SECONDS:
        found = StayAwake(reason="an event is due", again_seconds=max(left, 0.0) + LOOK_AGAIN_SECONDS)
    return found


_AWAKENED = "its objects stay, and the next connection starts it"


def _by_request(given: SleepInputs) -> str:
    told = [f"it sleeps by request; {_AWAKENED}"]
    if given.activity.open_requests:
        many = given.activity.open_requests
        told.append("1 open request or watch was ended" if many == 1 else f"{many} open requests or watches were ended")
    if given.waiting:
        told.append(f"pods that wait go on when it is awake: {shortened(given.waiting)}")
    return "; ".join(told)


def waiting(upper: Iterable[CachedPod], lower: Iterable[CachedPod], profile: Profile) -> list[str]:
    """Return the keys of the pods whose two sides are not yet as they stay, sorted.

    Args:
        upper: The pods inside.
        lower: The pods of the same control plane on the host.
        profile: How they are mirrored.
    """
    below = {each.key: each for each in lower}
    found: list[str] = []
    for each in upper:
        phase = each.status.get("phase")
        mirrored = below.pop(profile.lower_key(PODS.kind, each.key), None)
        if each.is_deleting or (phase not in _ENDED and not _runs(phase, mirrored)):
            found.append(each.key)
    # The host's pods without one inside are about to be deleted.
    return sorted([*found, *below])


def _runs(phase: object, mirrored: CachedPod | None) -> bool:
    if mirrored is None or mirrored.is_deleting:
        return False
    return phase == "Running" and mirrored.status.get("phase") == "Running"


def digest(pods: Iterable[CachedPod]) -> str:
    """Return a digest of the pods on the host that changes when one begins, ends or disappears."""
    texts = sorted(f"{each.uid} {each.status.get('phase') in _ENDED} {each.is_deleting}" for each in pods)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def requested(found: VirtualControlPlane) -> PlanePhase | None:
    """Return what a user requests and the operator has not handled yet; None for nothing."""
    value = found.metadata.annotations.get(REQUESTED_PHASE, "")
    if not value or len(value) > MAX_REQUEST or value == found.status.handled_request:
        return None
    word = value.partition(" ")[0]
    return PlanePhase(word) if word in (PlanePhase.ASLEEP, PlanePhase.AWAKE) else None


def wake_reason(
    found: VirtualControlPlane, now: dt.datetime, pods: str, *, is_knocked: bool, is_joined: bool = False
) -> str:
    """Return why a control plane that sleeps wakes; "" if it does not.

    Args:
        found: The control plane.
        now: The time.
        pods: The digest of its pods on the host.
        is_knocked: A client waits for it.
        is_joined: A node of its own is about to join or to leave it.
    """
    status = found.status
    causes = {
        "by request": requested(found) is PlanePhase.AWAKE,
        "a client connects": is_knocked,
        "a node joins or leaves it": is_joined,
        "its spec has changed": found.metadata.generation != status.observed_generation,
        "its credentials are replaced": rotation.is_pending(found),
        "a pod on the host has ended or changed": status.pods_at_sleep not in ("", pods),
        "its time has come": seconds_left(found, now) <= 0,
    }
    return next((reason for reason, holds in causes.items() if holds), "")


def seconds_left(found: VirtualControlPlane, now: dt.datetime) -> float:
    """Return the time until `status.nextWake`; 0 if that is no time."""
    try:
        due = dt.datetime.fromisoformat(found.status.next_wake)
    except ValueError:
        return 0.0
    return max((due - now).total_seconds(), 0.0) if due.tzinfo is not None else 0.0


# -- the status -----------------------------------------------------------------------------------


def asleep(found: VirtualControlPlane, decided: Sleep, pods: str, now: dt.datetime) -> VirtualControlPlaneStatus:
    """Return the status of a control plane that begins to sleep; its process may still run.

    Args:
        found: The control plane.
        decided: The decision.
        pods: The digest of its pods on the host.
        now: The time.
    """
    generation = found.metadata.generation
    wanted = [Wanted(reasons.READY, True, reasons.ASLEEP, decided.message)]
    is_kept = found.spec.sleep.workloads is SleepWorkloads.KEEP
    return replace(
        handled(found),
        observed_generation=generation,
        phase=PlanePhase.ASLEEP,
        next_wake=rfc3339(decided.next_wake),
        # Pods that the operator deletes itself wake nothing.
        pods_at_sleep=pods if is_kept else "",
        conditions=merge(found.status.conditions, wanted, generation=generation, now=rfc3339(now)),
    )


def resting(found: VirtualControlPlane, now: dt.datetime) -> VirtualControlPlaneStatus:
    """Return the status of a control plane whose process has ended.

    Args:
        found: The control plane.
        now: The time.
    """
    settled = replace(handled(found), charged={})
    told = find(settled.conditions, reasons.READY)
    if told is not None and told.reason == reasons.ASLEEP:
        return settled
    # Something else was reported meanwhile, as a namespace that was not known yet.
    wanted = [Wanted(reasons.READY, True, reasons.ASLEEP, f"it sleeps; {_AWAKENED}")]
    generation = found.metadata.generation
    return replace(settled, conditions=merge(settled.conditions, wanted, generation=generation, now=rfc3339(now)))


def waking(found: VirtualControlPlane, reason: str, now: dt.datetime) -> VirtualControlPlaneStatus:
    """Return the status of a control plane that wakes: it requests its share of the quota again."""
    generation = found.metadata.generation
    message = f"the control plane wakes ({reason}): its API server is not usable yet"
    wanted = [
        Wanted(reasons.READY, False, reasons.PROGRESSING, message),
        Wanted(reasons.RECONCILING, True, reasons.PROGRESSING, message, only_true=True),
    ]
    return replace(
        found.status,
        phase=PlanePhase.STARTING,
        next_wake="",
        pods_at_sleep="",
        wakes=found.status.wakes + 1,
        conditions=merge(found.status.conditions, wanted, generation=generation, now=rfc3339(now)),
    )


def handled(found: VirtualControlPlane) -> VirtualControlPlaneStatus:
    """Return the status once the request in the annotation is handled."""
    if requested(found) is None:
        return found.status
    return replace(found.status, handled_request=found.metadata.annotations[REQUESTED_PHASE])

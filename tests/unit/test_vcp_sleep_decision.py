"""When a control plane sleeps, and what wakes it (H01)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import (
    PROCESS_FINALIZER,
    PlanePhase,
    PlaneSleep,
    SleepWorkloads,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
    VirtualControlPlaneStatus,
)
from tenantry.controllers.quota.objects import is_charged, plane_request
from tenantry.controllers.quota.verdicts import ShareVerdict
from tenantry.controllers.virtualcontrolplane import charge, sleep, status
from tenantry.controllers.virtualcontrolplane.sleep import LOOK_AGAIN_SECONDS, MOST_SLEEP, Sleep, SleepInputs, StayAwake
from tenantry.engine.conditions import find
from tenantry.engine.plan import Blocked
from tenantry.hosting.reports import Activity
from tenantry.mirror import things, tokens
from tenantry.mirror.cachedpods import CachedPod
from testkit.mirroring import PROFILE, cached, lower_pod, upper_pod

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
USUAL = {"limits.memory": "256Mi", "requests.cpu": "50m", "requests.memory": "96Mi"}


def later(**units: float) -> dt.datetime:
    """Return a time after NOW."""
    return NOW + dt.timedelta(**units)


def idle(seconds: int = 600, *, open_requests: int = 0, next_event: dt.datetime | None = None, error: str = "") -> Any:  # noqa: ANN401
    """Return what the process reports."""
    return Activity(open_requests=open_requests, idle_seconds=seconds, next_event=next_event, error=error)


def inputs(activity: Activity | None = None, **given: Any) -> SleepInputs:  # noqa: ANN401
    """Return inputs with which a control plane sleeps, but for those that are given."""
    return replace(SleepInputs(now=NOW, after_seconds=600, activity=activity or idle()), **given)


def plane(requested: str = "", generation: int = 2, **fields: Any) -> VirtualControlPlane:  # noqa: ANN401
    """Return a control plane that sleeps."""
    annotations = {REQUESTED_PHASE: requested} if requested else {}
    usual: dict[str, Any] = {"phase": PlanePhase.ASLEEP, "observed_generation": 2, "next_wake": "2026-03-01T13:00:00Z"}
    return VirtualControlPlane(
        metadata=ObjectMeta(
            name="web",
            namespace="acme",
            uid="u",
            resource_version="7",
            generation=generation,
            annotations=annotations,
            finalizers=(PROCESS_FINALIZER,),
        ),
        status=VirtualControlPlaneStatus(**{**usual, **fields}),
    )


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (inputs(after_seconds=0), None),
        (inputs(idle(599)), None),
        (inputs(idle(0, open_requests=1)), None),
        (inputs(is_busy=True), LOOK_AGAIN_SECONDS),
        (inputs(waiting=("shop/web",)), LOOK_AGAIN_SECONDS),
        (inputs(idle(error="CronJobs: timeout")), LOOK_AGAIN_SECONDS),
        (inputs(idle(next_event=later(seconds=60))), 60 + LOOK_AGAIN_SECONDS),
        (inputs(renewal=later(seconds=-5)), LOOK_AGAIN_SECONDS),
        (inputs(idle(error="CronJobs: timeout"), is_requested=True), LOOK_AGAIN_SECONDS),
    ],
    ids=["never", "a request", "a watch", "mirror", "pending pod", "unknown event", "due event", "due token", "asked"],
)
def test_what_keeps_a_control_plane_awake(given: SleepInputs, again: float | None) -> None:
    """H01: each reason by itself; clients end it by an event, and the others are looked at again."""
    found = sleep.decide(given)
    assert isinstance(found, StayAwake)
    assert found.again_seconds == again
    assert found.reason


@pytest.mark.parametrize(
    ("given", "next_wake"),
    [
        (inputs(), NOW + MOST_SLEEP),
        (inputs(idle(next_event=later(hours=2))), later(hours=2)),
        (inputs(idle(next_event=later(hours=2)), renewal=later(hours=1)), later(hours=1)),
        (inputs(idle(next_event=later(days=300))), NOW + MOST_SLEEP),
    ],
    ids=["nothing is due", "CronJob", "token", "far away"],
)
def test_the_next_event_ends_the_sleep(given: SleepInputs, next_wake: dt.datetime) -> None:
    """H01: the earliest one, and certificates are renewed in any case."""
    found = sleep.decide(given)
    assert isinstance(found, Sleep)
    assert found.next_wake == next_wake


def test_a_request_overrules_clients_and_says_so() -> None:
    """H01: the message names what ended, and what waits."""
    given = inputs(idle(0, open_requests=3), after_seconds=0, is_requested=True, waiting=("shop/web",), is_busy=True)
    found = sleep.decide(given)
    assert isinstance(found, Sleep)
    assert "3 open requests or watches were ended" in found.message
    one = sleep.decide(inputs(idle(0, open_requests=1), after_seconds=0, is_requested=True))
    assert isinstance(one, Sleep)
    assert "1 open request or watch was ended" in one.message
    assert "shop/web" in found.message


@pytest.mark.parametrize(
    ("upper", "lower", "waits"),
    [
        ({"phase": "Running"}, {"phase": "Running"}, False),
        ({"phase": "Succeeded"}, {"phase": "Succeeded"}, False),
        ({"phase": "Pending"}, {"phase": "Pending"}, True),
        ({"phase": "Pending"}, None, True),
        ({"phase": "Running"}, None, True),
        ({"phase": "Running"}, {"phase": "Failed"}, True),
        (None, {"phase": "Running"}, True),
    ],
    ids=["runs", "done", "pending", "refused", "lost", "status on its way up", "deletion on its way down"],
)
def test_pods_that_are_not_as_they_stay_wait(
    upper: dict[str, str] | None, lower: dict[str, str] | None, *, waits: bool
) -> None:
    """H01: what changes without a client must reach the other side before the process ends."""
    above = upper_pod()
    below = lower_pod(above, **(lower or {}))
    above["status"] = upper or {}
    uppers = [cached(above)] if upper is not None else []
    lowers = [cached(below)] if lower is not None else []
    assert bool(sleep.waiting(uppers, lowers, PROFILE)) is waits


def test_a_pod_that_is_being_deleted_waits() -> None:
    """H01: on either side."""
    above = upper_pod()
    below = lower_pod(above, phase="Running")
    above["status"] = {"phase": "Running"}
    gone = {"deletionTimestamp": "2026-03-01T12:00:00Z"}
    for value in (above, below):
        value["metadata"] |= gone
        assert sleep.waiting([cached(above)], [cached(below)], PROFILE)
        del value["metadata"]["deletionTimestamp"]
    assert not sleep.waiting([cached(above)], [cached(below)], PROFILE)


def test_the_digest_changes_when_a_pod_ends_or_disappears() -> None:
    """H01: and with nothing else of its status, because each change would wake the control plane."""

    def pod(**status: object) -> CachedPod:
        return cached(lower_pod(upper_pod(), **status))

    runs = sleep.digest([pod(phase="Running")])
    assert sleep.digest([pod(phase="Running", podIP="10.0.0.9")]) == runs
    assert len({runs, sleep.digest([]), sleep.digest([pod(phase="Failed")])}) == 3


@pytest.mark.parametrize(
    ("found", "wakes"),
    [
        (plane(), False),
        (plane("Awake 1"), True),
        (plane("Awake 1", handled_request="Awake 1"), False),
        (plane("Asleep 1"), False),
        (plane("Awake " + 60 * "1"), False),
        (plane("Starting 1"), False),
        (plane("nonsense"), False),
        (plane(generation=3), True),
        (plane(next_wake="2026-03-01T12:00:00Z"), True),
        (plane(next_wake="soon"), True),
        (plane(pods_at_sleep="before"), True),
        (plane(pods_at_sleep="now"), False),
    ],
)
def test_what_wakes_a_control_plane(found: VirtualControlPlane, *, wakes: bool) -> None:
    """H01: read from the state, so that nothing is missed while no operator runs."""
    assert bool(sleep.wake_reason(found, NOW, "now", is_knocked=False)) is wakes
    assert sleep.wake_reason(found, NOW, "now", is_knocked=True)
    assert sleep.wake_reason(found, NOW, "now", is_knocked=False, is_joined=True)


def test_the_share_returns_while_it_sleeps() -> None:
    """H01, X03: charged until the process has ended; a verdict from before the sleep starts nothing."""
    awake = plane(phase=PlanePhase.AWAKE, charged=USUAL)
    falling = replace(awake, status=sleep.asleep(awake, Sleep(next_wake=NOW, message=""), "now", NOW))
    assert is_charged(falling)
    gone = replace(falling, status=replace(falling.status, charged={}))
    assert not is_charged(gone)
    assert not plane_request(gone).hard
    woken = replace(gone, status=sleep.waking(gone, "by request", NOW))
    assert plane_request(woken).hard == plane_request(awake).hard
    assert charge.find(woken, ShareVerdict(generation=2)).write is None
    assert charge.find(woken, ShareVerdict(generation=2, round=1)).write is not None


def test_a_control_plane_that_sleeps_is_ready() -> None:
    """H01: its next client is served; it is not ready while it starts; later reports keep the fields of the sleep."""
    awake = plane("Asleep 1", phase=PlanePhase.AWAKE, charged=USUAL)
    falling = sleep.asleep(awake, Sleep(next_wake=later(hours=1), message="it sleeps"), "now", NOW)
    told = find(falling.conditions, reasons.READY)
    assert told is not None
    assert (told.status, told.reason, told.message) == ("True", reasons.ASLEEP, "it sleeps")
    assert (falling.handled_request, falling.next_wake, falling.pods_at_sleep) == (
        "Asleep 1",
        "2026-03-01T13:00:00Z",
        "now",
    )
    woken = sleep.waking(replace(awake, status=falling), "by request", NOW)
    told = find(woken.conditions, reasons.READY)
    assert told is not None
    assert (told.status, told.reason) == ("False", reasons.PROGRESSING)
    assert (woken.phase, woken.wakes, woken.next_wake, woken.pods_at_sleep) == (PlanePhase.STARTING, 1, "", "")
    kept = status.compute(replace(awake, status=woken), None, endpoint="e", now="2026-03-01T12:00:00Z")
    assert (kept.wakes, kept.handled_request, find(kept.conditions, reasons.RECONCILING)) == (1, "Asleep 1", None)


def test_what_was_reported_meanwhile_does_not_stay() -> None:
    """H01: Ready is as it should be once the process has ended, and is written once."""
    problem = Blocked(reason=reasons.INVALID_SPEC, message="the namespace belongs to no tenant")
    found = plane(charged=USUAL)
    found = replace(found, status=status.compute(found, problem, endpoint="", now="2026-03-01T12:00:00Z"))
    settled = sleep.resting(found, NOW)
    told = find(settled.conditions, reasons.READY)
    assert told is not None
    assert (told.status, told.reason, settled.charged) == ("True", reasons.ASLEEP, {})
    assert find(settled.conditions, reasons.STALLED) is None
    assert sleep.resting(replace(found, status=settled), later(hours=1)) == settled


def test_deleted_pods_wake_nothing() -> None:
    """H01: those that the operator deletes itself."""
    spec = VirtualControlPlaneSpec(sleep=PlaneSleep(workloads=SleepWorkloads.DELETE))
    found = replace(plane(phase=PlanePhase.AWAKE), spec=spec)
    written = sleep.asleep(found, Sleep(next_wake=later(hours=1), message=""), "now", NOW)
    assert not sleep.wake_reason(replace(found, status=written), NOW, "other", is_knocked=False)


def test_the_next_renewal_is_that_of_pods_that_run() -> None:
    """H01: Secrets of pods that ended stay for a while, and marks may be any text."""
    below = lower_pod(upper_pod(), phase="Running")

    def secret(name: str, renew: str, uid: str = "u-web") -> Any:  # noqa: ANN401
        marks = {PROFILE.mark("uid"): uid, PROFILE.mark(tokens.RENEW): renew}
        meta = {"name": name, "namespace": "lower", "labels": PROFILE.labels("shop"), "annotations": marks}
        return things.headed(msgspec.Raw(msgspec.json.encode({"metadata": meta})))

    secrets = [
        secret("a", "2026-03-01T14:00:00Z"),
        secret("b", "2026-03-01T13:00:00Z", uid="other"),
        secret("c", "soon"),
        secret("d", "2026-03-01T13:00:00"),
    ]
    assert tokens.next_renewal(secrets, [cached(below)], PROFILE) == later(hours=2)
    below["status"]["phase"] = "Succeeded"
    assert tokens.next_renewal(secrets, [cached(below)], PROFILE) is None


@pytest.mark.parametrize("is_requested", [False, True])
def test_it_stays_awake_while_objects_move_into_it(*, is_requested: bool) -> None:
    assert isinstance(sleep.decide(inputs(is_requested=is_requested)), Sleep)
    found = sleep.decide(inputs(is_requested=is_requested, is_converting=True))
    assert isinstance(found, StayAwake)
    assert found.again_seconds == LOOK_AGAIN_SECONDS


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (30.0, MOST_SLEEP),
        (5.0, dt.timedelta(days=2)),
        (3.0, None),
        (0.5, None),
    ],
)
@pytest.mark.parametrize("is_requested", [False, True])
def test_it_wakes_before_a_certificate_of_a_kubelet_ends(
    days: float, expected: dt.timedelta | None, *, is_requested: bool
) -> None:
    """H04: at nine tenths of its life, every kubelet wants another one, and stays awake until it has it."""
    decided = sleep.decide(inputs(certificate=later(days=days), is_requested=is_requested))
    if expected is None:
        assert isinstance(decided, StayAwake)
        assert decided.again_seconds == LOOK_AGAIN_SECONDS
    else:
        assert isinstance(decided, Sleep)
        assert decided.next_wake == NOW + expected

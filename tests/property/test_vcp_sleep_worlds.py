"""Properties of the sleep of control planes (H01)."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.virtualcontrolplane import sleep
from tenantry.controllers.virtualcontrolplane.sleep import MOST_SLEEP, SOON_SECONDS, Sleep, SleepInputs
from tenantry.hosting.reports import Activity

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
TIMES = st.none() | st.integers(-100, 10**6).map(lambda seconds: NOW + dt.timedelta(seconds=seconds))
ACTIVITIES = st.builds(
    Activity,
    open_requests=st.integers(0, 2),
    idle_seconds=st.integers(0, 1000),
    next_event=TIMES,
    error=st.sampled_from(["", "CronJobs: timeout"]),
)
INPUTS = st.builds(
    SleepInputs,
    now=st.just(NOW),
    after_seconds=st.sampled_from([0, 10, 600]),
    is_requested=st.booleans(),
    activity=ACTIVITIES,
    is_busy=st.booleans(),
    waiting=st.lists(st.just("shop/web"), max_size=1),
    renewal=TIMES,
)
TEXTS = st.sampled_from(["", "Asleep 1", "Awake 1", "Awake 2", "x", "Awake"])


@given(INPUTS)
def test_no_control_plane_sleeps_past_what_is_due(world: SleepInputs) -> None:
    """H01: nor for longer than a week; one that sleeps by itself interrupts nothing."""
    found = sleep.decide(world)
    if not isinstance(found, Sleep):
        return
    due = [each for each in (world.activity.next_event, world.renewal) if each is not None]
    assert all(found.next_wake <= each for each in due)
    assert found.next_wake <= NOW + MOST_SLEEP
    assert not world.activity.error
    if not world.is_requested:
        assert world.activity.idle_seconds >= world.after_seconds > 0
        assert not any((world.activity.open_requests, world.waiting, world.is_busy))
        assert (found.next_wake - NOW).total_seconds() > SOON_SECONDS


@given(world=INPUTS, asked=TEXTS, handled=TEXTS, pods=st.sampled_from(["", "a", "b"]), generation=st.integers(1, 3))
def test_one_that_falls_asleep_does_not_wake_at_once(
    world: SleepInputs, asked: str, handled: str, pods: str, generation: int
) -> None:
    """H01: without a change, only a request to be awake or a time that has come wakes it: it does not alternate."""
    meta = ObjectMeta(name="web", namespace="acme", generation=generation, annotations={REQUESTED_PHASE: asked})
    before = VirtualControlPlane(
        metadata=meta, status=VirtualControlPlaneStatus(phase=PlanePhase.AWAKE, handled_request=handled)
    )
    decided = sleep.decide(world)
    if not isinstance(decided, Sleep):
        return
    found = replace(before, status=sleep.asleep(before, decided, pods, NOW))
    assert sleep.requested(found) is None
    if decided.next_wake > NOW:
        assert not sleep.wake_reason(found, NOW, pods, is_knocked=False)
    assert sleep.wake_reason(found, decided.next_wake, pods, is_knocked=False)

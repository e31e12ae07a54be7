"""When a supervisor starts a crashed component again."""

from __future__ import annotations

from tenantry.local.backoff import CALM_SECONDS, LAST_SECONDS, BackOff


def test_the_first_crash_does_not_wait_and_each_further_one_waits_longer() -> None:
    back_off = BackOff()
    waits = [back_off.after_crash(None) for _ in range(12)]
    assert waits[:4] == [0.0, 0.2, 0.4, 0.8]
    assert waits[-1] == LAST_SECONDS
    assert waits == sorted(waits)


def test_a_component_that_had_started_well_does_not_wait_for_its_earlier_crashes() -> None:
    back_off = BackOff()
    for _ in range(5):
        back_off.after_crash(0.1)
    assert back_off.after_crash(CALM_SECONDS + 0.1) == 0.0
    assert back_off.after_crash(CALM_SECONDS) == 0.2


def test_a_start_on_request_begins_anew() -> None:
    back_off = BackOff()
    back_off.after_crash(None)
    back_off.reset()
    assert back_off.after_crash(None) == 0.0

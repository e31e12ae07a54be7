"""How often totals are told."""

from __future__ import annotations

from tenantry.controllers.quota.pace import BURST, Pace


def test_a_few_are_told_at_once_and_then_one_every_few_seconds() -> None:
    """E09: totals are in the status soon, and a tenant that changes all the time costs one write each time."""
    pace = Pace(2.0)
    for _ in range(int(BURST)):
        assert pace.left(100.0) == 0.0
        pace.take(100.0)
    assert pace.left(100.0) == 2.0
    assert pace.left(101.5) == 0.5
    assert pace.left(102.0) == 0.0


def test_quiet_earns_no_more_than_the_first_few() -> None:
    pace = Pace(2.0)
    pace.take(0.0)
    for _ in range(int(BURST)):
        pace.take(10_000.0)
    assert pace.left(10_000.0) == 2.0

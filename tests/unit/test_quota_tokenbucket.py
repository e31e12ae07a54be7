"""How often totals are told."""

from __future__ import annotations

from tenantry.controllers.quota.tokenbucket import BURST, TokenBucket


def test_a_few_are_told_at_once_and_then_one_every_few_seconds() -> None:
    """E09: totals are in the status soon, and a tenant that changes all the time costs one write each time."""
    tokenbucket = TokenBucket(2.0)
    for _ in range(int(BURST)):
        assert tokenbucket.left(100.0) == 0.0
        tokenbucket.take(100.0)
    assert tokenbucket.left(100.0) == 2.0
    assert tokenbucket.left(101.5) == 0.5
    assert tokenbucket.left(102.0) == 0.0


def test_quiet_earns_no_more_than_the_first_few() -> None:
    tokenbucket = TokenBucket(2.0)
    tokenbucket.take(0.0)
    for _ in range(int(BURST)):
        tokenbucket.take(10_000.0)
    assert tokenbucket.left(10_000.0) == 2.0

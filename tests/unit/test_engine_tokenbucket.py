"""A burst at once, then a steady rate."""

from __future__ import annotations

import asyncio

from tenantry.engine.pace import Pace
from tenantry.engine.tokenbucket import TokenBucket

BURST = 6


def test_a_few_are_told_at_once_and_then_one_every_few_seconds() -> None:
    """E09: totals are in the status soon, and a tenant that changes all the time costs one write each time."""
    tokenbucket = TokenBucket(2.0, burst=BURST)
    for _ in range(BURST):
        assert tokenbucket.left(100.0) == 0.0
        tokenbucket.take(100.0)
    assert tokenbucket.left(100.0) == 2.0
    assert tokenbucket.left(101.5) == 0.5
    assert tokenbucket.left(102.0) == 0.0


def test_quiet_earns_no_more_than_the_first_few() -> None:
    tokenbucket = TokenBucket(2.0, burst=BURST)
    tokenbucket.take(0.0)
    for _ in range(BURST):
        tokenbucket.take(10_000.0)
    assert tokenbucket.left(10_000.0) == 2.0


def test_a_pace_lets_a_burst_pass_and_then_one_after_another() -> None:
    """X03: a mirror that has much to write waits for its turn; the order is kept."""

    async def passed() -> tuple[list[int], float]:
        pace, order = Pace(100.0, 3), list[int]()
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def go(number: int) -> None:
            await pace.turn()
            order.append(number)

        await asyncio.gather(*(go(number) for number in range(6)))
        return order, loop.time() - began

    order, seconds = asyncio.run(passed())
    assert order == [0, 1, 2, 3, 4, 5]
    # Three tokens have to come back; no busy machine makes that faster.
    assert seconds >= 0.029

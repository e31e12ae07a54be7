"""Which of the waiting callers goes next."""

from __future__ import annotations

import asyncio

from tenantry.engine.slots import Slots


async def _take(slots: Slots, name: str, rank: int, order: list[str], end: asyncio.Event) -> None:
    async with slots.taken(rank):
        order.append(name)
        await end.wait()


async def _turns() -> None:
    """Let every task go on as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_lower_ranks_go_first_and_none_exceeds_the_limit() -> None:
    slots, order = Slots(1), list[str]()
    ends = {name: asyncio.Event() for name in ("first", "late", "urgent", "later")}
    async with asyncio.TaskGroup() as group:
        for name, rank in (("first", 1), ("late", 1), ("urgent", 0), ("later", 1)):
            group.create_task(_take(slots, name, rank, order, ends[name]))
            await _turns()
        assert order == ["first"]
        for number, name in enumerate(("first", "urgent", "late", "later"), start=1):
            assert len(order) == number
            ends[name].set()
            await _turns()
    assert order == ["first", "urgent", "late", "later"]


async def test_a_cancelled_caller_takes_no_slot_along() -> None:
    """Neither one that waits, nor one that has just got its turn."""
    slots, order = Slots(1), list[str]()
    async with slots.taken(0):
        waiting = asyncio.create_task(_take(slots, "waiting", 0, order, asyncio.Event()))
        called = asyncio.create_task(_take(slots, "called", 0, order, asyncio.Event()))
        await _turns()
        waiting.cancel()
    called.cancel()
    await asyncio.wait([waiting, called])
    async with asyncio.timeout(5), slots.taken(0):
        order.append("last")
    assert order == ["last"]

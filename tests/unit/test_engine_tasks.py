"""Work that runs at once: results in order, the first error alone, and no task left behind."""

from __future__ import annotations

import asyncio

import pytest

from tenantry.api.errors import NotFound
from tenantry.engine.tasks import all_of, cancelled_at_end, in_background


async def result(value: int) -> int:
    """Return a value after the others have begun."""
    await asyncio.sleep(0)
    return value


async def failure() -> int:
    """Raise an error that callers catch by its class."""
    await asyncio.sleep(0)
    raise NotFound("gone")


async def forever() -> int:
    """Wait until cancelled."""
    await asyncio.Event().wait()
    return 0


async def test_results_come_in_the_order_of_the_work() -> None:
    assert await all_of(result(each) for each in (3, 1, 2)) == [3, 1, 2]


async def test_the_first_error_is_raised_alone_and_ends_the_others() -> None:
    before = asyncio.all_tasks()
    with pytest.raises(NotFound):
        await all_of([forever(), failure()])
    assert asyncio.all_tasks() <= before


async def test_work_in_the_background_ends_with_its_block() -> None:
    async with in_background(forever()) as task:
        await asyncio.sleep(0)
    assert task.cancelled()


async def test_an_error_in_the_background_ends_the_block() -> None:
    with pytest.raises(NotFound):
        async with in_background(failure()):
            await asyncio.Event().wait()


async def test_an_error_of_the_block_is_raised_as_it_is() -> None:
    with pytest.raises(NotFound):
        async with in_background(forever()):
            await failure()


async def test_tasks_without_an_end_do_not_keep_a_block_that_has_ended() -> None:
    # Tests share a loop: fixtures of others may run in it.
    before = asyncio.all_tasks()
    async with cancelled_at_end() as group:
        group.create_task(forever())
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before


async def test_an_error_of_a_group_that_is_cancelled_at_its_end_stays_an_error() -> None:
    async def block() -> None:
        async with cancelled_at_end() as group:
            group.create_task(failure())
            await forever()

    with pytest.raises(ExceptionGroup) as raised:
        await block()
    assert raised.group_contains(NotFound)

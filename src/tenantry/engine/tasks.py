"""Work that runs at once, in TaskGroups whose first error is raised alone: callers catch errors by their class."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def first_error() -> Generator[None]:
    """Raise the first error of a group instead of the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        # The others are consequences: the group cancels its tasks after the first error.
        raise group.exceptions[0] from None


async def all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at once and return their results in order; the first error cancels the others."""
    with first_error():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    return [task.result() for task in tasks]


class _BlockEnded(Exception):
    """The block of `cancelled_at_end` has ended."""


@asynccontextmanager
async def cancelled_at_end() -> AsyncGenerator[asyncio.TaskGroup]:
    """Open a group whose tasks are cancelled when the block ends; a TaskGroup alone would wait for them."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
            raise _BlockEnded  # noqa: TRY301 - it is how a TaskGroup is ended
    except* _BlockEnded:
        pass


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """Run a coroutine while the context is open, and cancel it at the end; its error ends the block."""
    with first_error():
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            try:
                yield task
            finally:
                task.cancel()

"""A deadline that progress extends: `up` waits for a slow machine, and gives up on one where nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from tenantry.api.errors import RetryableError, Unreachable
from tenantry.local.state import ClusterState

_AGAIN_SECONDS = 0.5
P = ParamSpec("P")
T = TypeVar("T")


class ProgressDeadline:
    """The time without progress after which `up` gives up, and what is known of the nodes that it waits for."""

    def __init__(self) -> None:
        self.late_nodes: Mapping[str, str] = {}
        """From the name of a real node that is not Ready to the message of its condition."""
        self.seen: ClusterState | None = None
        """The last state of a cluster that was given up and stopped; None for any other."""
        self.problem = ""
        """Why the API server did not answer the last step; "" if it did."""
        self._remaining: dict[Hashable, int] = {}
        self._timeout: asyncio.Timeout | None = None
        self._seconds = 0.0

    @asynccontextmanager
    async def of(self, seconds: float) -> AsyncGenerator[None]:
        """Cancel the block after this time without progress.

        Raises:
            TimeoutError: The block was cancelled.
        """
        self._seconds, self.late_nodes, self.seen, self.problem, self._remaining = seconds, {}, None, "", {}
        async with asyncio.timeout(seconds) as self._timeout:
            yield

    @property
    def until(self) -> float:
        """Return when the block is cancelled unless there is progress, in the event loop's time; 0.0 for never."""
        return (self._timeout.when() if self._timeout else None) or 0.0

    def renew(self) -> None:
        """Note progress: the time starts again."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def note_remaining(self, what: Hashable, count: int) -> None:
        """Note how many components or nodes are not ready; fewer than ever before is progress."""
        fewest = self._remaining.get(what, count)
        if count < fewest:
            self.renew()
        self._remaining[what] = min(count, fewest)

    def note_nodes(self, late: Mapping[str, str]) -> None:
        """Note which real nodes are not Ready, and the messages of their conditions."""
        self.note_remaining("nodes", len(late))
        self.late_nodes = late

    async def insist(self, step: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Repeat a step that can be repeated until the API server answers it; that it did is progress.

        The client gives up one request after 30 s, which an API server may need while a busy machine starts a cluster.
        """
        task = asyncio.current_task()
        requests = task.cancelling() if task else 0
        while True:
            try:
                result = await step(*args, **kwargs)
            except* (Unreachable, RetryableError) as group:
                self.problem = _first(group)
            else:
                self.problem = ""
                self.renew()
                return result
            # A TaskGroup of Python before 3.13 whose task failed while it was waiting leaves its request to cancel us
            # (What's New In Python 3.13, asyncio), with which no timeout around us would end in TimeoutError.
            while task and task.cancelling() > requests:
                task.uncancel()
            # The API server announces nothing that could be waited for instead. Not within `except*`, which would wrap
            # the cancellation by the deadline into a group.
            await asyncio.sleep(_AGAIN_SECONDS)


def _first(group: BaseExceptionGroup[Unreachable | RetryableError]) -> str:
    """Return the message of the first error in a group."""
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else str(found)

"""How many requests of one client are under way at once; those that matter most go first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Slots:
    """Slots that callers take in the order of their ranks, and of their arrival within a rank.

    Args:
        most: How many there are.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._arrived = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def taken(self, rank: int) -> AsyncGenerator[None]:
        """Hold a slot.

        Args:
            rank: Callers of a lower rank go first.
        """
        if self._free > 0:
            self._free -= 1
        else:
            await self._turn(rank)
        try:
            yield
        finally:
            self._pass_on()

    async def _turn(self, rank: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrived += 1
        heapq.heappush(self._waiting, (rank, self._arrived, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                # It got the slot in the moment in which it was cancelled.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give a slot to the next caller that still waits."""
        while self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1

"""How fast one client may send: a burst at once, then a steady rate."""

from __future__ import annotations

import asyncio

from tenantry.engine.tokenbucket import TokenBucket


class Pace:
    """Lets callers pass at a bounded rate, in the order in which they came.

    Args:
        per_second: The steady rate.
        burst: How many pass at once after a time without any.
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self._bucket = TokenBucket(1.0 / per_second, burst=burst)
        self._turn = asyncio.Lock()

    async def turn(self) -> None:
        """Wait until the caller may go on."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            left = self._bucket.left(loop.time())
            if left > 0:
                await asyncio.sleep(left)
            self._bucket.take(loop.time())

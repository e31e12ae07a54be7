"""A deadline that every step forward moves: a slow machine is waited for, one on which nothing happens is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from tenantry.local.state import ClusterState


class ProgressDeadline:
    """How long is waited without a step forward, and what is known of the nodes that are waited for."""

    def __init__(self) -> None:
        self.late_nodes: Mapping[str, str] = {}
        """From the name of a node that is not Ready to what it says about itself."""
        self.seen: ClusterState | None = None
        """The state of the cluster when it was given up, before it was stopped; None where it was not."""
        self._timeout: asyncio.Timeout | None = None
        self._seconds = 0.0

    @asynccontextmanager
    async def of(self, seconds: float) -> AsyncGenerator[None]:
        """Give up what is done inside when it comes no step forward in this time.

        Raises:
            TimeoutError: It was given up.
        """
        self._seconds, self.late_nodes, self.seen = seconds, {}, None
        async with asyncio.timeout(seconds) as self._timeout:
            yield

    @property
    def until(self) -> float:
        """When it is given up if nothing comes forward, in the event loop's time; 0.0 for never."""
        return (self._timeout.when() if self._timeout else None) or 0.0

    def renew(self) -> None:
        """Note a step forward."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def tell_nodes(self, late: Mapping[str, str]) -> None:
        """Note which nodes are not Ready, and why; that there are fewer than before is a step forward."""
        if len(late) < len(self.late_nodes):
            self.renew()
        self.late_nodes = late

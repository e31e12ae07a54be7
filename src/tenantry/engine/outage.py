"""An outage of one API server, which all informers and reconciles of a cluster wait for together.

    a watch breaks, a list is refused ─► lost ─► probe until it succeeds ─► everything goes on

Just after its start, an API server knows no roles and bindings yet, and refuses every request as forbidden. So an
outage does not end with the first response, but with the first list that is granted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tenantry.api.errors import ApiError, Forbidden, Unreachable
from tenantry.engine.clock import Clock

FIRST_PAUSE_SECONDS = 0.05
LAST_PAUSE_SECONDS = 1.0

FORBIDDEN_SECONDS = 15.0
"""An API server that refuses the probe for so long has its roles, and they do not grant it: informers report that."""

SETTLING_SECONDS = 5.0
"""How long after an outage single refusals are not reported: the API server takes in its bindings one by one."""

log = logging.getLogger(__name__)


class Outage:
    """Whether an API server can be worked with, for all that do.

    Args:
        cluster: The `ClusterId`, for logs.
        clock: For durations.
    """

    def __init__(self, cluster: str, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._open = asyncio.Event()
        self._open.set()
        self._lost = asyncio.Event()
        self._problem = ""
        self._is_away = False
        self._was_away = False
        self._since = 0.0

    @property
    def is_over(self) -> bool:
        """Return whether there is no outage now."""
        return self._open.is_set()

    @property
    def is_away(self) -> bool:
        """Return whether a probe has failed in the present outage: more than a connection is broken."""
        return self._is_away

    def listen(self, changed: Callable[[], None]) -> None:
        """Add a function that is called when the API server is found to be away, and at the end of each outage."""
        self._listeners.append(changed)

    def explains(self, error: Exception) -> bool:
        """Return whether an error is a part of an outage, which was reported when it began."""
        if not isinstance(error, Unreachable | Forbidden):
            return False
        return not self.is_over or (self._since > 0 and self._clock.monotonic() - self._since < SETTLING_SECONDS)

    def begin(self, error: ApiError) -> None:
        """Stop all work until the API server grants the probe; during an outage, nothing changes."""
        if self.is_over and isinstance(error, Unreachable):
            self._problem = str(error)
            self._open.clear()
            self._lost.set()

    async def wait(self) -> bool:
        """Wait until there is no outage; return whether a probe failed, so that the server may have other data now."""
        await self._open.wait()
        return self._was_away

    async def run(self, probe: Callable[[], Awaitable[object]]) -> None:
        """End outages until cancelled.

        Args:
            probe: Sends a request that this client may send.
        """
        try:
            while True:
                await self._lost.wait()
                await self._until_granted(probe)
                self._end()
        finally:
            self._end()  # no informer may wait for a probe that is not sent any more

    async def _until_granted(self, probe: Callable[[], Awaitable[object]]) -> None:
        began, pause = self._clock.monotonic(), FIRST_PAUSE_SECONDS
        self._was_away = False
        forbidden: float | None = None
        while True:
            try:
                await probe()
            except Forbidden as error:
                self._problem = str(error)
                forbidden = self._clock.monotonic() if forbidden is None else forbidden
                if self._clock.monotonic() - forbidden > FORBIDDEN_SECONDS:
                    return
            except ApiError as error:
                self._problem = str(error)
                forbidden = None
            else:
                if self._was_away:
                    seconds = round(self._clock.monotonic() - began, 1)
                    log.info("the API server answers again", extra={"cluster": self._cluster, "seconds": seconds})
                return
            if not self._was_away:
                log.warning("waiting for the API server", extra={"cluster": self._cluster, "problem": self._problem})
                self._is_away = self._was_away = True
                self._notify()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    def _end(self) -> None:
        self._lost.clear()
        if not self.is_over:
            self._since = self._clock.monotonic()
            self._is_away = False
            self._open.set()
            self._notify()

    def _notify(self) -> None:
        for changed in self._listeners:
            changed()

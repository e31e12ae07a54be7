"""A clock that moves only when a test turns it, and times near now."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable

from tenantry.engine.clock import rfc3339


class ManualClock:
    """An `engine.clock.Clock` of tests.

    Args:
        start: The time of day at the beginning, in UTC.
    """

    def __init__(self, start: dt.datetime = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) -> None:
        self._start = start
        self._passed = 0.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> dt.datetime:
        """Return the time of day."""
        return self._start + dt.timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Turn the clock forward.

        Raises:
            ValueError: Time does not go back.
        """
        if seconds < 0:
            raise ValueError(f"time goes forward only, not by {seconds} s")
        self._passed += seconds
        due = [entry for entry in self._calls if entry[0] <= self._passed]
        self._calls = [entry for entry in self._calls if entry[0] > self._passed]
        for _, call in due:
            call()

    def call_at(self, when: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function when the clock passes a time; at once if it has passed already."""
        entry = (when, call)
        if when <= self._passed:
            asyncio.get_running_loop().call_soon(call)
        else:
            self._calls.append(entry)

        def cancel() -> None:
            if entry in self._calls:
                self._calls.remove(entry)

        return cancel


def in_seconds(seconds: int) -> str:
    """Return the time in so many seconds from now (before now, if negative), as Kubernetes writes times."""
    return rfc3339(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds))

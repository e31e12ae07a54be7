"""A clock that only moves when it is told to."""

from __future__ import annotations

import datetime as dt


class ManualClock:
    """An `engine.clock.Clock` of tests.

    Args:
        start: The time of day at the beginning, in UTC.
    """

    def __init__(self, start: dt.datetime = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) -> None:
        self._start = start
        self._passed = 0.0

    def now(self) -> dt.datetime:
        """Return the time of day."""
        return self._start + dt.timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Return the seconds that were let pass."""
        return self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: Time does not go back.
        """
        if seconds < 0:
            raise ValueError(f"time goes forward only, not by {seconds} s")
        self._passed += seconds

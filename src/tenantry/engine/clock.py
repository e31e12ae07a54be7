"""The clock of the operator; tests replace it by one that they advance."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks: the time of day, and a monotonic one for durations."""

    def now(self) -> dt.datetime:
        """Return the time of day, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def call_at(self, when: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function when `monotonic` reaches a time; the returned function cancels the call."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> dt.datetime:
        """Return the time of day, in UTC."""
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def call_at(self, when: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function from the event loop at a time; the returned function cancels the call."""
        return asyncio.get_running_loop().call_later(max(0.0, when - time.monotonic()), call).cancel


def rfc3339(moment: dt.datetime) -> str:
    """Return a time as the API writes it, in whole seconds."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: dt.datetime) -> str:
    """Return a time as the API's MicroTime, which leases and events have."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

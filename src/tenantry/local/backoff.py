"""How long a component waits before each restart: pure.

kill, long after the start    0 s
crash right after that        0.2 s, then 0.4 s, 0.8 s … 15 s
ready for five seconds        the next crash has another cause, and waits 0 s again
"""

from __future__ import annotations

SECOND_SECONDS = 0.2
LAST_SECONDS = 15.0
CALM_SECONDS = 5.0
"""A component that was ready for so long has started well."""


class BackOff:
    """The waiting times of one component."""

    def __init__(self) -> None:
        self._next = 0.0

    def reset(self) -> None:
        """Begin anew: the component starts on request, or the cause of its crashes is over."""
        self._next = 0.0

    def after_crash(self, ready_seconds: float | None) -> float:
        """Return how many seconds to wait before a restart.

        Args:
            ready_seconds: For how long the component was ready before it crashed; None if it was never ready.
        """
        # A first crash is usually an accident, such as a kill: only a repeated one waits.
        if ready_seconds is not None and ready_seconds > CALM_SECONDS:
            self._next = 0.0
        seconds = self._next
        self._next = min(max(2 * seconds, SECOND_SECONDS), LAST_SECONDS)
        return seconds

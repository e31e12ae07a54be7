"""How often totals may be reported while they keep changing: a few at once, then one every few seconds. Pure."""

from __future__ import annotations

BURST = 6.0

_ALMOST = 1e-9
"""Rounding may leave a token short of whole by less than any clock can wait for."""


class TokenBucket:
    """A token bucket: each report takes one token, and tokens come back at a steady rate.

    Args:
        seconds: The time until one token comes back.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._tokens = BURST
        self._since = float("-inf")

    def left(self, now: float) -> float:
        """Return in how many seconds the next report may be written; 0 for now."""
        tokens = self._at(now)
        return 0.0 if tokens >= 1.0 - _ALMOST else (1.0 - tokens) * self._seconds

    def take(self, now: float) -> None:
        """Record a report."""
        self._tokens, self._since = max(0.0, self._at(now) - 1.0), now

    def _at(self, now: float) -> float:
        return min(BURST, self._tokens + (now - self._since) / self._seconds)

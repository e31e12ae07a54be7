"""How often something is told while it keeps changing: at once for a while, then every few seconds. Pure."""

from __future__ import annotations

BURST = 6.0


class TokenBucket:
    """A bucket of words: each takes one, and they come back by and by.

    Args:
        seconds: How long until one comes back.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._tokens = BURST
        self._since = float("-inf")

    def left(self, now: float) -> float:
        """Return in how many seconds something may be told; 0 for now."""
        tokens = self._at(now)
        return 0.0 if tokens >= 1.0 else (1.0 - tokens) * self._seconds

    def take(self, now: float) -> None:
        """Take note that something was told."""
        self._tokens, self._since = max(0.0, self._at(now) - 1.0), now

    def _at(self, now: float) -> float:
        return min(BURST, self._tokens + (now - self._since) / self._seconds)

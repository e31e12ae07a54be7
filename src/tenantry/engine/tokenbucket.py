"""How often something may happen: a few times at once, then at a steady rate. Pure."""

from __future__ import annotations

import math

_ALMOST = 1e-9
"""Rounding may leave a token short of whole by less than any clock can wait for."""


class TokenBucket:
    """A token bucket: each deed takes one token, and tokens come back at a steady rate.

    Args:
        seconds: The time until one token comes back.
        burst: How many tokens there are at most; the bucket is full at first.
    """

    def __init__(self, seconds: float, *, burst: int) -> None:
        self._seconds = seconds
        self._burst = float(burst)
        self._tokens = self._burst
        self._since = -math.inf

    @classmethod
    def per_second(cls, rate: int) -> TokenBucket:
        """Return a bucket of `rate` tokens that regains as many a second; 0 for none at all."""
        return cls(1.0 / rate if rate else math.inf, burst=rate)

    def left(self, now: float) -> float:
        """Return in how many seconds there is a token; 0 for now."""
        tokens = self._at(now)
        return 0.0 if tokens >= 1.0 - _ALMOST else (1.0 - tokens) * self._seconds

    def take(self, now: float) -> None:
        """Take a token."""
        self._tokens, self._since = max(0.0, self._at(now) - 1.0), now

    def try_take(self, now: float) -> bool:
        """Return whether there was a token, and take it."""
        if self.left(now):
            return False
        self.take(now)
        return True

    def give(self, now: float, tokens: float) -> None:
        """Give tokens back, as many as there is room for."""
        self._tokens, self._since = min(self._burst, self._at(now) + tokens), now

    def _at(self, now: float) -> float:
        if self._tokens >= self._burst:
            return self._burst
        return min(self._burst, self._tokens + (now - self._since) / self._seconds)

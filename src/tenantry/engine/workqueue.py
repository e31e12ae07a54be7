"""The order in which keys are reconciled: pure, the time is an argument.

One worker reconciles a key at a time; a key that is added meanwhile runs once more. A failed key waits longer each
time. Keys that failed before take turns with fresh ones, so that one bad tenant never delays the others. A key that is
added all the time is slowed down to `BUSY_PER_SECOND`. A worked example, with the key `a` failing:

    t = 0.00  add a, add b        take ─► a, take ─► b
    t = 0.10  failed(a)           a waits 0.05 s; done(b)
    t = 0.12  add a               a is queued at once: an event may have removed the cause
    t = 0.12  add c, add d …      take ─► c, d, e, f, then a: four fresh keys for each one that failed
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_DELAY_SECONDS = 0.05
LAST_DELAY_SECONDS = 300.0
BUSY_BURST = 20
BUSY_PER_SECOND = 2.0
"""A token bucket for each key: twenty reconciles in a row, then two a second."""

FRESH_PER_RETRY = 4
"""How many fresh keys are taken for each one that failed before, while there are both."""


class WorkQueue(Generic[K]):
    """A queue of keys with back-off per key.

    Args:
        busy_per_second: How often a key that is added all the time is reconciled.
    """

    def __init__(self, busy_per_second: float = BUSY_PER_SECOND) -> None:
        self._busy_per_second = busy_per_second
        self._fresh: deque[K] = deque()
        self._retry: deque[K] = deque()
        self._queued: set[K] = set()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._waiting: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = 0
        self._failures: dict[K, int] = {}
        self._runs: dict[K, tuple[float, float]] = {}
        self._turn = 0

    def __len__(self) -> int:
        """Return how many keys are ready or wait for their time."""
        return len(self._queued) + len(self._waiting)

    @property
    def ready(self) -> int:
        """Return how many keys are queued."""
        return len(self._queued)

    @property
    def working(self) -> int:
        """Return how many keys workers have."""
        return len(self._working)

    def failures(self, key: K) -> int:
        """Return how often a key failed since it last succeeded."""
        return self._failures.get(key, 0)

    def add(self, key: K, now: float) -> None:
        """Queue a key, now or when its rate allows."""
        if key in self._working:
            self._again.add(key)
            return
        if key in self._queued:
            return
        delay = self._busy_delay(key, now)
        if delay > 0:
            self.add_at(key, now + delay)
            return
        self._waiting.pop(key, None)
        self._queued.add(key)
        (self._retry if key in self._failures else self._fresh).append(key)

    def add_at(self, key: K, when: float) -> None:
        """Queue a key at a time; an earlier time stays."""
        if key in self._queued or self._waiting.get(key, float("inf")) <= when:
            return
        self._waiting[key] = when
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, key))

    def take(self, now: float) -> K | None:
        """Return the next key for a worker; None if no key is due."""
        self._wake(now)
        lane = self._next_lane()
        if lane is None:
            return None
        key = lane.popleft()
        self._queued.discard(key)
        self._working.add(key)
        # No debt: a key that asked for quick retries for a while must not keep the next event waiting for them.
        self._runs[key] = (max(0.0, self._tokens(key, now) - 1.0), now)
        return key

    def done(self, key: K, now: float) -> None:
        """Record a successful reconcile of a key."""
        self._failures.pop(key, None)
        self._end(key, now)

    def failed(self, key: K, now: float, after_seconds: float | None = None) -> float:
        """Record a failed reconcile of a key, and return the seconds until the next one.

        Args:
            key: The key.
            now: The time.
            after_seconds: The wanted delay, at least `FIRST_DELAY_SECONDS`; None doubles the last delay.
        """
        count = self._failures[key] = self._failures.get(key, 0) + 1
        if after_seconds is None:
            delay = min(FIRST_DELAY_SECONDS * 2 ** min(count - 1, 32), LAST_DELAY_SECONDS)
        else:
            delay = max(after_seconds, FIRST_DELAY_SECONDS)
        self._end(key, now)
        if key not in self._queued:
            self.add_at(key, now + delay)
        return delay

    def forget(self, key: K) -> None:
        """Remove the back-off and rate of a key whose object is gone."""
        self._failures.pop(key, None)
        self._runs.pop(key, None)

    def next_wake(self) -> float | None:
        """Return the time of the first waiting key; None if no key waits."""
        # A heap has no removal: entries of keys that were queued or moved meanwhile are skipped here.
        while self._heap and self._waiting.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _end(self, key: K, now: float) -> None:
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key, now)

    def _wake(self, now: float) -> None:
        while (when := self.next_wake()) is not None and when <= now:
            key = heapq.heappop(self._heap)[2]
            del self._waiting[key]
            if key in self._working:
                self._again.add(key)
            elif key not in self._queued:
                self._queued.add(key)
                (self._retry if key in self._failures else self._fresh).append(key)

    def _next_lane(self) -> deque[K] | None:
        if self._fresh and self._retry:
            self._turn = (self._turn + 1) % (FRESH_PER_RETRY + 1)
            return self._retry if self._turn == 0 else self._fresh
        return self._fresh or self._retry or None

    def _busy_delay(self, key: K, now: float) -> float:
        if key not in self._runs:
            return 0.0
        tokens = self._tokens(key, now)
        if tokens >= BUSY_BURST:
            del self._runs[key]  # a full bucket equals no record: the memory stays bounded by the busy keys
        return 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._busy_per_second

    def _tokens(self, key: K, now: float) -> float:
        tokens, since = self._runs.get(key, (float(BUSY_BURST), now))
        return min(float(BUSY_BURST), tokens + (now - since) * self._busy_per_second)

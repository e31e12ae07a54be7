"""How many control planes start at once: each start occupies a worker of the operator, and a CPU for seconds."""

from __future__ import annotations

from collections import Counter

AT_ONCE = 8
PER_TENANT = 2
"""A tenant that creates and deletes control planes in a loop must not keep those of other tenants from starting."""


class StartSlots:
    """The starts under way, and the keys that wait for their end."""

    def __init__(self) -> None:
        self._starting: Counter[str] = Counter()
        # In the order in which they began to wait.
        self._waiting: dict[str, None] = {}

    def take(self, tenant: str, key: str) -> bool:
        """Begin a start, and return whether there is a slot for it; if not, `give_back` returns the key."""
        if self._starting[tenant] >= PER_TENANT or self._starting.total() >= AT_ONCE:
            self._waiting[key] = None
            return False
        self._waiting.pop(key, None)
        self._starting[tenant] += 1
        return True

    def give_back(self, tenant: str) -> list[str]:
        """End a start, and return the keys that may try again."""
        self._starting[tenant] -= 1
        if not self._starting[tenant]:
            del self._starting[tenant]
        found, self._waiting = list(self._waiting), {}
        return found

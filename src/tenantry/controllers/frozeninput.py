"""An input of many plans, read from the caches at one time for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from tenantry.engine.cluster import Cluster

T = TypeVar("T")


class FrozenInput(Generic[T]):
    """An input that plans use until `renew`: two plans at the same time must agree.

    Args:
        read: Reads it from the caches.
    """

    def __init__(self, read: Callable[[Cluster], T]) -> None:
        self._read = read
        self._known: T | None = None

    def current(self, cluster: Cluster) -> T:
        """Return the input, which changes only by `renew`."""
        # Read late: the caches are empty when controllers are created.
        if self._known is None:
            self._known = self._read(cluster)
        return self._known

    def renew(self, cluster: Cluster) -> tuple[T, T]:
        """Read the input again, and return it as it was before and as it is now."""
        before, after = self.current(cluster), self._read(cluster)
        self._known = after
        return before, after

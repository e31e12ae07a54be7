"""An input of many plans, read from the caches at one time for all of them, and the controller that reads it again.

The namespaces that a change concerns are reconciled once for all changes within `WINDOW_SECONDS`: a cluster that grows
by a hundred nodes rewrites policies a few times, not a hundred times, and operators install many kinds at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from tenantry.engine.cluster import Cluster

T = TypeVar("T")

WINDOW_SECONDS = 2.0
"""How long changes are collected."""

CHANGED = "changed"
"""The only key of a controller of an input: whatever has changed, the input is read whole."""


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


class FrozenInputController(ABC, Generic[T]):
    """Renews an input after changes, and has the namespaces reconciled whose plans differ by it.

    It writes nothing itself, so it has no plan: the plans of the reconciled namespaces have the new input.

    Args:
        frozen: The input, shared with the controllers whose plans use it.
    """

    def __init__(self, frozen: FrozenInput[T]) -> None:
        self._frozen = frozen
        # The end of the delay, by the monotonic clock; None while no change is waiting.
        self._due: float | None = None

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the contract
        """Renew the input once the delay is over; return in how many seconds that is, None if it was now."""
        now = cluster.clock.monotonic()
        # The delay begins with the first change and is not extended: a cluster that changes all the time must still
        # converge.
        if self._due is None:
            self._due = now + WINDOW_SECONDS
        if now < self._due:
            return self._due - now
        self._due = None
        before, after = self._frozen.renew(cluster)
        if before != after:
            self._requeue(cluster, before, after)
        return None

    @abstractmethod
    def _requeue(self, cluster: Cluster, before: T, after: T) -> None:
        """Have everything reconciled whose plan differs after a change of the input."""

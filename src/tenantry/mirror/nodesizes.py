"""Keeps what the nodes of an upper side have left: a controller of the upper cluster, with one key.

lower nodes, what all pods may still take, own pods ─► capacity.allocatable ─► status of the upper nodes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Protocol

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.model import Json
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import capacity
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES, PODS, Thing
from tenantry.mirror.uppernodes import UpperNodes, seen_allocatable

KEY = "nodes"
"""The one key of the controller."""

PAUSE_SECONDS = 5.0
"""The least time between two looks: every pod changes what is left for all others."""


class CapacityBounds(Protocol):
    """What bounds the pods of an upper side together."""

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """Return the watches of what decides.

        Args:
            keys: Returns the key to queue for each change.
        """
        ...

    async def left(self) -> Mapping[str, Fraction]:
        """Return what pods may still take, by resource of a node; others have no limit.

        Raises:
            ApiError: It is not known at the moment.
        """
        ...


class NodeSizes:
    """Sizes the upper nodes.

    Args:
        upper: The upper cluster, which the controller is added to.
        lower: The lower side.
        nodes: The upper nodes.
        bounds: What bounds their pods.
    """

    name = "nodesizes"
    kind = Thing

    def __init__(self, upper: Cluster, lower: LowerSide, nodes: UpperNodes, bounds: CapacityBounds) -> None:
        self._upper = upper
        self._lower = lower
        self._nodes = nodes
        self._bounds = bounds
        self._next = float("-inf")

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [self._nodes.watch(self._of_node), *self._bounds.watches(lambda: [KEY])]

    @staticmethod
    def _of_node(change: Change[Thing]) -> Iterable[str]:
        before, after = (seen_allocatable(each) if each is not None else "" for each in (change.before, change.after))
        return [KEY] if after and before != after else ()

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Bring the sizes of all nodes to what they should be; return in how many seconds to look again.

        Raises:
            ApiError: One side failed; the queue tries again.
        """
        now = self._upper.clock.monotonic()
        if now < self._next:
            return self._next - now
        self._next = now + PAUSE_SECONDS
        left = await self._bounds.left()
        own = capacity.used(cluster.cache(PODS), left)
        for each in cluster.cache(NODES):
            lower = self._nodes.lower(each.key)
            if lower is None or not lower.allocatable:
                continue
            wanted = capacity.allocatable(lower.allocatable, left, own.get(each.key, {}))
            if capacity.digest(wanted) != seen_allocatable(each):
                await self._write(each.key, wanted)
        return None

    async def _write(self, name: str, wanted: Mapping[str, str]) -> None:
        patch: Json = {"status": {"allocatable": dict(wanted)}}
        # NotFound, Conflict: users have deleted it, or its event wakes this key.
        with suppress(NotFound, Conflict):
            asked = request.patch(NODES, "", name, patch, subresource="status")
            await self._upper.writer.own(asked, quiet=True)

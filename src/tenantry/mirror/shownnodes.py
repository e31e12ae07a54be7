"""Shows lower nodes before pods run on them: a controller of the upper cluster, with one key.

lower nodes that are chosen ─► upper node each           so a DaemonSet reaches them
upper node of another one, without pods ─► deleted       so a DaemonSet makes no pod that can never run
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from tenantry.api.errors import NotFound
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import nodes
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.things import NODES, PODS, Thing
from tenantry.mirror.uppernodes import UpperNodes

KEY = "nodes"
"""The one key of the controller."""

USED_SECONDS = 5.0
"""When to look again at a node that goes when its pods have ended."""

_ENDED = ("Succeeded", "Failed")


class NodeChoice(Protocol):
    """What decides which lower nodes are shown."""

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """Return the watches of what decides.

        Args:
            keys: Returns the key to queue for each change.
        """
        ...

    def names(self) -> Collection[str]:
        """Return the names of the lower nodes; none if there is no choice, and the nodes stay as they are."""
        ...


class ShownNodes:
    """Shows the nodes of a choice.

    Args:
        upper_nodes: The upper nodes.
        choice: The choice.
    """

    name = "shownnodes"
    kind = Thing

    def __init__(self, upper_nodes: UpperNodes, choice: NodeChoice) -> None:
        self._nodes = upper_nodes
        self._choice = choice

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [self._nodes.watch(_of_node), *self._choice.watches(lambda: [KEY])]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Bring the upper nodes to what they should be; return in how many seconds to look again, None for never.

        Raises:
            RetryableError: A lower node is gone.
            ApiError: One side failed; the queue tries again.
        """
        chosen = set(self._choice.names())
        if not chosen:
            return None
        for each in sorted(chosen):
            await self._nodes.bring(each)
        known: Iterable[Thing] = cluster.cache(NODES)
        others = [each for each in known if nodes.address_of(each.object) and not self._is_of(each.key, chosen)]
        used = _used(cluster.cache(PODS)) if others else set[str]()
        for each in others:
            if each.key not in used:
                with suppress(NotFound):
                    await cluster.writer.send(request.delete(NODES, "", each.key))
        return USED_SECONDS if any(each.key in used for each in others) else None

    def _is_of(self, upper: str, chosen: Collection[str]) -> bool:
        lower = self._nodes.lower(upper)
        return lower is not None and lower.name in chosen


def _of_node(change: Change[Thing]) -> Iterable[str]:
    return [KEY] if change.before is None or change.after is None else ()


def _used(pods: Iterable[CachedPod]) -> set[str]:
    """Return the names of the nodes on which pods run."""
    return {
        str(each.spec.get("nodeName"))
        for each in pods
        if each.spec.get("nodeName") and each.status.get("phase") not in _ENDED
    }

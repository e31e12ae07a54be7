"""Has pods leave nodes that change hands, whether a slice begins or ends there.

Since when they have to stands in the Slice's status; where there is no Slice, this process remembers it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from tenantry.api.node import Node
from tenantry.controllers.slices import desired, writes
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.pods import BY_NODE, PodFacts
from tenantry.engine.cache import Cache
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster
from tenantry.world.leases import instant

SETTLE_SECONDS = 0.5
"""How long after nodes are closed their pods are looked at: a scheduler may not have seen it at once."""

_PARTED = "/parted"


class DrainState:
    """What is remembered between two reconciles of pods that have to leave."""

    def __init__(self) -> None:
        # Slice to when nodes of it were closed to others, by the monotonic clock.
        self._closed_at: dict[str, float] = {}
        # Slice without an object to since when its pods have to leave.
        self._leaving: dict[str, str] = {}
        # Node to the slice whose work goes on when pods have gone from there.
        self._emptied: dict[str, str] = {}

    def closed(self, cluster: Cluster, name: str) -> None:
        """Note that nodes of a slice have been closed just now."""
        self._closed_at[name] = cluster.clock.monotonic()

    def settles(self, cluster: Cluster, name: str) -> float:
        """Return in how many seconds every scheduler has seen that nodes are closed; 0 or less when it has."""
        return self._closed_at.get(name, 0.0) + SETTLE_SECONDS - cluster.clock.monotonic()

    def since(self, inputs: SliceInputs, leaving: Sequence[PodFacts], now: dt.datetime) -> str:
        """Return since when pods have to leave; "" while none has to."""
        if not leaving:
            self._leaving.pop(inputs.name, None)
            return ""
        said = inputs.slice.status.leaving_since if inputs.slice is not None else ""
        return said or self._leaving.setdefault(inputs.name, rfc3339(now))

    def parted_since(self, name: str, leaving: Sequence[PodFacts], now: dt.datetime) -> str:
        """Return since when pods have to leave nodes that a slice goes on without; "" while none has to."""
        key = f"{name}{_PARTED}"
        if not leaving:
            self._leaving.pop(key, None)
            return ""
        return self._leaving.setdefault(key, rfc3339(now))

    def watch_over(self, name: str, nodes: Iterable[str]) -> None:
        """Have the end of pods on these nodes wake the slice, and on no others of it."""
        for node in [node for node, owner in self._emptied.items() if owner == name]:
            del self._emptied[node]
        self._emptied |= dict.fromkeys(nodes, name)

    def waiting_for(self, node: str) -> str:
        """Return the slice that waits for pods of a node to end; "" for none."""
        return self._emptied.get(node, "")

    def forget(self, name: str) -> None:
        """Drop what is remembered of a slice."""
        self._closed_at.pop(name, None)
        self._leaving.pop(name, None)
        self._leaving.pop(f"{name}{_PARTED}", None)
        self.watch_over(name, ())


async def send(
    cluster: Cluster,
    inputs: SliceInputs,
    leaving: Sequence[PodFacts],
    since: str,
    now: dt.datetime,
    *,
    what: str = "node",
) -> float | None:
    """Send pods away; nobody goes before the status has said who has to.

    Args:
        cluster: What asks the API server.
        inputs: The slice.
        leaving: The pods.
        since: Since when they have to leave.
        now: The time.
        what: What of their node changes hands, as their owners are told.

    Returns:
        When to look again, in seconds; None where nobody has to be sent again.
    """
    if not leaving:
        return None
    if inputs.slice is not None and not inputs.slice.status.leaving_since:
        return 0.0
    left = (instant(since) - now).total_seconds() + inputs.grace_seconds
    due = desired.leave(leaving, left)
    end = end_of(since, inputs)
    why = {
        pod.key: f"{what} {pod.node!r} changes hands, slice {inputs.name!r}: the pod leaves at the latest at {end}"
        for pod in (*due.ask, *due.end)
    }
    await writes.send_away(cluster, due, why)
    return due.next_seconds


def end_of(since: str, inputs: SliceInputs) -> str:
    """Return when the grace period is over, as RFC 3339; "" while no pod has to leave."""
    return rfc3339(instant(since) + dt.timedelta(seconds=inputs.grace_seconds)) if since else ""


def on_node(there: Cache[PodFacts], node: Node) -> list[PodFacts]:
    """Return the pods that would have to leave a node."""
    return there.by_index(BY_NODE, node.metadata.name)

"""Gives the nodes of a slice back: nobody comes any more, who is there leaves, and then everybody may come."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

from tenantry.api import reasons
from tenantry.api.slice import SliceState
from tenantry.controllers.nodes.controller import Node
from tenantry.controllers.slices import desired, status, writes
from tenantry.controllers.slices.departures import Departures, end_of, on_node, send
from tenantry.controllers.slices.gather import Scene, gather
from tenantry.controllers.slices.pods import PodFacts
from tenantry.controllers.slices.status import Stand
from tenantry.engine.cache import Cache
from tenantry.engine.runtime import Engine


class Release:
    """Gives nodes back.

    Args:
        departures: Pods that have to leave.
        on_free: Told that nodes are everybody's again: what we write ourselves is no news to the cache.
    """

    def __init__(self, departures: Departures, on_free: Callable[[Engine], None]) -> None:
        self._departures = departures
        self._on_free = on_free

    async def go_on(
        self, engine: Engine, scene: Scene, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[Stand | None, float | None]:
        """Bring a slice that has ended one stage further.

        Returns:
            How far it is, None where everything is given back; and when to look again.
        """
        await writes.label(engine, scene.labelled, None)
        scene = await self._close(engine, scene, now)
        # Of a slice that was never bound, the pods are others', who may stay.
        own = {
            node.metadata.name: [pod for pod in on_node(there, node) if pod.slice == scene.name] for node in scene.nodes
        }
        leaving = [pod for found in own.values() for pod in found]
        self._departures.watch_over(scene.name, [name for name, found in own.items() if found])
        since = self._departures.since(scene, leaving, now)
        again = await send(engine, scene, leaving, since, now)
        settles = self._departures.settles(engine, scene.name)
        if settles > 0:
            again = min(settles, again) if again is not None else settles
        else:
            await self.free(engine, scene.name, [node for node in scene.nodes if not own[node.metadata.name]])
            scene = gather(engine, scene.name, now)
        if scene.nodes:
            return Stand(
                state=SliceState.RELEASING,
                reason=ended(scene),
                message=status.leaving(leaving, end_of(since, scene)) if leaving else "the nodes are given back",
                nodes=status.names(scene.nodes),
                leaving_since=since,
            ), again
        if scene.slice is not None:
            await engine.delete(scene.slice)
        return None, None

    async def free(self, engine: Engine, name: str, nodes: Sequence[Node]) -> None:
        """Give nodes back to everybody.

        Raises:
            Conflict: Another slice has one of them.
        """
        if not nodes:
            return
        await writes.mark(engine, name, nodes, desired.freed)
        self._on_free(engine)

    async def _close(self, engine: Engine, scene: Scene, now: dt.datetime) -> Scene:
        """Let no more pods of the slice come to its nodes; they are nobody else's yet."""
        closing = [node for node in scene.nodes if node.metadata.labels.get(desired.SLICE)]
        if not closing:
            return scene
        await writes.mark(engine, scene.name, closing, desired.bind(scene.name, leaving=True))
        self._departures.closed(engine, scene.name)
        return gather(engine, scene.name, now)


def ended(scene: Scene) -> str:
    """Return the reason for which nodes are given back."""
    return reasons.EXPIRED if scene.claim is not None else reasons.CLAIM_ENDED

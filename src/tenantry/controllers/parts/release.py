"""Takes parts back: nobody comes any more, who is there leaves, and then the parts are nobody's."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable

from tenantry.api import reasons
from tenantry.api.slice import SliceState
from tenantry.controllers.nodes.controller import Node
from tenantry.controllers.parts import desired, writes
from tenantry.controllers.parts.gather import gather
from tenantry.controllers.parts.pods import pods_on
from tenantry.controllers.parts.status import nodes_of
from tenantry.controllers.slices import status
from tenantry.controllers.slices.departures import Departures, end_of, send
from tenantry.controllers.slices.gather import Scene
from tenantry.controllers.slices.status import Stand
from tenantry.engine.runtime import Engine
from tenantry.world.parts import is_open

LOOK_AGAIN_SECONDS = 1.0
"""When to see again whether pods have left."""


class Release:
    """What this process knows of parts that are taken back."""

    def __init__(self) -> None:
        self._departures = Departures()

    def forget(self, name: str) -> None:
        """Drop what is known of a slice that is gone."""
        self._departures.forget(name)

    async def go_on(self, engine: Engine, scene: Scene, now: dt.datetime) -> tuple[Stand | None, float | None]:
        """Go one step further; None where everything is given back."""
        await writes.label(engine, scene.labelled, None)
        closing = [node for node in scene.nodes if is_open(node.metadata.labels, scene.name)]
        for node in closing:
            await writes.change(engine, node, lambda node: desired.close(node, scene.name))
        if closing:
            self._departures.closed(engine, scene.name)
        settles = self._departures.settles(engine, scene.name)
        names = [node.metadata.name for node in scene.nodes]
        found = await asyncio.gather(*(pods_on(engine.client, name) for name in names))
        own = {
            name: [pod.facts for pod in pods if pod.part == scene.name] for name, pods in zip(names, found, strict=True)
        }
        leaving = [pod for pods in own.values() for pod in pods]
        since = self._departures.since(scene, leaving, now)
        again = await send(engine, scene, leaving, since, now, what="a part of node")
        if leaving:
            again = min(LOOK_AGAIN_SECONDS, again) if again is not None else LOOK_AGAIN_SECONDS
        if settles > 0:
            again = min(settles, again) if again is not None else settles
        else:
            await self.take_back(engine, scene, [node for node in scene.nodes if not own[node.metadata.name]])
            scene = gather(engine, scene.name, now)
        if scene.nodes:
            told = status.leaving(leaving, end_of(since, scene)) if leaving else "the parts are given back"
            why = reasons.EXPIRED if scene.claim is not None else reasons.CLAIM_ENDED
            stand = Stand(
                state=SliceState.RELEASING, reason=why, message=told, nodes=nodes_of(scene), leaving_since=since
            )
            return stand, again
        if scene.slice is not None:
            await engine.delete(scene.slice)
        self.forget(scene.name)
        return None, None

    async def take_back(self, engine: Engine, scene: Scene, nodes: Iterable[Node]) -> None:
        """Make parts nobody's, where no pods are."""
        for node in nodes:
            await writes.change(engine, node, lambda node: desired.take_back(node, scene.name))

"""Takes parts back: nobody comes any more, who is there leaves, and then the parts are nobody's."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Sequence

from tenantry.api import reasons
from tenantry.api.slice import SliceState
from tenantry.controllers.nodes.controller import Node
from tenantry.controllers.parts import desired, writes
from tenantry.controllers.parts.gather import gather
from tenantry.controllers.parts.pods import pods_on
from tenantry.controllers.parts.status import nodes_of
from tenantry.controllers.slices import status
from tenantry.controllers.slices.desired import leave
from tenantry.controllers.slices.gather import Scene
from tenantry.controllers.slices.pods import PodFacts
from tenantry.controllers.slices.status import Stand
from tenantry.controllers.slices.writes import send_away
from tenantry.engine.clock import rfc3339
from tenantry.engine.runtime import Engine
from tenantry.world.leases import instant
from tenantry.world.parts import is_open

SETTLE_SECONDS = 0.5
"""How long after a part is closed its pods are looked at: a scheduler may not have seen it at once."""

LOOK_AGAIN_SECONDS = 1.0
"""When to see again whether pods have left."""


class Release:
    """What this process knows of parts that are taken back."""

    def __init__(self) -> None:
        # Slice to when its parts were closed, by the monotonic clock.
        self._closed_at: dict[str, float] = {}
        # Slice without an object to since when its pods have to leave.
        self._leaving: dict[str, str] = {}

    def forget(self, name: str) -> None:
        """Drop what is known of a slice that is gone."""
        self._closed_at.pop(name, None)
        self._leaving.pop(name, None)

    async def go_on(self, engine: Engine, scene: Scene, now: dt.datetime) -> tuple[Stand | None, float | None]:
        """Go one step further; None where everything is given back."""
        await writes.label(engine, scene.labelled, None)
        closing = [node for node in scene.nodes if is_open(node.metadata.labels, scene.name)]
        for node in closing:
            await writes.change(engine, node, lambda node: desired.close(node, scene.name))
        if closing:
            self._closed_at[scene.name] = engine.clock.monotonic()
        settles = self._closed_at.get(scene.name, 0.0) + SETTLE_SECONDS - engine.clock.monotonic()
        names = [node.metadata.name for node in scene.nodes]
        found = await asyncio.gather(*(pods_on(engine.client, name) for name in names))
        own = {
            name: [pod.facts for pod in pods if pod.part == scene.name] for name, pods in zip(names, found, strict=True)
        }
        leaving = [pod for pods in own.values() for pod in pods]
        since = self._since(scene, leaving, now)
        again = await _send(engine, scene, leaving, since, now)
        if settles > 0:
            again = min(settles, again) if again is not None else settles
        else:
            await self.take_back(engine, scene, [node for node in scene.nodes if not own[node.metadata.name]])
            scene = gather(engine, scene.name, now)
        if scene.nodes:
            told = status.leaving(leaving, _end(since, scene)) if leaving else "the parts are given back"
            why = reasons.EXPIRED if scene.claim is not None else reasons.CLAIM_ENDED
            stand = Stand(
                state=SliceState.RELEASING, reason=why, message=told, nodes=nodes_of(scene), leaving_since=since
            )
            return stand, again
        if scene.slice is not None:
            await engine.delete(scene.slice)
        self._leaving.pop(scene.name, None)
        return None, None

    async def take_back(self, engine: Engine, scene: Scene, nodes: Iterable[Node]) -> None:
        """Make parts nobody's, where no pods are."""
        for node in nodes:
            await writes.change(engine, node, lambda node: desired.take_back(node, scene.name))

    def _since(self, scene: Scene, leaving: Sequence[PodFacts], now: dt.datetime) -> str:
        """Return since when pods have to leave; "" while none has to."""
        if not leaving:
            self._leaving.pop(scene.name, None)
            return ""
        said = scene.slice.status.leaving_since if scene.slice is not None else ""
        return said or self._leaving.setdefault(scene.name, rfc3339(now))


async def _send(
    engine: Engine, scene: Scene, leaving: Sequence[PodFacts], since: str, now: dt.datetime
) -> float | None:
    """Send pods away; nobody goes before the status has said who has to."""
    if not leaving:
        return None
    if scene.slice is not None and not scene.slice.status.leaving_since:
        return 0.0
    left = (instant(since) - now).total_seconds() + scene.grace_seconds
    what = leave(leaving, left)
    end = _end(since, scene)
    why = {
        pod.key: f"slice {scene.name!r} gives its part of node {pod.node!r} back: the pod leaves at the latest at {end}"
        for pod in (*what.ask, *what.end)
    }
    await send_away(engine, what, why)
    return min(LOOK_AGAIN_SECONDS, what.next_seconds) if what.next_seconds is not None else LOOK_AGAIN_SECONDS


def _end(since: str, scene: Scene) -> str:
    """Return when the grace period is over; "" while no pod has to leave."""
    return rfc3339(instant(since) + dt.timedelta(seconds=scene.grace_seconds)) if since else ""

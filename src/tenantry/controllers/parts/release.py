"""Takes parts back: nobody comes any more, who is there leaves, and then the parts are nobody's."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable

from tenantry.api import reasons
from tenantry.api.node import Node
from tenantry.api.slice import SliceState
from tenantry.controllers.parts import desired, writes
from tenantry.controllers.parts.gather import gather
from tenantry.controllers.parts.pods import pods_on
from tenantry.controllers.parts.status import nodes_of
from tenantry.controllers.slices import status
from tenantry.controllers.slices.draining import DrainState, end_of, send
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.cluster import Cluster
from tenantry.world.parts import is_open

LOOK_AGAIN_SECONDS = 1.0
"""When to see again whether pods have left."""


class PartRelease:
    """What this process knows of parts that are taken back."""

    def __init__(self) -> None:
        self._drain_state = DrainState()

    def forget(self, name: str) -> None:
        """Drop what is known of a slice that is gone."""
        self._drain_state.forget(name)

    async def go_on(
        self, cluster: Cluster, inputs: SliceInputs, now: dt.datetime
    ) -> tuple[SliceProgress | None, float | None]:
        """Go one step further; None where everything is given back."""
        await writes.label(cluster, inputs.labelled, None)
        closing = [node for node in inputs.nodes if is_open(node.metadata.labels, inputs.name)]
        for node in closing:
            await writes.change(cluster, node, lambda node: desired.close(node, inputs.name))
        if closing:
            self._drain_state.closed(cluster, inputs.name)
        settles = self._drain_state.settles(cluster, inputs.name)
        names = [node.metadata.name for node in inputs.nodes]
        found = await asyncio.gather(*(pods_on(cluster, name) for name in names))
        own = {
            name: [pod.facts for pod in pods if pod.part == inputs.name]
            for name, pods in zip(names, found, strict=True)
        }
        leaving = [pod for pods in own.values() for pod in pods]
        since = self._drain_state.since(inputs, leaving, now)
        again = await send(cluster, inputs, leaving, since, now, what="a part of node")
        if leaving:
            again = min(LOOK_AGAIN_SECONDS, again) if again is not None else LOOK_AGAIN_SECONDS
        if settles > 0:
            again = min(settles, again) if again is not None else settles
        else:
            await self.take_back(cluster, inputs, [node for node in inputs.nodes if not own[node.metadata.name]])
            inputs = gather(cluster, inputs.name, now)
        if inputs.nodes:
            told = status.leaving(leaving, end_of(since, inputs)) if leaving else "the parts are given back"
            why = reasons.EXPIRED if inputs.claim is not None else reasons.CLAIM_ENDED
            progress = SliceProgress(
                state=SliceState.RELEASING, reason=why, message=told, nodes=nodes_of(inputs), leaving_since=since
            )
            return progress, again
        if inputs.slice is not None:
            await cluster.writer.delete(inputs.slice)
        self.forget(inputs.name)
        return None, None

    async def take_back(self, cluster: Cluster, inputs: SliceInputs, nodes: Iterable[Node]) -> None:
        """Make parts nobody's, where no pods are."""
        for node in nodes:
            await writes.change(cluster, node, lambda node: desired.take_back(node, inputs.name))

"""Gives the nodes of a slice back: nobody comes any more, who is there leaves, what they left goes, then all may come.

What is left is removed by an agent on each node (`nodeagent/`), which is asked by an annotation and answers by one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import NotFound
from tenantry.api.marks import TAKEN_BACK
from tenantry.api.slice import SliceState
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.controllers.nodes.controller import Node
from tenantry.controllers.slices import cleaning, desired, status, writes
from tenantry.controllers.slices.cleaning import Finding, Stage
from tenantry.controllers.slices.departures import Departures, end_of, on_node, send
from tenantry.controllers.slices.gather import Scene, gather
from tenantry.controllers.slices.pods import PodFacts
from tenantry.controllers.slices.status import Stand
from tenantry.engine.cache import Cache
from tenantry.engine.runtime import Engine
from tenantry.world.leases import instant


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
        await self._close(engine, scene.name, (*scene.nodes, *scene.going))
        scene = _whole(engine, scene.name, now)
        own = _own(there, scene.nodes, scene.name)
        leaving = [pod for found in own.values() for pod in found]
        self._departures.watch_over(scene.name, [name for name, found in own.items() if found])
        since = self._departures.since(scene, leaving, now)
        again = await send(engine, scene, leaving, since, now)
        settles = self._departures.settles(engine, scene.name)
        if settles > 0:
            again = min(settles, again) if again is not None else settles
        else:
            empty = [node for node in scene.nodes if not own[node.metadata.name]]
            findings, later = await self._clean(engine, scene.name, empty, now)
            scene = _whole(engine, scene.name, now)
            again = min((turn for turn in (again, later) if turn is not None), default=None)
            if scene.nodes and not leaving:
                return _cleaning(scene, findings), again
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

    async def give_up(self, engine: Engine, scene: Scene, there: Cache[PodFacts], now: dt.datetime) -> float | None:
        """Give back those nodes of a slice that goes on which their owners take back; return when to look again."""
        if not scene.going:
            return None
        await self._close(engine, scene.name, scene.going)
        settles = self._departures.settles(engine, scene.name)
        if settles > 0:
            return settles
        own = _own(there, scene.going, scene.name)
        turns: list[float] = []
        for node in scene.going:
            left = (instant(node.metadata.annotations[TAKEN_BACK]) - now).total_seconds() + scene.grace_seconds
            what = desired.leave(own[node.metadata.name], left)
            why = f"the owner of node {node.metadata.name!r} takes it back: the pod leaves"
            await writes.send_away(engine, what, {pod.key: why for pod in (*what.ask, *what.end)})
            turns += [what.next_seconds] if what.next_seconds is not None else []
        empty = [node for node in scene.going if not own[node.metadata.name]]
        _, later = await self._clean(engine, scene.name, empty, now)
        return min([*turns, *([later] if later is not None else [])], default=None)

    async def part(self, engine: Engine, scene: Scene, nodes: Sequence[Node]) -> None:
        """Begin to give back nodes that a slice goes on without.

        Raises:
            Conflict: Another slice has one of them.
        """
        bound = [node for node in nodes if desired.is_bound(node, scene.name)]
        await writes.mark(engine, scene.name, bound, desired.bind(scene.name, leaving=True))
        # Where others' pods were not sent away, they stay.
        await self.free(engine, scene.name, [node for node in nodes if node not in bound])

    async def go_on_parting(
        self, engine: Engine, scene: Scene, there: Cache[PodFacts], now: dt.datetime
    ) -> float | None:
        """Bring nodes that a slice goes on without one stage further; return when to look again."""
        nodes = [node for node in scene.nodes if desired.is_parted(node, scene.name)]
        own = _own(there, nodes, scene.name)
        leaving = [pod for found in own.values() for pod in found]
        since = self._departures.parted_since(scene.name, leaving, now)
        again = await send(engine, replace(scene, slice=None), leaving, since, now)
        empty = [node for node in nodes if not own[node.metadata.name]]
        if not empty:
            return again
        _, later = await self._clean(engine, scene.name, empty, now)
        return min((turn for turn in (again, later) if turn is not None), default=None)

    async def free(self, engine: Engine, name: str, nodes: Sequence[Node]) -> None:
        """Give nodes back to everybody.

        Raises:
            Conflict: Another slice has one of them.
        """
        if not nodes:
            return
        await writes.mark(engine, name, nodes, desired.freed)
        self._on_free(engine)

    async def _clean(
        self, engine: Engine, name: str, empty: Sequence[Node], now: dt.datetime
    ) -> tuple[dict[str, Finding], float | None]:
        """Give back what is clean of nodes without pods of the slice, and have the others cleaned.

        Returns:
            What is known of those that are not given back, by their names; and when to look again.
        """
        defaults: TenancyDefaults | None = engine.cache(TenancyDefaults.resource).get(DEFAULTS)
        policy = (defaults.spec.slices if defaults is not None else SliceDefaults()).cleaning
        findings = {node.metadata.name: cleaning.find(node, name, policy, now) for node in empty}
        at = {stage: [node for node in empty if findings[node.metadata.name].stage is stage] for stage in Stage}
        for node in (*at[Stage.CLEAN], *at[Stage.STUCK]):
            await _say(engine, node, findings[node.metadata.name], now)
        await self.free(engine, name, [*at[Stage.NEEDLESS], *at[Stage.CLEAN]])
        await writes.mark(engine, name, at[Stage.TO_ASK], cleaning.ask(name, now))
        waits = at[Stage.TO_ASK] or at[Stage.ASKED]
        return findings, cleaning.ANSWER_SECONDS if waits else None

    async def _close(self, engine: Engine, name: str, nodes: Sequence[Node]) -> None:
        """Let no more pods of a slice come to nodes of it; they are nobody else's yet."""
        closing = [node for node in nodes if node.metadata.labels.get(desired.SLICE)]
        if closing:
            await writes.mark(engine, name, closing, desired.bind(name, leaving=True))
            self._departures.closed(engine, name)


def _whole(engine: Engine, name: str, now: dt.datetime) -> Scene:
    """Return what is known of a slice that ends: whoever takes nodes back, all of them go."""
    scene = gather(engine, name, now)
    return replace(scene, nodes=(*scene.nodes, *scene.going), going=())


def _own(there: Cache[PodFacts], nodes: Sequence[Node], name: str) -> dict[str, list[PodFacts]]:
    """Return the pods of a slice on each node: of one that was never bound, the pods are others', who may stay."""
    return {node.metadata.name: [pod for pod in on_node(there, node) if pod.slice == name] for node in nodes}


async def _say(engine: Engine, node: Node, finding: Finding, now: dt.datetime) -> None:
    """Have the node itself say how its cleaning ended."""
    patch = cleaning.condition(node, finding, now)
    if not patch:
        return
    with suppress(NotFound):
        await engine.client.strategic_patch(Node.resource, "", node.metadata.name, patch, subresource="status")


def _cleaning(scene: Scene, findings: Mapping[str, Finding]) -> Stand:
    """Return how a slice stands whose pods have gone, and whose nodes are not all clean."""
    waiting = [node.metadata.name for node in scene.nodes]
    stuck = [name for name in waiting if name in findings and findings[name].stage is Stage.STUCK]
    message = f"what was left on these nodes is removed: {status.named(sorted(waiting))}"
    if stuck:
        first = min(stuck)
        others = f" and {len(stuck) - 1} more" if len(stuck) > 1 else ""
        message = f"not clean, and set aside until they are: '{first}'{others}; of '{first}', {findings[first].message}"
    return Stand(
        state=SliceState.RELEASING,
        reason=reasons.NODES_NOT_CLEAN if stuck else reasons.CLEANING,
        message=message,
        nodes=status.names(scene.nodes),
        stalled=bool(stuck),
    )


def ended(scene: Scene) -> str:
    """Return the reason for which nodes are given back."""
    return reasons.EXPIRED if scene.claim is not None else reasons.CLAIM_ENDED

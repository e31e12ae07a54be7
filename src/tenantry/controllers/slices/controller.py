"""Reconciles slices: the key is the slice's name, whether the claim, the Slice or only the marks of nodes are left.

    reserve   nodes are chosen and marked, all in one go of this process, so that claims do not get in each other's way;
              another process, or a person, is seen by the node's resourceVersion
    drain     pods of others are asked to leave, and deleted after the grace period
    bind      nobody else is there: the nodes are marked as the slice's alone, then its namespaces
    release   namespaces first, then the pods, and the nodes last

Each stage begins when the one before it is seen to be done, whoever did it: a restart goes on where it was.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.slice import SliceClaim, SliceState
from tenantry.controllers import watched
from tenantry.controllers.nodes.controller import Node, decode_node
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.slices import charge, cleaning, desired, pods, standing, status, writes
from tenantry.controllers.slices.charge import Charges
from tenantry.controllers.slices.departures import Departures, end_of, on_node, send
from tenantry.controllers.slices.gather import (
    BY_SLICE,
    NodeBook,
    Scene,
    gather,
    slice_of_claim,
    slice_of_namespace,
    slice_of_node,
    users_of,
)
from tenantry.controllers.slices.places import Places, claim_namespace
from tenantry.controllers.slices.pods import BY_NODE, Pod, PodFacts
from tenantry.controllers.slices.release import Release
from tenantry.controllers.slices.status import Stand
from tenantry.controllers.slices.waiting import Waiting
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.engine.runtime import Engine, Watch
from tenantry.world.slices.selection import Choice, Held, counted, is_enough, select, sum_of

LOOK_AGAIN_SECONDS = 5.0
"""When to look again at what no watch tells of."""

AT_ONCE = 8
"""How many claims take nodes at once: the first have all of theirs before the last begin."""


class SliceController:
    """Reconciles slices.

    Args:
        verdicts: What the quota controller says of claims.
    """

    name = "slices"

    def __init__(self, verdicts: Verdicts) -> None:
        self._charges = Charges(verdicts)
        # Node to the slice that is about to take it: what this process has chosen, and no cache knows yet.
        self._picked: dict[str, str] = {}
        self._book = NodeBook()
        self._gate = asyncio.Semaphore(AT_ONCE)
        # Slices that wait for nodes, and how often there was news of nodes for them.
        self._waiting = Waiting()
        self._news = 0
        self._places = Places(slice_of_namespace)
        self._departures = Departures()
        self._releasing = Release(self._departures, self._on_free)

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; pods are watched from the first claim on."""
        return [
            Watch(
                resource=SliceClaim.resource,
                decode=msgspec.json.Decoder(SliceClaim).decode,
                keys=_of_claim,
                indexes={BY_SLICE: slice_of_claim, watched.BY_NAMESPACE: claim_namespace},
            ),
            watched.slices(watched.own_key),
            Watch(resource=Node.resource, decode=decode_node, keys=self._of_node, indexes={BY_SLICE: slice_of_node}),
            _namespaces(self._places.by_namespace),
            watched.subnamespaces(self._places.by_subnamespace),
            watched.tenants(self._places.by_tenant),
            watched.defaults(lambda _: list(self._places)),
        ]

    async def reconcile(self, engine: Engine, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one slice one stage further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        now = engine.clock.now()
        scene = gather(engine, key, now)
        if scene.claim is None and scene.slice is None and not scene.nodes and not scene.going:
            self._forget(engine, key)
            return None
        if scene.is_part:
            return None
        self._places.note(scene)
        there: Cache[PodFacts] = await engine.require(self.name, self._pods())
        scene = gather(engine, key, now)
        stand, again = await (
            self._release(engine, scene, there, now) if standing.ends(scene) else self._keep(engine, scene, there, now)
        )
        later = None if standing.ends(scene) else await self._releasing.give_up(engine, scene, there, now)
        await writes.tell(engine, gather(engine, key, now), stand, rfc3339(now))
        turns = [seconds for seconds in (again, later, scene.lease.next_seconds) if seconds is not None]
        return min(turns, default=None)

    # -- keeping ----------------------------------------------------------------------------------

    async def _keep(
        self, engine: Engine, scene: Scene, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[Stand, float | None]:
        stand, again = await self._hold(engine, _without_parted(scene), there, now)
        turns = [again, await self._releasing.go_on_parting(engine, gather(engine, scene.name, now), there, now)]
        if scene.claim is not None:
            turns.append(desired.lost(scene.nodes, scene.claim.spec.replace_after_seconds, now)[1])
        return stand, min((turn for turn in turns if turn is not None), default=None)

    async def _hold(
        self, engine: Engine, scene: Scene, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[Stand, float | None]:
        problem = standing.in_the_way(scene)
        if problem is not None and not scene.nodes:
            await charge.give_up(engine, scene)
            return problem, LOOK_AGAIN_SECONDS
        news = self._news
        choice, waits = await self._reserve(engine, scene, there, now)
        scene = _without_parted(gather(engine, scene.name, now))
        if waits is not None and not standing.was_held(scene) and not scene.nodes:
            self._waiting.discard(scene.name)
            return waits, None
        if choice.short and not standing.was_held(scene):
            # Whatever it got of what it needs altogether stands in the way of others only.
            await self._releasing.free(engine, scene.name, scene.nodes)
            await charge.give_up(engine, _without_parted(gather(engine, scene.name, now)))
            self._waiting.add(scene)
            # What others gave back since the choice has woken only those that waited then.
            again = 0.0 if self._news != news and not scene.nodes else None
            return Stand(state=SliceState.PENDING, reason=reasons.NODES_INSUFFICIENT, message=choice.short), again
        users = users_of(engine, scene, now)
        degraded = standing.degraded(scene.nodes, choice.short or (waits.message if waits is not None else ""))
        if degraded:
            self._waiting.add(scene)
        else:
            self._waiting.discard(scene.name)
        if not users:
            await writes.label(engine, scene.labelled, None)
            message = f"{counted(len(scene.nodes), 'node is', 'nodes are')} set aside, until a namespace uses the claim"
            names = status.names(scene.nodes)
            return Stand(
                state=SliceState.RESERVED,
                reason=reasons.NODES_RESERVED,
                message=message,
                nodes=names,
                degraded=degraded,
            ), None
        stand, again = await self._bind(engine, scene, there, now)
        if stand.state is SliceState.BOUND:
            await self._let_in(engine, scene, users)
            stand = msgspec.structs.replace(stand, namespaces=tuple(each.name for each in users))
        return msgspec.structs.replace(stand, degraded=degraded), again

    async def _reserve(
        self, engine: Engine, scene: Scene, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[Choice, Stand | None]:
        """Set aside the nodes that a claim lacks, and put back what somebody changed of those that it has.

        Returns:
            What was chosen, and what stands in the way of taking it.
        """
        nothing = Choice(nodes=(), refused={})
        if scene.claim is None or scene.tenant is None:
            return nothing, None
        lost, _ = desired.lost(scene.nodes, scene.claim.spec.replace_after_seconds, now)
        if lost:
            async with self._gate:
                choice, waits = await self._replace(engine, scene, there, lost)
            if not choice.short and waits is None:
                return choice, None
        if is_enough(scene.claim.spec, _held(scene)):
            return nothing, await self._take(engine, scene, nothing)
        async with self._gate:
            scene = _without_parted(gather(engine, scene.name, now))
            choice = self.choose(engine, scene, there)
            return choice, await self._take(engine, scene, choice)

    async def _replace(
        self, engine: Engine, scene: Scene, there: Cache[PodFacts], lost: Sequence[Node]
    ) -> tuple[Choice, Stand | None]:
        """Take other nodes for those that are lost, and part with these; where others cannot be had they stay."""
        sound = msgspec.structs.replace(scene, nodes=tuple(node for node in scene.nodes if node not in lost))
        choice = self.choose(engine, sound, there)
        waits = await self._take(engine, sound, choice) if not choice.short else None
        if not choice.short and waits is None:
            await self._releasing.part(engine, scene, lost)
            if scene.claim is not None:
                told = f"not ready for too long, and given back: {status.named(status.names(lost))}"
                engine.recorder.say(scene.claim, EventKind.WARNING, reasons.NODES_LOST, told)
        return choice, waits

    async def _take(self, engine: Engine, scene: Scene, choice: Choice) -> Stand | None:
        """Mark what was chosen, once it is paid for; between the choice and the note of it nothing else runs."""
        if scene.claim is None or scene.tenant is None:
            return None
        picked = dict.fromkeys(choice.nodes, scene.name)
        self._picked |= picked
        try:
            nodes: Cache[Node] = engine.cache(Node.resource)
            chosen = [node for name in choice.nodes if (node := nodes.get(name)) is not None]
            if not choice.short or scene.nodes:
                waits = await self._charges.settle(engine, scene, [*scene.nodes, *chosen])
                chosen = chosen if waits is None else []
            else:
                waits = None
            # What is bound stays so.
            kept = [node for node in scene.nodes if not node.metadata.labels.get(desired.SLICE)]
            note = desired.note_of(scene.claim)
            await writes.mark(engine, scene.name, [*chosen, *kept], desired.reserve(scene.name, note))
        finally:
            for name in picked:
                self._picked.pop(name, None)
        if chosen:
            self._departures.closed(engine, scene.name)
        return waits

    def choose(self, engine: Engine, scene: Scene, there: Cache[PodFacts]) -> Choice:
        """Return the nodes that a claim lacks; see `world.slices`."""
        if scene.claim is None or scene.tenant is None:
            return Choice(nodes=(), refused={})
        nodes: Cache[Node] = engine.cache(Node.resource)
        found = self._book.read(nodes, partial(there.count, BY_NODE), self._picked)
        return select(
            scene.claim.spec, found, _held(scene), scene.tenant.metadata.name, shared=scene.defaults.shared_nodes
        )

    async def _bind(
        self, engine: Engine, scene: Scene, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[Stand, float | None]:
        """Bring nodes that are set aside to where they are the slice's alone."""
        names = status.names(scene.nodes)
        settles = self._departures.settles(engine, scene.name)
        waiting = [node for node in scene.nodes if not desired.is_bound(node, scene.name)]
        foreign = {node.metadata.name: desired.others(on_node(there, node), scene.name) for node in waiting}
        empty = [node for node in waiting if not foreign[node.metadata.name]]
        self._departures.watch_over(scene.name, [name for name, found in foreign.items() if found])
        if settles <= 0 and empty:
            await writes.mark(engine, scene.name, empty, desired.bind(scene.name))
            waiting = [node for node in waiting if foreign[node.metadata.name]]
        was_bound = scene.slice is not None and scene.slice.status.state is SliceState.BOUND
        leaving = [pod for found in foreign.values() for pod in found]
        since = self._departures.since(scene, leaving, now)
        again = await send(engine, scene, leaving, since, now)
        if settles > 0 and waiting:
            again = min(settles, again) if again is not None else settles
        if not waiting or was_bound:
            message = f"{counted(len(names), 'node is', 'nodes are')} the tenant's alone"
            return Stand(
                state=SliceState.BOUND,
                reason=reasons.NODES_BOUND,
                message=message,
                nodes=names,
                leaving_since=since,
            ), again
        message = status.leaving(leaving, end_of(since, scene)) if leaving else "the nodes are being looked at"
        return Stand(
            state=SliceState.DRAINING,
            reason=reasons.PODS_LEAVING,
            message=message,
            nodes=names,
            leaving_since=since,
        ), again

    async def _let_in(self, engine: Engine, scene: Scene, users: Sequence[Observed]) -> None:
        """Have the pods of namespaces run on the slice, from the next one on, and no others."""
        wanted = {each.name for each in users}
        await writes.label(engine, [each for each in scene.labelled if each.name not in wanted], None)
        lacking = [each for each in users if not each.labels.get(desired.SLICE)]
        await writes.label(engine, lacking, scene.name)

    # -- giving back ------------------------------------------------------------------------------

    async def _release(
        self, engine: Engine, scene: Scene, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[Stand, float | None]:
        stand, again = await self._releasing.go_on(engine, scene, there, now)
        return stand or standing.idle(scene), again

    def _on_free(self, engine: Engine) -> None:
        """Tell those that wait that there are nodes for everybody."""
        self._news += 1
        for waiting in self._waiting:
            engine.wake(self.name, waiting)

    # -- pods -------------------------------------------------------------------------------------

    def _pods(self) -> Watch:
        return Watch(
            resource=Pod.resource,
            decode=pods.observe,
            keys=self._of_pod,
            indexes={BY_NODE: pods.leaving_of, pods.BY_NAMESPACE: pods.namespace_of},
        )

    # -- saying -----------------------------------------------------------------------------------

    def _forget(self, engine: Engine, key: str) -> None:
        self._waiting.discard(key)
        self._places.forget(key)
        self._departures.forget(key)
        engine.forget(self.name, key)

    # -- who is concerned -------------------------------------------------------------------------

    def _of_node(self, change: Change[Node]) -> Iterable[str]:
        """Return the slices of a node that is another now, and those that wait for one."""
        before, after = change.before, change.after
        old = desired.facts(before, 0) if before is not None else None
        new = desired.facts(after, 0) if after is not None else None
        if old == new and before is not None and after is not None and before.spec == after.spec:
            # A heartbeat, but for what the node's agent says.
            return slice_of_node(after) if cleaning.word(before) != cleaning.word(after) else ()
        self._news += 1
        held = {facts.taken_by for facts in (old, new) if facts is not None and facts.taken_by}
        return [*held, *self._waiting] if new is not None else held

    def _of_pod(self, change: Change[PodFacts]) -> Iterable[str]:
        before, after = change.before, change.after
        if before is None or (after is not None and after.stays == before.stays):
            return ()
        waiting = self._departures.waiting_for(before.node)
        return [waiting] if waiting else ()


def _namespaces(keys: Any) -> Watch:  # noqa: ANN401 - as `Watch` has it
    """Return how namespaces are watched, found by their slice besides."""
    watch = watched.watch(Namespace.resource, keys)
    indexes = {**(watch.indexes or {}), BY_SLICE: slice_of_namespace}
    return msgspec.structs.replace(watch, indexes=indexes)


def _of_claim(change: Change[SliceClaim]) -> Iterable[str]:
    return {name for each in (change.before, change.after) if each is not None for name in slice_of_claim(each)}


def _held(scene: Scene) -> Held:
    return sum_of(desired.facts(node, 0) for node in scene.nodes)


def _without_parted(scene: Scene) -> Scene:
    """Leave out the nodes that a slice has parted with: they are not everybody's yet."""
    kept = tuple(node for node in scene.nodes if not desired.is_parted(node, scene.name))
    return msgspec.structs.replace(scene, nodes=kept)

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
from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim, SliceState
from tenantry.controllers import watched
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.slices import charge, cleaning, desired, pods, preconditions, status, writes
from tenantry.controllers.slices.charge import Charges
from tenantry.controllers.slices.claimindex import ClaimIndex, claim_namespace
from tenantry.controllers.slices.claimqueue import ClaimQueue
from tenantry.controllers.slices.draining import DrainState, end_of, on_node, send
from tenantry.controllers.slices.gather import (
    BY_SLICE,
    NodeFactsCache,
    SliceInputs,
    gather,
    slice_of_claim,
    slice_of_namespace,
    slice_of_node,
    users_of,
)
from tenantry.controllers.slices.pods import BY_NODE, Pod, PodFacts
from tenantry.controllers.slices.release import SliceRelease
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.world.slices.selection import Choice, HeldNodes, counted, is_enough, select, sum_of

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
    kind = SliceClaim

    def __init__(self, verdicts: Verdicts) -> None:
        self._charges = Charges(verdicts)
        # Node to the slice that is about to take it: what this process has chosen, and no cache knows yet.
        self._picked: dict[str, str] = {}
        self._node_facts = NodeFactsCache()
        self._gate = asyncio.Semaphore(AT_ONCE)
        # Slices that wait for nodes, and how often there was news of nodes for them.
        self._waiting = ClaimQueue()
        self._news = 0
        self._claims = ClaimIndex(slice_of_namespace)
        self._drain_state = DrainState()
        self._releasing = SliceRelease(self._drain_state, self._on_free)

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; pods are watched from the first claim on."""
        return [
            Watch(
                resource=SliceClaim.resource,
                decode=watched.decoder(SliceClaim),
                keys=_of_claim,
                indexes={BY_SLICE: slice_of_claim, watched.BY_NAMESPACE: claim_namespace},
            ),
            watched.slices(watched.own_key),
            watched.nodes(self._of_node, indexes={BY_SLICE: slice_of_node}),
            _namespaces(self._claims.by_namespace),
            watched.subnamespaces(self._claims.by_subnamespace),
            watched.tenants(self._claims.by_tenant),
            watched.defaults(lambda _: list(self._claims)),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one slice one stage further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        now = cluster.clock.now()
        inputs = gather(cluster, key, now)
        if inputs.claim is None and inputs.slice is None and not inputs.nodes and not inputs.going:
            self._forget(cluster, key)
            return None
        if inputs.is_part:
            return None
        self._claims.note(inputs)
        there: Cache[PodFacts] = await cluster.require(self.name, self._pods())
        inputs = gather(cluster, key, now)
        progress, again = await (
            self._release(cluster, inputs, there, now)
            if preconditions.ends(inputs)
            else self._keep(cluster, inputs, there, now)
        )
        later = None if preconditions.ends(inputs) else await self._releasing.give_up(cluster, inputs, there, now)
        await writes.tell(cluster, gather(cluster, key, now), progress, rfc3339(now))
        turns = [seconds for seconds in (again, later, inputs.lease.next_seconds) if seconds is not None]
        return min(turns, default=None)

    # -- keeping ----------------------------------------------------------------------------------

    async def _keep(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[SliceProgress, float | None]:
        progress, again = await self._hold(cluster, _without_parted(inputs), there, now)
        turns = [again, await self._releasing.go_on_parting(cluster, gather(cluster, inputs.name, now), there, now)]
        if inputs.claim is not None:
            turns.append(desired.lost(inputs.nodes, inputs.claim.spec.replace_after_seconds, now)[1])
        return progress, min((turn for turn in turns if turn is not None), default=None)

    async def _hold(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[SliceProgress, float | None]:
        problem = preconditions.unmet(inputs)
        if problem is not None and not inputs.nodes:
            await charge.give_up(cluster, inputs)
            return problem, LOOK_AGAIN_SECONDS
        news = self._news
        choice, waits = await self._reserve(cluster, inputs, there, now)
        inputs = _without_parted(gather(cluster, inputs.name, now))
        if waits is not None and not preconditions.was_held(inputs) and not inputs.nodes:
            self._waiting.discard(inputs.name)
            return waits, None
        if choice.short and not preconditions.was_held(inputs):
            # Whatever it got of what it needs altogether stands in the way of others only.
            await self._releasing.free(cluster, inputs.name, inputs.nodes)
            await charge.give_up(cluster, _without_parted(gather(cluster, inputs.name, now)))
            self._waiting.add(inputs)
            # What others gave back since the choice has woken only those that waited then.
            again = 0.0 if self._news != news and not inputs.nodes else None
            return SliceProgress(
                state=SliceState.PENDING, reason=reasons.NODES_INSUFFICIENT, message=choice.short
            ), again
        users = users_of(cluster, inputs, now)
        degraded = preconditions.degraded(inputs.nodes, choice.short or (waits.message if waits is not None else ""))
        if degraded:
            self._waiting.add(inputs)
        else:
            self._waiting.discard(inputs.name)
        if not users:
            await writes.label(cluster, inputs.labelled, None)
            message = (
                f"{counted(len(inputs.nodes), 'node is', 'nodes are')} set aside, until a namespace uses the claim"
            )
            names = status.names(inputs.nodes)
            return SliceProgress(
                state=SliceState.RESERVED,
                reason=reasons.NODES_RESERVED,
                message=message,
                nodes=names,
                degraded=degraded,
            ), None
        progress, again = await self._bind(cluster, inputs, there, now)
        if progress.state is SliceState.BOUND:
            await self._let_in(cluster, inputs, users)
            progress = msgspec.structs.replace(progress, namespaces=tuple(each.name for each in users))
        return msgspec.structs.replace(progress, degraded=degraded), again

    async def _reserve(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[Choice, SliceProgress | None]:
        """Set aside the nodes that a claim lacks, and put back what somebody changed of those that it has.

        Returns:
            What was chosen, and what stands in the way of taking it.
        """
        nothing = Choice(nodes=(), refused={})
        if inputs.claim is None or inputs.tenant is None:
            return nothing, None
        lost, _ = desired.lost(inputs.nodes, inputs.claim.spec.replace_after_seconds, now)
        if lost:
            async with self._gate:
                choice, waits = await self._replace(cluster, inputs, there, lost)
            if not choice.short and waits is None:
                return choice, None
        if is_enough(inputs.claim.spec, _held(inputs)):
            return nothing, await self._take(cluster, inputs, nothing)
        async with self._gate:
            inputs = _without_parted(gather(cluster, inputs.name, now))
            choice = self.choose(cluster, inputs, there)
            return choice, await self._take(cluster, inputs, choice)

    async def _replace(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], lost: Sequence[Node]
    ) -> tuple[Choice, SliceProgress | None]:
        """Take other nodes for those that are lost, and part with these; where others cannot be had they stay."""
        sound = msgspec.structs.replace(inputs, nodes=tuple(node for node in inputs.nodes if node not in lost))
        choice = self.choose(cluster, sound, there)
        waits = await self._take(cluster, sound, choice) if not choice.short else None
        if not choice.short and waits is None:
            await self._releasing.part(cluster, inputs, lost)
            if inputs.claim is not None:
                told = f"not ready for too long, and given back: {status.named(status.names(lost))}"
                cluster.recorder.say(inputs.claim, EventKind.WARNING, reasons.NODES_LOST, told)
        return choice, waits

    async def _take(self, cluster: Cluster, inputs: SliceInputs, choice: Choice) -> SliceProgress | None:
        """Mark what was chosen, once it is paid for; between the choice and the note of it nothing else runs."""
        if inputs.claim is None or inputs.tenant is None:
            return None
        picked = dict.fromkeys(choice.nodes, inputs.name)
        self._picked |= picked
        try:
            nodes: Cache[Node] = cluster.cache(Node.resource)
            chosen = [node for name in choice.nodes if (node := nodes.get(name)) is not None]
            if not choice.short or inputs.nodes:
                waits = await self._charges.settle(cluster, inputs, [*inputs.nodes, *chosen])
                chosen = chosen if waits is None else []
            else:
                waits = None
            # What is bound stays so.
            kept = [node for node in inputs.nodes if not node.metadata.labels.get(desired.SLICE)]
            note = desired.note_of(inputs.claim)
            await writes.mark(cluster, inputs.name, [*chosen, *kept], desired.reserve(inputs.name, note))
        finally:
            for name in picked:
                self._picked.pop(name, None)
        if chosen:
            self._drain_state.closed(cluster, inputs.name)
        return waits

    def choose(self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts]) -> Choice:
        """Return the nodes that a claim lacks; see `world.slices`."""
        if inputs.claim is None or inputs.tenant is None:
            return Choice(nodes=(), refused={})
        nodes: Cache[Node] = cluster.cache(Node.resource)
        found = self._node_facts.read(nodes, partial(there.count, BY_NODE), self._picked)
        return select(
            inputs.claim.spec, found, _held(inputs), inputs.tenant.metadata.name, shared=inputs.defaults.shared_nodes
        )

    async def _bind(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[SliceProgress, float | None]:
        """Bring nodes that are set aside to where they are the slice's alone."""
        names = status.names(inputs.nodes)
        settles = self._drain_state.settles(cluster, inputs.name)
        waiting = [node for node in inputs.nodes if not desired.is_bound(node, inputs.name)]
        foreign = {node.metadata.name: desired.others(on_node(there, node), inputs.name) for node in waiting}
        empty = [node for node in waiting if not foreign[node.metadata.name]]
        self._drain_state.watch_over(inputs.name, [name for name, found in foreign.items() if found])
        if settles <= 0 and empty:
            await writes.mark(cluster, inputs.name, empty, desired.bind(inputs.name))
            waiting = [node for node in waiting if foreign[node.metadata.name]]
        was_bound = inputs.slice is not None and inputs.slice.status.state is SliceState.BOUND
        leaving = [pod for found in foreign.values() for pod in found]
        since = self._drain_state.since(inputs, leaving, now)
        again = await send(cluster, inputs, leaving, since, now)
        if settles > 0 and waiting:
            again = min(settles, again) if again is not None else settles
        if not waiting or was_bound:
            message = f"{counted(len(names), 'node is', 'nodes are')} the tenant's alone"
            return SliceProgress(
                state=SliceState.BOUND,
                reason=reasons.NODES_BOUND,
                message=message,
                nodes=names,
                leaving_since=since,
            ), again
        message = status.leaving(leaving, end_of(since, inputs)) if leaving else "the nodes are being looked at"
        return SliceProgress(
            state=SliceState.DRAINING,
            reason=reasons.PODS_LEAVING,
            message=message,
            nodes=names,
            leaving_since=since,
        ), again

    async def _let_in(self, cluster: Cluster, inputs: SliceInputs, users: Sequence[Observed]) -> None:
        """Have the pods of namespaces run on the slice, from the next one on, and no others."""
        wanted = {each.name for each in users}
        await writes.label(cluster, [each for each in inputs.labelled if each.name not in wanted], None)
        lacking = [each for each in users if not each.labels.get(desired.SLICE)]
        await writes.label(cluster, lacking, inputs.name)

    # -- giving back ------------------------------------------------------------------------------

    async def _release(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[SliceProgress, float | None]:
        progress, again = await self._releasing.go_on(cluster, inputs, there, now)
        return progress or preconditions.idle(inputs), again

    def _on_free(self, cluster: Cluster) -> None:
        """Tell those that wait that there are nodes for everybody."""
        self._news += 1
        for waiting in self._waiting:
            cluster.wake(type(self), waiting)

    # -- pods -------------------------------------------------------------------------------------

    def _pods(self) -> Watch:
        return Watch(
            resource=Pod.resource,
            decode=pods.observe,
            keys=self._of_pod,
            indexes={BY_NODE: pods.leaving_of, pods.BY_NAMESPACE: pods.namespace_of},
        )

    # -- saying -----------------------------------------------------------------------------------

    def _forget(self, cluster: Cluster, key: str) -> None:
        self._waiting.discard(key)
        self._claims.forget(key)
        self._drain_state.forget(key)
        cluster.forget(self.name, key)

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
        waiting = self._drain_state.waiting_for(before.node)
        return [waiting] if waiting else ()


def _namespaces(keys: Any) -> Watch:  # noqa: ANN401 - as `Watch` has it
    """Return how namespaces are watched, found by their slice besides."""
    watch = watched.watch(Namespace.resource, keys)
    indexes = {**(watch.indexes or {}), BY_SLICE: slice_of_namespace}
    return msgspec.structs.replace(watch, indexes=indexes)


def _of_claim(change: Change[SliceClaim]) -> Iterable[str]:
    return {name for each in (change.before, change.after) if each is not None for name in slice_of_claim(each)}


def _held(inputs: SliceInputs) -> HeldNodes:
    return sum_of(desired.facts(node, 0) for node in inputs.nodes)


def _without_parted(inputs: SliceInputs) -> SliceInputs:
    """Leave out the nodes that a slice has parted with: they are not everybody's yet."""
    kept = tuple(node for node in inputs.nodes if not desired.is_parted(node, inputs.name))
    return msgspec.structs.replace(inputs, nodes=kept)

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
from tenantry.api.node import Node
from tenantry.api.slice import SliceState
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.controllers.slices import cleaning, desired, status, writes
from tenantry.controllers.slices.cleaning import CleaningStage, NodeCleaning
from tenantry.controllers.slices.draining import DrainState, end_of, on_node, send
from tenantry.controllers.slices.gather import SliceInputs, gather
from tenantry.controllers.slices.pods import PodFacts
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.request import PatchType
from tenantry.world.leases import instant


class SliceRelease:
    """Gives nodes back.

    Args:
        drain_state: Pods that have to leave.
        on_free: Told that nodes are everybody's again: what we write ourselves is no news to the cache.
    """

    def __init__(self, drain_state: DrainState, on_free: Callable[[Cluster], None]) -> None:
        self._drain_state = drain_state
        self._on_free = on_free

    async def go_on(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], now: dt.datetime
    ) -> tuple[SliceProgress | None, float | None]:
        """Bring a slice that has ended one stage further.

        Returns:
            How far it is, None where everything is given back; and when to look again.
        """
        await writes.label(cluster, inputs.labelled, None)
        await self._close(cluster, inputs.name, (*inputs.nodes, *inputs.going))
        inputs = _whole(cluster, inputs.name, now)
        own = _own(there, inputs.nodes, inputs.name)
        leaving = [pod for found in own.values() for pod in found]
        self._drain_state.watch_over(inputs.name, [name for name, found in own.items() if found])
        since = self._drain_state.since(inputs, leaving, now)
        again = await send(cluster, inputs, leaving, since, now)
        settles = self._drain_state.settles(cluster, inputs.name)
        if settles > 0:
            again = min(settles, again) if again is not None else settles
        else:
            empty = [node for node in inputs.nodes if not own[node.metadata.name]]
            findings, later = await self._clean(cluster, inputs.name, empty, now)
            inputs = _whole(cluster, inputs.name, now)
            again = min((turn for turn in (again, later) if turn is not None), default=None)
            if inputs.nodes and not leaving:
                return _cleaning(inputs, findings), again
        if inputs.nodes:
            return SliceProgress(
                state=SliceState.RELEASING,
                reason=ended(inputs),
                message=status.leaving(leaving, end_of(since, inputs)) if leaving else "the nodes are given back",
                nodes=status.names(inputs.nodes),
                leaving_since=since,
            ), again
        if inputs.slice is not None:
            await cluster.writer.delete(inputs.slice)
        return None, None

    async def give_up(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], now: dt.datetime
    ) -> float | None:
        """Give back those nodes of a slice that goes on which their owners take back; return when to look again."""
        if not inputs.going:
            return None
        await self._close(cluster, inputs.name, inputs.going)
        settles = self._drain_state.settles(cluster, inputs.name)
        if settles > 0:
            return settles
        own = _own(there, inputs.going, inputs.name)
        turns: list[float] = []
        for node in inputs.going:
            left = (instant(node.metadata.annotations[TAKEN_BACK]) - now).total_seconds() + inputs.grace_seconds
            what = desired.leave(own[node.metadata.name], left)
            why = f"the owner of node {node.metadata.name!r} takes it back: the pod leaves"
            await writes.send_away(cluster, what, {pod.key: why for pod in (*what.ask, *what.end)})
            turns += [what.next_seconds] if what.next_seconds is not None else []
        empty = [node for node in inputs.going if not own[node.metadata.name]]
        _, later = await self._clean(cluster, inputs.name, empty, now)
        return min([*turns, *([later] if later is not None else [])], default=None)

    async def part(self, cluster: Cluster, inputs: SliceInputs, nodes: Sequence[Node]) -> None:
        """Begin to give back nodes that a slice goes on without.

        Raises:
            Conflict: Another slice has one of them.
        """
        bound = [node for node in nodes if desired.is_bound(node, inputs.name)]
        await writes.mark(cluster, inputs.name, bound, desired.bind(inputs.name, leaving=True))
        # Where others' pods were not sent away, they stay.
        await self.free(cluster, inputs.name, [node for node in nodes if node not in bound])

    async def go_on_parting(
        self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts], now: dt.datetime
    ) -> float | None:
        """Bring nodes that a slice goes on without one stage further; return when to look again."""
        nodes = [node for node in inputs.nodes if desired.is_parted(node, inputs.name)]
        own = _own(there, nodes, inputs.name)
        leaving = [pod for found in own.values() for pod in found]
        since = self._drain_state.parted_since(inputs.name, leaving, now)
        again = await send(cluster, replace(inputs, slice=None), leaving, since, now)
        empty = [node for node in nodes if not own[node.metadata.name]]
        if not empty:
            return again
        _, later = await self._clean(cluster, inputs.name, empty, now)
        return min((turn for turn in (again, later) if turn is not None), default=None)

    async def free(self, cluster: Cluster, name: str, nodes: Sequence[Node]) -> None:
        """Give nodes back to everybody.

        Raises:
            Conflict: Another slice has one of them.
        """
        if not nodes:
            return
        await writes.mark(cluster, name, nodes, desired.freed)
        self._on_free(cluster)

    async def _clean(
        self, cluster: Cluster, name: str, empty: Sequence[Node], now: dt.datetime
    ) -> tuple[dict[str, NodeCleaning], float | None]:
        """Give back what is clean of nodes without pods of the slice, and have the others cleaned.

        Returns:
            What is known of those that are not given back, by their names; and when to look again.
        """
        defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
        policy = (defaults.spec.slices if defaults is not None else SliceDefaults()).cleaning
        findings = {node.metadata.name: cleaning.find(node, name, policy, now) for node in empty}
        at = {stage: [node for node in empty if findings[node.metadata.name].stage is stage] for stage in CleaningStage}
        for node in (*at[CleaningStage.CLEAN], *at[CleaningStage.STUCK]):
            await _say(cluster, node, findings[node.metadata.name], now)
        await self.free(cluster, name, [*at[CleaningStage.NEEDLESS], *at[CleaningStage.CLEAN]])
        await writes.mark(cluster, name, at[CleaningStage.TO_ASK], cleaning.ask(name, now))
        waits = at[CleaningStage.TO_ASK] or at[CleaningStage.ASKED]
        return findings, cleaning.ANSWER_SECONDS if waits else None

    async def _close(self, cluster: Cluster, name: str, nodes: Sequence[Node]) -> None:
        """Let no more pods of a slice come to nodes of it; they are nobody else's yet."""
        closing = [node for node in nodes if node.metadata.labels.get(desired.SLICE)]
        if closing:
            await writes.mark(cluster, name, closing, desired.bind(name, leaving=True))
            self._drain_state.closed(cluster, name)


def _whole(cluster: Cluster, name: str, now: dt.datetime) -> SliceInputs:
    """Return what is known of a slice that ends: whoever takes nodes back, all of them go."""
    inputs = gather(cluster, name, now)
    return replace(inputs, nodes=(*inputs.nodes, *inputs.going), going=())


def _own(there: Cache[PodFacts], nodes: Sequence[Node], name: str) -> dict[str, list[PodFacts]]:
    """Return the pods of a slice on each node: of one that was never bound, the pods are others', who may stay."""
    return {node.metadata.name: [pod for pod in on_node(there, node) if pod.slice == name] for node in nodes}


async def _say(cluster: Cluster, node: Node, finding: NodeCleaning, now: dt.datetime) -> None:
    """Have the node itself say how its cleaning ended."""
    patch = cleaning.condition(node, finding, now)
    if not patch:
        return
    with suppress(NotFound):
        await cluster.writer.patch(
            Node.resource, "", node.metadata.name, patch, subresource="status", patch_type=PatchType.STRATEGIC
        )


def _cleaning(inputs: SliceInputs, findings: Mapping[str, NodeCleaning]) -> SliceProgress:
    """Return how a slice stands whose pods have gone, and whose nodes are not all clean."""
    waiting = [node.metadata.name for node in inputs.nodes]
    stuck = [name for name in waiting if name in findings and findings[name].stage is CleaningStage.STUCK]
    message = f"what was left on these nodes is removed: {status.named(waiting)}"
    if stuck:
        first = min(stuck)
        message = (
            f"not clean, and set aside until they are: {status.named(stuck)}; of '{first}', {findings[first].message}"
        )
    return SliceProgress(
        state=SliceState.RELEASING,
        reason=reasons.NODES_NOT_CLEAN if stuck else reasons.CLEANING,
        message=message,
        nodes=status.names(inputs.nodes),
        stalled=bool(stuck),
    )


def ended(inputs: SliceInputs) -> str:
    """Return the reason for which nodes are given back."""
    return reasons.EXPIRED if inputs.claim is not None else reasons.CLAIM_ENDED

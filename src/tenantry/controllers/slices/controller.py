"""Reconciles slices of whole nodes; the key is the slice's name, even if only marks on nodes are left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.slices import cleaning, desired, pods, preconditions
from tenantry.controllers.slices import nodes as marking
from tenantry.controllers.slices.claimindex import ClaimIndex
from tenantry.controllers.slices.gather import (
    BY_SLICE,
    NodeFactsCache,
    SliceInputs,
    choose,
    gather,
    lacks_nodes,
    pause_of,
    slice_of_namespace,
    slice_of_node,
    with_pods,
)
from tenantry.controllers.slices.pods import BY_ESSENTIAL, BY_NODE, Pod, PodFacts
from tenantry.controllers.slices.stages import StageRunner
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch

AT_ONCE = 8
"""How many claims take nodes at once: the first have all of theirs before the last begin."""


class SliceController:
    """Reconciles slices.

    Args:
        verdicts: Of the quota controller on claims.
    """

    name = "slices"
    kind = SliceClaim

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        # Node to the slice that is about to take it: what this process has chosen, and no cache knows yet.
        self._picked: dict[str, str] = {}
        self._node_facts = NodeFactsCache()
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._claims = ClaimIndex(BY_SLICE, slice_of_namespace)
        self._stages = StageRunner(type(self), desired.plan)

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; pods are watched from the first claim on."""
        return self._claims.watches(self._of_node, slice_of_node)

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Carry out the next stages of one slice; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        inputs = self._inputs(cluster, key)
        if inputs.is_gone:
            self._stages.forget(key)
            self._claims.forget(key)
            cluster.forget(self.name, key)
            return None
        # Also of a claim for parts: a nearer one has the namespace.
        for each in self._claims.note(inputs):
            cluster.wake(type(self), each)
        # Both controllers are woken by claims; the one of parts reconciles this slice.
        if inputs.is_part:
            return None
        # Pods are the most numerous objects: a cluster without claims must not pay for watching them.
        there: Cache[PodFacts] = await cluster.require(self.name, self._pods())
        is_refused = preconditions.unmet(inputs) is not None and not inputs.nodes
        # Stages that choose no nodes do not wait for the gate: releasing must not queue behind claims that wait.
        if preconditions.ends(inputs) or is_refused or not lacks_nodes(inputs):
            return await self._run(cluster, inputs, there)
        async with self._gate:
            # Between the choice and the note of it no other claim runs.
            chosen = self.choose(cluster, self._inputs(cluster, key), there)
            # Two claims that choose before either has written its marks would choose the same nodes.
            picked = [name for name in chosen.choice.nodes if name not in self._picked]
            self._picked |= dict.fromkeys(picked, key)
            try:
                return await self._run(cluster, chosen, there)
            finally:
                for name in picked:
                    self._picked.pop(name, None)

    async def _run(self, cluster: Cluster, first: SliceInputs, there: Cache[PodFacts]) -> float | None:
        look = partial(self._inputs, cluster, first.name)
        return await self._stages.run(cluster, partial(self._gather, cluster, first, there), look)

    def choose(self, cluster: Cluster, inputs: SliceInputs, there: Cache[PodFacts]) -> SliceInputs:
        """Return the inputs with the nodes that a claim lacks; see `world.slices`."""
        nodes: Cache[Node] = cluster.cache(Node.resource)
        leaving, essential = partial(there.count, BY_NODE), partial(there.count, BY_ESSENTIAL)
        facts = partial(self._node_facts.read, nodes, leaving, essential, self._picked)
        return choose(inputs, facts)

    def _inputs(self, cluster: Cluster, key: str) -> SliceInputs:
        return gather(cluster, key, cluster.clock.now(), self._verdicts)

    async def _gather(self, cluster: Cluster, first: SliceInputs, there: Cache[PodFacts]) -> SliceInputs:
        """Return the current inputs, with the choice that was made at first."""
        nodes: Cache[Node] = cluster.cache(Node.resource)
        found = (nodes.get(name) for name in first.choice.nodes)
        inputs = msgspec.structs.replace(
            with_pods(self._inputs(cluster, first.name), there),
            choice=first.choice,
            chosen=tuple(node for node in found if node is not None),
            replaced=first.replaced,
        )
        inputs = msgspec.structs.replace(inputs, pause=pause_of(inputs, nodes))
        inputs = self._stages.draining.among(inputs, there, cluster.clock.monotonic())
        return self._stages.draining.known(inputs, cluster.clock.monotonic())

    def _pods(self) -> Watch:
        return Watch(
            resource=Pod.resource,
            decode=pods.observe,
            keys=self._of_pod,
            indexes={BY_NODE: pods.leaving_of, BY_ESSENTIAL: pods.essential_of, pods.BY_NAMESPACE: pods.namespace_of},
        )

    # -- keys of changes ----------------------------------------------------------------------------

    def _of_node(self, change: Change[Node]) -> Iterable[str]:
        """Return the slice of a node that changed, and those that wait for one."""
        before, after = change.before, change.after
        old = marking.facts(before, 0) if before is not None else None
        new = marking.facts(after, 0) if after is not None else None
        if old == new and before is not None and after is not None and before.spec == after.spec:
            # A heartbeat, unless the node's agent or its contributor wrote something.
            return slice_of_node(after) if cleaning.word(before) != cleaning.word(after) else ()
        # Counted also while a claim is between its choice and its refusal, so that it looks again.
        self._stages.releases += 1
        held = {facts.taken_by for facts in (old, new) if facts is not None and facts.taken_by}
        return [*held, *self._stages.waiting] if new is not None else held

    def _of_pod(self, change: Change[PodFacts]) -> Iterable[str]:
        before, after = change.before, change.after
        if before is None or (after is not None and after.stays == before.stays):
            return ()
        # Pods end all the time: only those on a node that drains are news.
        waiting = self._stages.draining.waiting_for(before.node)
        return [waiting] if waiting else ()

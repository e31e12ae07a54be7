"""Reconciles slices of parts of nodes; the key is the slice's name, even if only marks on nodes are left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from tenantry.api.node import Node
from tenantry.api.slice import Sharing, SliceClaim
from tenantry.controllers.parts import desired
from tenantry.controllers.parts import nodes as marking
from tenantry.controllers.parts.gather import (
    BY_PART,
    gather,
    part_of_namespace,
    parts_of_node,
    with_choice,
    with_choice_of,
    with_own_pods,
)
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.controllers.slices import preconditions
from tenantry.controllers.slices.claimindex import ClaimIndex
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.stages import StageRunner
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch


class PartController:
    """Reconciles slices that have parts of nodes.

    Args:
        verdicts: Of the quota controller on claims.
    """

    name = "parts"
    kind = SliceClaim

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        # Claims are served one after the other: two that chose at the same time would choose the same capacity.
        self._giving = asyncio.Lock()
        self._claims = ClaimIndex(BY_PART, part_of_namespace, Sharing.PART)
        self._stages = StageRunner(type(self), desired.plan)

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return self._claims.watches(self._of_node, parts_of_node)

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Carry out the next stages of one slice; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        inputs = self._inputs(cluster, key)
        if not inputs.is_part and not inputs.nodes and not inputs.labelled:
            self._stages.forget(key)
            self._claims.forget(key)
            cluster.forget(self.name, key)
            return None
        self._claims.note(inputs)
        # A part that ends needs no choice, and must not wait for claims that choose.
        if preconditions.ends(inputs):
            return await self._run(cluster, inputs)
        async with self._giving:
            return await self._run(cluster, await with_choice(cluster, self._inputs(cluster, key)))

    async def _run(self, cluster: Cluster, first: SliceInputs) -> float | None:
        look = partial(self._inputs, cluster, first.name)
        return await self._stages.run(cluster, partial(self._gather, cluster, first), look)

    def _inputs(self, cluster: Cluster, key: str) -> SliceInputs:
        return gather(cluster, key, cluster.clock.now(), self._verdicts)

    async def _gather(self, cluster: Cluster, first: SliceInputs) -> SliceInputs:
        """Return the current inputs, with the choice that was made at first."""
        inputs = with_choice_of(cluster, self._inputs(cluster, first.name), first)
        if preconditions.ends(inputs):
            inputs = await with_own_pods(cluster, inputs)
        return self._stages.draining.known(inputs, cluster.clock.monotonic())

    # -- keys of changes ----------------------------------------------------------------------------

    def _of_node(self, change: Change[Node]) -> Iterable[str]:
        """Return the slices of a node that changed, and those that wait for one."""
        before, after = change.before, change.after
        old = marking.facts(before) if before is not None else None
        new = marking.facts(after) if after is not None else None
        # Labels, capacity and taints decide; a kubelet writes the status of its node every few seconds.
        if old == new:
            return ()  # a heartbeat
        held = {name for each in (before, after) if each is not None for name in parts_of_node(each)}
        return [*held, *self._stages.waiting]

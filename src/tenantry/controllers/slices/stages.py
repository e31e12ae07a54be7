"""Carries out the stages of slices one after the other, and reports the results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from tenantry.api import reasons
from tenantry.api.slice import SliceClaim
from tenantry.api.tenant import Tenant
from tenantry.controllers import ownnodes
from tenantry.controllers.conclusion import problem_of
from tenantry.controllers.dedicatedcluster.wakes import wake_owner
from tenantry.controllers.slices import status
from tenantry.controllers.slices.claimqueue import ClaimQueue
from tenantry.controllers.slices.decision import SliceDecision, soonest
from tenantry.controllers.slices.draining import DrainState
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.apply import Outcome
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster
from tenantry.engine.events import EventKind

MOST_STAGES = 12
"""How many stages one reconcile carries out: more than there are, unless the caches are behind."""

BEHIND_SECONDS = 0.2
"""When to look again after a stage that changed nothing although the caches differ: a watch is behind."""


class StageRunner:
    """Runs the stages of slices.

    Args:
        kind: The controller, which is woken for the slices that wait when nodes are free again.
        plan: Returns the next stage.
    """

    def __init__(self, kind: type, plan: Callable[[SliceInputs], SliceDecision]) -> None:
        self.waiting = ClaimQueue()
        self.draining = DrainState()
        # How often nodes changed hands; a claim that was refused meanwhile looks again.
        self.releases = 0
        self._kind = kind
        self._plan = plan

    async def run(
        self, cluster: Cluster, gather: Callable[[], Awaitable[SliceInputs]], look: Callable[[], SliceInputs]
    ) -> float | None:
        """Carry out stages until one has to wait, write the statuses, and return when to look again.

        Args:
            cluster: The cluster of the slice.
            gather: Returns everything that decides the next stage.
            look: Returns what the caches know of the slice, for its statuses.

        Raises:
            ApiError: A write failed; the status reports what lasts.
        """
        releases = self.releases
        for _ in range(MOST_STAGES):
            inputs = await gather()
            decision = self._plan(inputs)
            outcome = await cluster.writer.apply(decision.plan)
            self._note(cluster, inputs, decision, outcome)
            # Writes before the failure stand: the next reconcile sees them in the caches and continues after them.
            if outcome.error is not None:
                await self._report_failure(cluster, look(), outcome)
                raise outcome.error
            if decision.progress is not None:
                self.draining.note(inputs.name, decision)
                await tell(cluster, look(), decision.progress)
                # Nodes that were given back since the choice woke only the claims that were waiting then.
                is_late = decision.waits and not inputs.nodes and self.releases != releases
                return soonest(0.0 if is_late else decision.again, inputs.lease.next_seconds)
            # The stage wrote nothing although the decision was to go on: the caches lag behind earlier writes.
            if not outcome.written:
                break
        return BEHIND_SECONDS

    def forget(self, name: str) -> None:
        """Forget a slice."""
        self.waiting.discard(name)
        self.draining.forget(name)

    def free(self, cluster: Cluster) -> None:
        """Wake the slices that wait for nodes: own writes, such as released nodes, wake no reconciler."""
        self.releases += 1
        for name in self.waiting:
            cluster.wake(self._kind, name)

    def _note(self, cluster: Cluster, inputs: SliceInputs, decision: SliceDecision, outcome: Outcome) -> None:
        if decision.closes:
            self.draining.closed(inputs.name, cluster.clock.monotonic())
        # Also after a failure: some of the nodes may be free.
        if decision.frees:
            self.free(cluster)
        self.waiting.note(inputs, waits=decision.waits)
        if decision.warning is not None and inputs.claim is not None and outcome.error is None:
            cluster.recorder.say(inputs.claim, EventKind.WARNING, *decision.warning)
        report_departures(cluster, decision, outcome)

    async def _report_failure(self, cluster: Cluster, inputs: SliceInputs, outcome: Outcome) -> None:
        """Report a permanent failure in the status."""
        problem = problem_of(outcome)
        # Temporary failures are retried in silence: conditions must not flap.
        if problem is None or problem.passing or inputs.claim is None:
            return
        before = inputs.claim.status
        failed = SliceProgress(
            state=before.state,
            reason=problem.reason,
            message=problem.message,
            nodes=before.nodes,
            namespaces=before.namespaces,
            leaving_since=inputs.slice.status.leaving_since if inputs.slice is not None else "",
            stalled=True,
        )
        await tell(cluster, inputs, failed)


def report_departures(cluster: Cluster, decision: SliceDecision, outcome: Outcome) -> None:
    """Record an event about each pod whose eviction or deletion the API server accepted."""
    accepted = {id(write) for write in outcome.written}
    for each in decision.departures:
        # Only accepted evictions: a pod that a disruption budget protects would get an event every few seconds.
        if id(each.write) in accepted and not each.pod.deleting:
            cluster.recorder.say(each.pod.object, EventKind.WARNING, reasons.PODS_LEAVING, each.why)


async def tell(cluster: Cluster, inputs: SliceInputs, progress: SliceProgress) -> None:
    """Write the statuses of the Slice and the claim if they change, and an event if the state does.

    Raises:
        ApiError: The API server refuses.
    """
    now = rfc3339(inputs.now)
    if inputs.slice is not None:
        told = status.of_slice(inputs.slice, progress, now)
        if told != inputs.slice.status:
            await cluster.writer.status(msgspec.structs.replace(inputs.slice, status=told))
    claim = inputs.claim
    if claim is not None:
        await _tell_claim(cluster, claim, inputs, progress)


async def _tell_claim(cluster: Cluster, claim: SliceClaim, inputs: SliceInputs, progress: SliceProgress) -> None:
    told = status.of_claim(claim, progress, inputs.lease, rfc3339(inputs.now))
    told = msgspec.structs.replace(told, slice=inputs.name)
    if told == claim.status:
        return
    await cluster.writer.status(msgspec.structs.replace(claim, status=told))
    if ownnodes.is_kept(claim):
        # Own writes wake no reconciler: the Tenant reports the state of its claim.
        cluster.wake(Tenant, claim.metadata.namespace)
    wake_owner(cluster, claim)
    # An event for each change of state; the conditions report the progress within a state.
    if claim.status.state is not progress.state:
        cluster.recorder.say(claim, EventKind.NORMAL, progress.state.value, progress.message)

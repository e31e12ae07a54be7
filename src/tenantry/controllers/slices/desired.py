"""The next stage of a slice of whole nodes: pure.

reserve   nodes are chosen, paid for and marked, so that no new pods come
drain     pods of others are evicted, and deleted after the grace period
bind      only the slice's pods are left: the nodes are marked as its own, then its namespaces
release   namespaces first, then the pods, and the nodes last
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenantry.api import reasons
from tenantry.api.marks import SLICE
from tenantry.api.model import Json
from tenantry.api.node import Node
from tenantry.api.slice import SliceState
from tenantry.controllers.slices import contributed, holding, preconditions, release, status
from tenantry.controllers.slices import nodes as marking
from tenantry.controllers.slices.charge import charge_of, note_of
from tenantry.controllers.slices.decision import SliceDecision, amendments, soonest, stage
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.holding import NodeMarks
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.plan import Blocked, Plan
from tenantry.world.slices.selection import counted


def plan(inputs: SliceInputs) -> SliceDecision:
    """Return the next stage of a slice.

    Raises:
        Conflict: Another slice has one of its nodes.
    """
    marks = marks_of(inputs)
    if preconditions.ends(inputs):
        return release.end(inputs, marks, cleans=True)
    parted = [node for node in inputs.nodes if marking.is_parted(node, inputs.name)]
    kept = msgspec.structs.replace(inputs, nodes=tuple(node for node in inputs.nodes if node not in parted))
    found = _hold(kept, marks)
    if found.goes_on:
        return found
    # Nodes that the slice goes on without are released beside it; only one of both changes nodes in a stage.
    if contributed.is_going_back(inputs):
        return found
    beside = release.withdraw(inputs, marks, parted)
    return beside if beside.goes_on else _both(kept, found, beside)


def marks_of(inputs: SliceInputs) -> NodeMarks:
    """Return how whole nodes are marked for a slice."""
    name = inputs.name
    return NodeMarks(
        reserve=marking.reserve(name, note_of(inputs.claim) if inputs.claim is not None else ""),
        close=marking.close(name),
        free=marking.free(name),
        label=SLICE,
        noun="node",
        quiet=True,
    )


def _both(inputs: SliceInputs, found: SliceDecision, beside: SliceDecision) -> SliceDecision:
    """Return one decision for the slice and for the nodes that it goes on without."""
    next_lost = None
    if inputs.claim is not None:
        _, next_lost = marking.lost(inputs.nodes, inputs.claim.spec.replace_after_seconds, inputs.now)
    return msgspec.structs.replace(
        found,
        plan=Plan(writes=(*found.plan.writes, *beside.plan.writes)),
        again=soonest(found.again, beside.again, next_lost),
        departures=(*found.departures, *beside.departures),
        watched=found.watched | beside.watched,
        parted_since=beside.parted_since,
    )


def _hold(inputs: SliceInputs, marks: NodeMarks) -> SliceDecision:
    added = contributed.find(inputs)
    if added is not None:
        return SliceDecision(plan=Plan(writes=(added,)), goes_on=True)
    waits = None
    # Nodes change only after what they added is out of every ResourceQuota.
    if not contributed.is_going_back(inputs):
        # The charge covers the nodes that it will have, before the first of them is marked.
        first, waits = holding.take(inputs, marks, charge_of(contributed.charged(inputs)))
        # Lost nodes go only after their replacements are paid for and marked.
        if first is None and waits is None:
            first = _part(inputs, marks)
        # Surplus ones go in any case: a quota that does not cover them waits for that.
        if first is None:
            first = _shrink(inputs, marks)
        if first is None:
            first = holding.refuse(inputs, marks, waits)
        if first is not None:
            return first
    degraded = holding.degraded_by(inputs, waits)
    found = _bind(inputs, marks, degraded) if inputs.in_use else _offer(inputs, marks, degraded)
    again = soonest(found.again, inputs.choice.again) if inputs.choice.short else found.again
    if inputs.elsewhere or contributed.is_going_back(inputs):
        again = soonest(again, contributed.LOOK_AGAIN_SECONDS)
    if inputs.exclusive_in > 0:
        again = soonest(again, inputs.exclusive_in)
    return msgspec.structs.replace(found, waits=degraded is not None, again=again)


def _offer(inputs: SliceInputs, marks: NodeMarks, degraded: Blocked | None) -> SliceDecision:
    return holding.offer(inputs, marks, counted(len(inputs.nodes), "node is", "nodes are"), degraded)


def _part(inputs: SliceInputs, marks: NodeMarks) -> SliceDecision | None:
    """Return the stage that begins to give back nodes which others replace."""
    lost = [node for node in inputs.nodes if node.metadata.name in inputs.replaced]
    found = _give_back(inputs, marks, lost)
    told = f"not ready for too long, and given back: {status.named(status.names(lost))}"
    return msgspec.structs.replace(found, warning=(reasons.NODES_LOST, told)) if found is not None else None


def _give_back(inputs: SliceInputs, marks: NodeMarks, nodes: list[Node]) -> SliceDecision | None:
    """Return the stage that begins to give back nodes which the slice goes on without; None for none."""
    bound = [node for node in nodes if marking.is_bound(node, inputs.name)]
    # On a node that was never bound, pods of others are still there, and stay.
    others = amendments((node for node in nodes if node not in bound), marks.free)
    return stage((*amendments(bound, marks.close), *others), closes=bool(bound), frees=bool(others))


def _shrink(inputs: SliceInputs, marks: NodeMarks) -> SliceDecision | None:
    """Return the stage that gives back the nodes that the claim of a cluster requests no longer; None for none.

    A node that serves the cluster stays until it has left it: only what creates the claim chooses among those.
    """
    if inputs.claim is None or not inputs.serves_cluster:
        return None
    surplus = len(inputs.nodes) - inputs.claim.spec.count
    if surplus <= 0:
        return None
    # Nodes that are not drained yet go first: there is nothing to clean.
    free = [node for node in inputs.nodes if not marking.is_handed_over(node)]
    order = sorted(free, key=lambda node: (marking.is_bound(node, inputs.name), node.metadata.name))
    return _give_back(inputs, marks, order[:surplus])


def _give_up(inputs: SliceInputs, marks: NodeMarks, kept: list[Node]) -> SliceDecision:
    """Return the stage that gives nodes back which run pods of the cluster itself."""
    progress = SliceProgress(
        state=SliceState.DRAINING,
        reason=reasons.NODES_INSUFFICIENT,
        message=f"given back, because pods of the cluster itself run there: {status.named(status.names(kept))}",
        nodes=status.names(node for node in inputs.nodes if node not in kept),
    )
    plan = Plan(writes=amendments(kept, marks.free))
    return SliceDecision(plan=plan, progress=progress, again=0.0, frees=True)


def _paused(inputs: SliceInputs) -> SliceDecision:
    """Return the decision of a slice whose reserved nodes may not be drained yet."""
    message = (
        f"its nodes have pods, and pods left one of them, or a node for this tenant, within"
        f" {inputs.defaults.cooldown_seconds} s, spec.slices.cooldownSeconds of TenancyDefaults"
    )
    was_bound = inputs.slice is not None and inputs.slice.status.state is SliceState.BOUND
    progress = SliceProgress(
        state=SliceState.BOUND if was_bound else SliceState.RESERVED,
        reason=reasons.NODES_BOUND if was_bound else reasons.PODS_LEAVING,
        message=message,
        nodes=status.names(inputs.nodes),
    )
    return SliceDecision(progress=progress, again=inputs.pause)


def _tenant_uid(inputs: SliceInputs) -> str:
    return inputs.tenant.metadata.uid if inputs.tenant is not None else "-"


def _drain(inputs: SliceInputs) -> Callable[[Node], Json]:
    return marking.drain(inputs.name, _tenant_uid(inputs), inputs.now, inputs.defaults.cooldown_seconds)


def _bind(inputs: SliceInputs, marks: NodeMarks, degraded: Blocked | None) -> SliceDecision:
    """Return the stage that brings nodes which are set aside to where only the slice's pods run."""
    waiting = [node for node in inputs.nodes if not marking.is_bound(node, inputs.name)]
    foreign = {
        node.metadata.name: [pod for pod in inputs.pods.get(node.metadata.name, ()) if pod.slice != inputs.name]
        for node in waiting
    }
    # A pod of the cluster itself came between the choice and the taint: another node takes the place of this one.
    kept = [node for node in waiting if any(pod.essential for pod in foreign[node.metadata.name])]
    if kept:
        return _give_up(inputs, marks, kept)
    # Recorded before the first eviction: a claim that is deleted at once still counts for the cool-down.
    disturbed = [node for node in waiting if foreign[node.metadata.name]]
    if disturbed and inputs.pause > 0:
        return _paused(inputs)
    noting = stage(amendments(disturbed, _drain(inputs)))
    if noting is not None:
        return noting
    # A node is bound only after every scheduler has seen that it is closed, or a pod of another tenant could remain.
    if inputs.settles <= 0:
        empty = [node for node in waiting if not foreign[node.metadata.name]]
        # The handover of a node waits for its marks.
        binding = stage(amendments(empty, marking.bind(inputs.name), quiet=not inputs.serves_cluster))
        if binding is not None:
            return binding
    held = inputs.defaults.disruption_budget_seconds
    found = release.leaving(inputs, [pod for pods in foreign.values() for pod in pods], marks.noun, budget_seconds=held)
    again = soonest(found.again, inputs.settles if inputs.settles > 0 and waiting else None)
    # A bound slice that gets another node stays Bound: its state must not flap while the new node drains.
    was_bound = inputs.slice is not None and inputs.slice.status.state is SliceState.BOUND
    if not waiting or was_bound:
        decision = _offer(inputs, marks, degraded)
    else:
        told = status.leaving(found.pods, found.until(inputs)) if found.pods else "the nodes are being looked at"
        progress = SliceProgress(
            state=SliceState.DRAINING,
            reason=reasons.PODS_LEAVING,
            message=told,
            nodes=status.names(inputs.nodes),
            degraded=degraded,
        )
        decision = SliceDecision(progress=progress)
    progress = decision.progress
    return msgspec.structs.replace(
        decision,
        plan=Plan(writes=(*decision.plan.writes, *(each.write for each in found.departures))),
        progress=msgspec.structs.replace(progress, leaving_since=found.since) if progress is not None else None,
        again=again,
        departures=found.departures,
        watched=found.nodes,
    )

"""The stages by which a slice gives its nodes back, at its end or one by one: pure.

    namespaces are let go ─► nodes are closed ─► the slice's pods leave ─► nodes are cleaned ─► nodes are free

What pods leave behind is removed by an agent on each node (`nodeagent/`): an annotation asks for it, the agent answers
by another.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.marks import TAKEN_BACK
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceState
from tenantry.controllers.slices import charge, cleaning, contributed, preconditions, status
from tenantry.controllers.slices import nodes as marking
from tenantry.controllers.slices.cleaning import CleaningStage, NodeCleaning
from tenantry.controllers.slices.decision import (
    Departure,
    SliceDecision,
    amendments,
    departures,
    next_look,
    relabelled,
    soonest,
    stage,
)
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.holding import NodeMarks
from tenantry.controllers.slices.pods import PodFacts
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine import request
from tenantry.engine.clock import rfc3339
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.engine.request import PatchType
from tenantry.world.leases import instant


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that have to leave nodes.

    Args:
        pods: All of them.
        since: Since when, RFC 3339; "" if there are none.
        departures: Those that are evicted or deleted now.
        again: When to look again.
        budget_seconds: How long disruption budgets hold, counted from `since`; less than the grace period for as long.
    """

    pods: tuple[PodFacts, ...] = ()
    since: str = ""
    departures: tuple[Departure, ...] = ()
    again: float | None = None
    budget_seconds: int = 0

    def until(self, inputs: SliceInputs) -> str:
        """Return when the pods leave at the latest, with and without a disruption budget; "" while no pod has to."""
        if not self.since:
            return ""
        grace, budget = inputs.grace_seconds, self.budget_seconds
        ends, last = (rfc3339(instant(self.since) + dt.timedelta(seconds=each)) for each in (grace, budget))
        return f"{ends} ({last} if a PodDisruptionBudget protects them)" if budget > grace else ends

    @property
    def nodes(self) -> frozenset[str]:
        """Return the nodes of the pods."""
        return frozenset(pod.node for pod in self.pods)


def leaving(inputs: SliceInputs, pods: Sequence[PodFacts], noun: str, *, budget_seconds: int = 0) -> Leaving:
    """Return how pods leave; none is evicted before the status reports which have to.

    Args:
        inputs: The slice.
        pods: Those that have to leave.
        noun: What changes hands, as in "node".
        budget_seconds: See `Leaving`. The budgets of the slice's own tenant do not hold its nodes for longer.
    """
    if not pods:
        return Leaving()
    since = inputs.leaving_since or rfc3339(inputs.now)
    found = Leaving(pods=tuple(pods), since=since, budget_seconds=budget_seconds)
    # The beginning is in the status before any pod is evicted: after a restart, the grace period must not begin anew.
    if inputs.slice is not None and not inputs.slice.status.leaving_since:
        return msgspec.structs.replace(found, again=0.0)
    left = inputs.eviction_deadlines(since, budget_seconds)
    end = f"changes hands, slice {inputs.name!r}: the pod leaves at the latest at {found.until(inputs)}"
    why = {pod.node: f"{noun} {pod.node!r} {end}" for pod in pods}
    return msgspec.structs.replace(found, departures=departures(pods, left, why), again=next_look(pods, left.grace))


def end(inputs: SliceInputs, marks: NodeMarks, *, cleans: bool) -> SliceDecision:
    """Return the next stage of a slice that has ended.

    Args:
        inputs: The slice; `pods` has its own pods only, or all of each node.
        marks: How nodes and namespaces are marked.
        cleans: Nodes are cleaned before they are free.
    """
    nodes = (*inputs.nodes, *inputs.going)
    # Before everything else: a namespace without its label may create pods elsewhere.
    back = contributed.find(inputs)
    if back is not None:
        return SliceDecision(plan=Plan(writes=(back,)), goes_on=True)
    if contributed.is_going_back(inputs):
        progress = SliceProgress(
            state=SliceState.RELEASING,
            reason=preconditions.ended(inputs),
            message="what its contributed nodes added to the quota is taken back first",
            nodes=status.names(nodes),
        )
        return SliceDecision(progress=progress, again=contributed.LOOK_AGAIN_SECONDS, waits=False)
    # Namespaces first: a pod that is created after its node is closed would stay Pending on a slice that ends.
    first = stage(relabelled(inputs.labelled, marks.label, None)) or stage(
        amendments(nodes, marks.close, quiet=marks.quiet), closes=True
    )
    if first is not None:
        return first
    # Gathered for parts, the pods are the slice's own already.
    own = (
        own_pods(inputs, nodes)
        if cleans
        else {node.metadata.name: [*inputs.pods[node.metadata.name]] for node in nodes}
    )
    # Pods of DaemonSets and mirror pods are not among them: they stay on the node, which is free without them.
    found = leaving(inputs, [pod for pods in own.values() for pod in pods], marks.noun)
    again, findings = found.again, dict[str, NodeCleaning]()
    if found.pods:
        again = soonest(again, marks.leaving_seconds)
    # A scheduler that has not seen the taint may still bind a pod to a node that looks empty.
    if inputs.settles > 0:
        again = soonest(again, inputs.settles)
    else:
        empty = [node for node in nodes if not own[node.metadata.name] and not marking.is_handed_over(node)]
        if cleans:
            findings = _findings(inputs, empty)
        # Nodes are freed one by one: one that is stuck must not keep the others from other claims.
        freeing = _clean(inputs, empty, findings) if cleans else stage(amendments(empty, marks.free, quiet=False))
        if freeing is not None:
            return freeing
        again = soonest(again, _answered_in(findings))
    # The Slice goes last: it holds the tenant's quota for as long as the nodes are taken.
    if not nodes:
        writes = (charge.deletion(inputs.slice),) if inputs.slice is not None else ()
        return SliceDecision(plan=Plan(writes=writes), progress=preconditions.idle(inputs), waits=False)
    return SliceDecision(
        plan=Plan(writes=(*(each.write for each in found.departures), *_asked_back(inputs, nodes))),
        progress=_releasing(inputs, nodes, found, findings, "nodes" if cleans else "parts"),
        again=again,
        waits=False,
        departures=found.departures,
        watched=found.nodes,
    )


def _releasing(
    inputs: SliceInputs, nodes: Sequence[Node], found: Leaving, findings: Mapping[str, NodeCleaning], what: str
) -> SliceProgress:
    """Return the progress of a slice that still has nodes, or parts of them."""
    away = [node for node in nodes if marking.is_handed_over(node)]
    if findings and not found.pods and not away:
        return _cleaning(nodes, findings)
    reason, message = preconditions.ended(inputs), f"the {what} are given back"
    if found.pods:
        message = status.leaving(found.pods, found.until(inputs))
    elif away:
        reason = reasons.NODE_RETURNING
        message = f"these nodes return from the cluster that they serve first: {status.named(status.names(away))}"
    return SliceProgress(
        state=SliceState.RELEASING,
        reason=reason,
        message=message,
        nodes=status.names(nodes),
        leaving_since=found.since,
    )


def withdraw(inputs: SliceInputs, marks: NodeMarks, parted: Sequence[Node]) -> SliceDecision:
    """Return the next stage for nodes that a slice goes on without.

    Args:
        inputs: The slice; contributors withdraw the nodes in `going`.
        marks: How nodes are marked.
        parted: Nodes that were lost, and that others replace.
    """
    nodes = (*inputs.going, *parted)
    if not nodes:
        return SliceDecision()
    closing = stage(amendments(nodes, marks.close, quiet=marks.quiet), closes=True)
    if closing is not None:
        return closing
    if inputs.settles > 0:
        return SliceDecision(again=inputs.settles, parted_since=inputs.parted_since)
    own = own_pods(inputs, nodes)
    empty = [node for node in nodes if not own[node.metadata.name] and not marking.is_handed_over(node)]
    findings = _findings(inputs, empty)
    freeing = _clean(inputs, empty, findings)
    if freeing is not None:
        return freeing
    # A contributor that withdraws a node sets the beginning of its grace period by an annotation.
    turns, sent = [_answered_in(findings)], list[Departure]()
    for node in inputs.going:
        name = node.metadata.name
        left = inputs.eviction_deadlines(node.metadata.annotations[TAKEN_BACK])
        sent += departures(own[name], left, f"the owner of node {name!r} takes it back: the pod leaves")
        turns.append(next_look(own[name], left.grace))
    # The grace period of nodes that the slice goes on without is not in its status, which is about the other nodes.
    rest = msgspec.structs.replace(inputs, slice=None, leaving_since=inputs.parted_since)
    found = leaving(rest, [pod for node in parted for pod in own[node.metadata.name]], marks.noun)
    sent += found.departures
    return SliceDecision(
        plan=Plan(writes=(*(each.write for each in sent), *_asked_back(inputs, nodes))),
        again=soonest(found.again, *turns),
        departures=tuple(sent),
        watched=frozenset(name for name, pods in own.items() if pods),
        parted_since=found.since,
    )


def _asked_back(inputs: SliceInputs, nodes: Sequence[Node]) -> list[DirectWrite]:
    """Return the deletions by which nodes are to return from the clusters that they serve."""
    found = (inputs.handovers.get(node.metadata.name) for node in nodes)
    ours = (each for each in found if each is not None and each.spec.slice == inputs.name)
    ending = (each.metadata for each in ours if not each.metadata.deletion_timestamp)
    return [DirectWrite(request=request.delete(NodeHandover.resource, "", each.name, uid=each.uid)) for each in ending]


def own_pods(inputs: SliceInputs, nodes: Sequence[Node]) -> dict[str, list[PodFacts]]:
    """Return the slice's own pods on each node: on a node that was never bound, those of others may stay."""
    own = {node.metadata.name: inputs.pods.get(node.metadata.name, ()) for node in nodes}
    return {name: [pod for pod in pods if pod.slice == inputs.name] for name, pods in own.items()}


# -- cleaning -------------------------------------------------------------------------------------


def _findings(inputs: SliceInputs, empty: Sequence[Node]) -> dict[str, NodeCleaning]:
    policy = inputs.defaults.cleaning
    return {node.metadata.name: cleaning.find(node, inputs.name, policy, inputs.now) for node in empty}


def _clean(inputs: SliceInputs, empty: Sequence[Node], findings: Mapping[str, NodeCleaning]) -> SliceDecision | None:
    """Return the stage that reports on nodes without pods of the slice, then the one that frees or cleans them."""

    def at(*stages: CleaningStage) -> list[Node]:
        return [node for node in empty if findings[node.metadata.name].stage in stages]

    # The condition is written while the slice still has the node: afterwards another slice may take it.
    reports = [
        _report(node, patch)
        for node in at(CleaningStage.CLEAN, CleaningStage.STUCK)
        if (patch := cleaning.condition(node, findings[node.metadata.name], inputs.now))
    ]
    if reports:
        return stage(reports)
    # Both in one stage: agents clean while the nodes that need no cleaning are free already.
    free = amendments(at(CleaningStage.NEEDLESS, CleaningStage.CLEAN), marking.free(inputs.name))
    ask = amendments(at(CleaningStage.TO_ASK), marking.owned(inputs.name, cleaning.ask(inputs.name, inputs.now)))
    return stage((*free, *ask), frees=bool(free))


def _report(node: Node, patch: dict[str, object]) -> DirectWrite:
    return DirectWrite(
        request=request.patch(
            Node.resource, "", node.metadata.name, patch, subresource="status", patch_type=PatchType.STRATEGIC
        )
    )


def _answered_in(findings: Mapping[str, NodeCleaning]) -> float | None:
    """Return when agents that were asked should have answered."""
    asked = any(each.stage is CleaningStage.ASKED for each in findings.values())
    return cleaning.ANSWER_SECONDS if asked else None


def _cleaning(nodes: Sequence[Node], findings: Mapping[str, NodeCleaning]) -> SliceProgress:
    """Return the progress of a slice whose pods have left, and whose nodes are not all clean."""
    waiting = [node.metadata.name for node in nodes]
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
        nodes=status.names(nodes),
        stalled=bool(stuck),
    )

"""The stages by which a claim gets nodes, or parts of nodes, and its namespaces use them: pure.

take    the quota is charged, then the nodes are marked
refuse  if the claim cannot be met as a whole, its nodes are given back
offer   namespaces are bound to the slice, or no longer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.model import Json
from tenantry.api.node import Node
from tenantry.api.quota import Quantity
from tenantry.api.slice import SliceState
from tenantry.api.wording import shortened
from tenantry.controllers.slices import charge, contributed, preconditions
from tenantry.controllers.slices.decision import SliceDecision, amendments, relabelled, soonest, stage
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.status import SliceProgress, names
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Plan

LOOK_AGAIN_SECONDS = 5.0
"""When to look again at what no watch reports, such as pods that have left a node."""
Change = Callable[[Node], Json]
"""From a node to the merge patch that it needs, {} for none."""


class NodeMarks(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between slices of whole nodes and slices of parts of nodes.

    Args:
        reserve: The node is set aside for the slice, or gives it a part.
        close: No more pods of the slice come to the node.
        free: The node, or its part, is given back.
        label: The label of the namespaces whose pods are bound to the slice.
        noun: What changes hands, in events about pods.
        quiet: Changes of nodes do not wake the reconcilers that they concern.
        short_seconds: When to look again for nodes that are missing; None if a watch reports them.
        leaving_seconds: When to look again for pods that have left; None if a watch reports them.
    """

    reserve: Change
    close: Change
    free: Change
    label: str
    noun: str
    quiet: bool
    short_seconds: float | None = None
    leaving_seconds: float | None = None


def take(
    inputs: SliceInputs, marks: NodeMarks, wanted: Mapping[str, Quantity]
) -> tuple[SliceDecision | None, SliceProgress | None]:
    """Return the stage that pays for nodes or marks them, and what the claim waits for.

    Args:
        inputs: A claim of a tenant, with the choice of what it lacks.
        marks: How nodes are marked.
        wanted: What the claim is charged with.
    """
    problem = preconditions.unmet(inputs)
    if problem is not None and not inputs.nodes:
        # A claim that cannot have nodes must not hold quota that other claims of the tenant could use.
        return SliceDecision(plan=charge.given_up(inputs), progress=problem, again=LOOK_AGAIN_SECONDS), None
    recorded = charge.approval(inputs)
    if recorded is not None:
        return stage((recorded,)), None
    nodes, waits = inputs.nodes, None
    # A claim that gets no nodes at all is not charged: its quota would be reserved and released in a loop.
    if inputs.nodes or not inputs.choice.short:
        found = charge.find(inputs, wanted)
        if found.write is not None:
            return stage((found.write,)), None
        waits = found.waits
    # While the quota does not cover the choice, marks of the nodes that it has are kept, and no node is added.
    if waits is None:
        nodes = inputs.wanted
    writes = amendments(nodes, marks.reserve, quiet=marks.quiet)
    chosen = {node.metadata.name for node in inputs.chosen}
    # Only a node that is new to the slice had pods of other tenants, so only then must schedulers see the taint.
    is_new = any(write.name in chosen for write in writes)
    return stage(writes, closes=is_new), waits


def refuse(inputs: SliceInputs, marks: NodeMarks, waits: SliceProgress | None) -> SliceDecision | None:
    """Return what to do for a claim that never had all of its nodes and does not get them now; None if it goes on.

    Other claims could use the nodes that it has.
    """
    # A slice in use that lost nodes keeps the rest: its pods run there.
    if preconditions.was_held(inputs):
        return None
    if not inputs.choice.short:
        return None if waits is None or inputs.nodes else SliceDecision(progress=waits, waits=False)
    # All or nothing: two claims that each hold half of the last nodes would wait for each other forever.
    freeing = stage(amendments(inputs.nodes, marks.free, quiet=marks.quiet), frees=True)
    if freeing is not None:
        return freeing
    progress = SliceProgress(state=SliceState.PENDING, reason=reasons.NODES_INSUFFICIENT, message=inputs.choice.short)
    return SliceDecision(
        plan=charge.given_up(inputs),
        progress=progress,
        again=soonest(marks.short_seconds, inputs.choice.again),
        waits=True,
    )


def offer(inputs: SliceInputs, marks: NodeMarks, what: str, degraded: Blocked | None) -> SliceDecision:
    """Return the labels of namespaces and the progress of a slice that has its nodes.

    Args:
        inputs: With its nodes.
        marks: How namespaces are labelled.
        what: Its nodes, with a verb, as in "2 nodes are".
        degraded: The problem of its nodes; None for none.
    """
    # The namespace that contributed nodes add to keeps its label until nothing of that is in its ResourceQuota.
    wanted = {contributed.holder(inputs), *(each.name for each in inputs.users)}
    leaving = relabelled((each for each in inputs.labelled if each.name not in wanted), marks.label, None)
    coming = relabelled(_unlabelled(inputs.users, marks.label), marks.label, inputs.name)
    # Without a namespace that uses the claim, no pod of the tenant could run on the nodes: Reserved, not Bound.
    in_use = inputs.in_use
    message = f"{what} the tenant's alone" if in_use else f"{what} set aside, until a namespace uses the claim"
    if added := contributed.told(inputs):
        message += f"; {added}"
    if inputs.unapproved:
        message += f"; {shortened(inputs.unapproved)} must be approved: `tenantry slice approve` does"
    progress = SliceProgress(
        state=SliceState.BOUND if in_use else SliceState.RESERVED,
        reason=reasons.NODES_BOUND if in_use else reasons.NODES_RESERVED,
        message=message,
        nodes=names(inputs.nodes),
        namespaces=tuple(each.name for each in inputs.users),
        degraded=degraded,
    )
    return SliceDecision(plan=Plan(writes=(*leaving, *coming)), progress=progress)


def _unlabelled(namespaces: Sequence[Observed], label: str) -> list[Observed]:
    """Return the namespaces that no slice has: one that another slice has is taken when that slice lets it go."""
    return [each for each in namespaces if not each.labels.get(label)]


def degraded_by(inputs: SliceInputs, waits: SliceProgress | None) -> Blocked | None:
    """Return the problem of the nodes of a slice; None if there is none."""
    lacks = None
    if inputs.choice.short:
        # A claim that had all of its nodes has lost one; one that requests more now never had them.
        reason = reasons.NODES_LOST if preconditions.was_whole(inputs) else reasons.NODES_INSUFFICIENT
        lacks = Blocked(reason=reason, message=inputs.choice.short)
    elif waits is not None:
        lacks = Blocked(reason=waits.reason, message=waits.message)
    return preconditions.degraded(inputs.nodes, lacks)

"""The next stage of a slice of parts of nodes: pure.

    give      nodes are chosen, and each gives its part in one write of labels and resources that names the version at
              which the node was seen: no node gives more than it has
    open      its namespaces' pods are bound to it at admission
    release   namespaces first, then no pods come any more, then its pods leave, and the parts end last

Pods of other tenants stay: none has to leave for a part.
"""

from __future__ import annotations

import msgspec

from tenantry.api.errors import Conflict
from tenantry.api.marks import PART
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.node import Node, NodeStatus
from tenantry.api.slice import SliceClaim
from tenantry.controllers.parts import nodes as marking
from tenantry.controllers.parts.gather import parts_of_node
from tenantry.controllers.slices import holding, preconditions, release
from tenantry.controllers.slices.charge import charge_of
from tenantry.controllers.slices.decision import SliceDecision
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.holding import NodeMarks
from tenantry.world.parts import Size, size_of, why_not

LEAVING_SECONDS = 1.0
"""When to look again whether pods have left: pods of shared nodes are not watched."""


def plan(inputs: SliceInputs) -> SliceDecision:
    """Return the next stage of a slice.

    Raises:
        Conflict: A node cannot give its part any more.
    """
    marks = marks_of(inputs)
    claim = inputs.claim
    if claim is None or preconditions.ends(inputs):
        return release.end(inputs, marks, cleans=False)
    found, waits = holding.take(inputs, marks, charge_of(_charged(claim)))
    found = found or holding.refuse(inputs, marks, waits)
    if found is not None:
        return found
    count = len(inputs.nodes)
    what = f"{size_of(claim.spec.per_node)} of {'one node is' if count == 1 else f'{count} nodes are'}"
    found = holding.offer(inputs, marks, what, holding.degraded_by(inputs, waits))
    # Pods outside of parts are not watched, so room that they free is found by looking again.
    is_short = bool(inputs.choice.short)
    return msgspec.structs.replace(found, waits=is_short, again=holding.LOOK_AGAIN_SECONDS if is_short else None)


def marks_of(inputs: SliceInputs) -> NodeMarks:
    """Return how nodes are marked that give parts to a slice."""
    name, claim = inputs.name, inputs.claim
    size = size_of(claim.spec.per_node) if claim is not None else Size()

    def give(node: Node) -> Json:
        patch = marking.give(node, name, size)
        # Checked again on the live node, by the amendment: another claim may have taken the room since the choice.
        if patch and claim is not None and name not in parts_of_node(node):
            others = inputs.others.get(node.metadata.name, Size())
            why = why_not(marking.facts(node, others), claim.spec, size)
            if why:
                raise Conflict(f"node {node.metadata.name!r} does not fit any more: {why}", status=409)
        return patch

    return NodeMarks(
        reserve=give,
        close=lambda node: marking.close(node, name),
        free=lambda node: marking.take_back(node, name),
        label=PART,
        noun="a part of node",
        quiet=False,
        short_seconds=holding.LOOK_AGAIN_SECONDS,
        leaving_seconds=LEAVING_SECONDS,
    )


def _charged(claim: SliceClaim) -> list[Node]:
    """Return what a claim is charged with, as nodes of the size of its parts."""
    size = size_of(claim.spec.per_node)
    # A part is charged as a node of its size, so that one code path serves both kinds of slices.
    has = {"cpu": f"{size.cpu}m", "memory": f"{size.memory}Mi"}
    part = Node(metadata=ObjectMeta(name=claim.metadata.name), status=NodeStatus(allocatable=has))
    return [part] * claim.spec.count

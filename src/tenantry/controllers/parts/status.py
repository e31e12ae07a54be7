"""How far a slice is that has parts of nodes: pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api import reasons
from tenantry.api.slice import SliceState
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine.observed import Observed
from tenantry.world.parts import size_of


def pending(message: str, reason: str = reasons.NODES_INSUFFICIENT) -> SliceProgress:
    """Return how a claim stands that has nothing."""
    return SliceProgress(state=SliceState.PENDING, reason=reason, message=message)


def reserved(inputs: SliceInputs, wrong: str) -> SliceProgress:
    """Return how a claim stands that nobody uses."""
    return SliceProgress(
        state=SliceState.RESERVED,
        reason=reasons.NODES_RESERVED,
        message=f"{_what(inputs)} set aside, until a namespace uses the claim",
        nodes=nodes_of(inputs),
        degraded=wrong,
    )


def bound(inputs: SliceInputs, users: Sequence[Observed], wrong: str) -> SliceProgress:
    """Return how a claim stands that namespaces use."""
    return SliceProgress(
        state=SliceState.BOUND,
        reason=reasons.NODES_BOUND,
        message=f"{_what(inputs)} the tenant's alone",
        nodes=nodes_of(inputs),
        namespaces=tuple(each.name for each in users),
        degraded=wrong,
    )


def nodes_of(inputs: SliceInputs) -> tuple[str, ...]:
    """Return the nodes where a slice has a part, sorted."""
    return tuple(sorted(node.metadata.name for node in inputs.nodes))


def _what(inputs: SliceInputs) -> str:
    size = size_of(inputs.claim.spec.per_node) if inputs.claim is not None else ""
    count = len(inputs.nodes)
    return f"{size} of {count} nodes are" if count != 1 else f"{size} of one node are"

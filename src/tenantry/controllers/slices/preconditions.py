"""Checks of a slice that hold for whole nodes and for parts of nodes: pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api import reasons
from tenantry.api.node import Node
from tenantry.api.slice import SliceState
from tenantry.controllers.slices import nodes as marking
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.status import SliceProgress, named
from tenantry.engine.conditions import find
from tenantry.engine.plan import Blocked

_HELD = frozenset({SliceState.RESERVED, SliceState.DRAINING, SliceState.BOUND})


def ends(inputs: SliceInputs) -> bool:
    """Return whether the slice has to give its nodes back."""
    if inputs.claim is None or inputs.lease.is_expired:
        return True
    taken_back = inputs.is_manual and inputs.slice is None
    return (taken_back or inputs.tenant is None) and bool(inputs.nodes or inputs.going)


def was_held(inputs: SliceInputs) -> bool:
    """Return whether the slice had all of its nodes before."""
    return inputs.slice is not None and inputs.slice.status.state in _HELD


def unmet(inputs: SliceInputs) -> SliceProgress | None:
    """Return why a claim without nodes gets none; None if it may get some."""
    claim = inputs.claim
    if claim is None:
        return None
    reason, message = "", ""
    if inputs.tenant is None:
        reason = reasons.NOT_A_TENANTS_NAMESPACE
        message = (
            f"namespace {claim.metadata.namespace!r} does not belong to a tenant;"
            " create the claim in a tenant's namespace"
        )
    elif inputs.suspended:
        reason = reasons.TENANT_SUSPENDED
        message = f"tenant {inputs.tenant.metadata.name!r} is suspended: nodes are given when that ends"
    elif claim.spec.grace_period_seconds > inputs.defaults.max_grace_period_seconds:
        reason = reasons.INVALID_SPEC
        message = (
            f"spec.gracePeriodSeconds must be at most {inputs.defaults.max_grace_period_seconds}, which is"
            " spec.slices.maxGracePeriodSeconds of TenancyDefaults"
        )
    elif inputs.is_manual and inputs.slice is None:
        reason = reasons.AWAITING_ADMINISTRATOR
        message = f"an administrator has to make Slice {inputs.name!r}: `tenantry slice approve` does"
    if not reason:
        return None
    return SliceProgress(
        state=SliceState.PENDING, reason=reason, message=message, stalled=reason == reasons.INVALID_SPEC
    )


def ended(inputs: SliceInputs) -> str:
    """Return the reason for which nodes are given back."""
    return reasons.EXPIRED if inputs.claim is not None else reasons.CLAIM_ENDED


def idle(inputs: SliceInputs) -> SliceProgress:
    """Return the progress of a claim that has given everything back."""
    waits = unmet(inputs) if not inputs.lease.is_expired else None
    why = "it has ended" if inputs.claim is not None else "it ended"
    return waits or SliceProgress(state=SliceState.PENDING, reason=ended(inputs), message=why)


def was_whole(inputs: SliceInputs) -> bool:
    """Return whether the claim had all nodes that its present spec requests, as its status says."""
    claim = inputs.claim
    if claim is None or claim.status.observed_generation != claim.metadata.generation:
        return False
    before = find(claim.status.conditions, reasons.DEGRADED)
    # The nodes of the status are fewer as soon as the loss is in it.
    is_lost = before is not None and before.reason == reasons.NODES_LOST
    return is_lost or len(claim.status.nodes) >= claim.spec.count


def degraded(nodes: Sequence[Node], lacks: Blocked | None) -> Blocked | None:
    """Return the problem of the nodes of a slice; None if there is none.

    Args:
        nodes: Of the slice.
        lacks: Why it does not get the nodes that are missing; None if none are.
    """
    bad = sorted(node.metadata.name for node in nodes if not node.is_ready and not marking.is_handed_over(node))
    if not bad:
        return lacks
    told = f"not ready: {named(bad)}"
    return Blocked(reason=reasons.NODES_LOST, message=f"{told}; {lacks.message}" if lacks is not None else told)

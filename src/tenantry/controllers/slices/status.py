"""The statuses of a claim and of its Slice: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.model import Condition
from tenantry.api.node import Node
from tenantry.api.slice import Slice, SliceClaim, SliceClaimStatus, SliceState, SliceStatus
from tenantry.api.wording import shortened
from tenantry.controllers.conclusion import expiring
from tenantry.controllers.slices.pods import PodFacts
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked
from tenantry.world.leases import LeaseState
from tenantry.world.slices.selection import counted


class SliceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a slice.

    Args:
        state: In one word.
        reason: The reason of that state.
        message: The message of the conditions.
        nodes: Its nodes, sorted.
        namespaces: The namespaces whose pods run there, sorted.
        leaving_since: RFC 3339; "" while no pod has to leave.
        degraded: The problem of its nodes; None for none.
        stalled: Nothing changes until a person changes something.
    """

    state: SliceState
    reason: str
    message: str
    nodes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    leaving_since: str = ""
    degraded: Blocked | None = None
    stalled: bool = False


def of_claim(claim: SliceClaim, progress: SliceProgress, lease: LeaseState, now: str) -> SliceClaimStatus:
    """Return the status of a claim.

    Args:
        claim: With its conditions so far.
        progress: The progress of its slice.
        lease: The state of its lease.
        now: RFC 3339.
    """
    ends = claim.spec.expires_at
    wanted = [
        *_conditions(progress),
        *expiring(ends, lease, then="its nodes are given back", ended="; set a later one"),
    ]
    generation = claim.metadata.generation
    return msgspec.structs.replace(
        claim.status,
        observed_generation=generation,
        state=progress.state,
        nodes=progress.nodes,
        namespaces=progress.namespaces,
        conditions=merge(claim.status.conditions, wanted, generation=generation, now=now),
    )


def of_slice(found: Slice, progress: SliceProgress, now: str) -> SliceStatus:
    """Return the status of a Slice; see `of_claim`."""
    generation = found.metadata.generation
    conditions: tuple[Condition, ...] = merge(
        found.status.conditions, _conditions(progress), generation=generation, now=now
    )
    return SliceStatus(
        observed_generation=generation,
        state=progress.state,
        nodes=progress.nodes,
        charged=found.status.charged,
        contributed=found.status.contributed,
        leaving_since=progress.leaving_since,
        conditions=conditions,
    )


def _conditions(progress: SliceProgress) -> list[Wanted]:
    is_ready = progress.state in {SliceState.BOUND, SliceState.RESERVED}
    passing = progress.state in {SliceState.DRAINING, SliceState.RELEASING}
    wanted = [
        Wanted(reasons.READY, is_ready, progress.reason, progress.message),
        Wanted(progress.state.value, True, progress.reason, progress.message, only_true=True),
    ]
    if progress.stalled:
        wanted.append(Wanted(reasons.STALLED, True, progress.reason, progress.message, only_true=True))
    elif passing:
        wanted.append(Wanted(reasons.RECONCILING, True, progress.reason, progress.message, only_true=True))
    if (problem := progress.degraded) is not None:
        wanted.append(Wanted(reasons.DEGRADED, True, problem.reason, problem.message, only_true=True))
    return wanted


def leaving(pods: Sequence[PodFacts], until: str) -> str:
    """Return the message about pods that must leave.

    Args:
        pods: Those pods.
        until: RFC 3339: the end of the grace period.
    """
    alone = sorted(pod.key for pod in pods if not pod.controller)
    told = f"{counted(len(pods), 'pod has', 'pods have')} to leave, at the latest at {until}"
    if alone:
        told += f"; nothing makes these anew: {named(alone)}"
    return told


def names(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the names of nodes, sorted."""
    return tuple(sorted(node.metadata.name for node in nodes))


def named(names: Iterable[str]) -> str:
    """Return names in quotes, shortened."""
    return shortened(f"'{name}'" for name in names)

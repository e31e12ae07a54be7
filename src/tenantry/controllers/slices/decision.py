"""The next stage of a slice, as data: pure.

    gather ─► plan(inputs) ─► SliceDecision ─► StageRunner applies its plan, and gathers again while it goes on

Stages are in the order of safety: what a slice takes is paid for first, its namespaces come last; at the end they go
first and the nodes last. Each stage begins when the caches show that the stage before is done, by any client, so a
restart continues after the last stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json
from tenantry.api.node import Node
from tenantry.controllers.evictions import deletion, eviction
from tenantry.controllers.slices.evictiondeadlines import EvictionDeadlines
from tenantry.controllers.slices.pods import PodFacts
from tenantry.controllers.slices.status import SliceProgress
from tenantry.engine import request
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Amendment, DirectWrite, Plan

RETRY_SECONDS = 5.0
"""How long a pod is left alone if its disruption budget refuses the eviction."""

LAST_SECONDS = 1
"""The grace period of a pod that leaves at the end of the slice's grace period, whatever its spec says."""


class Departure(msgspec.Struct, frozen=True):
    """A pod that has to leave a node.

    Args:
        pod: The pod.
        write: Its eviction or deletion.
        why: What its event reports.
    """

    pod: PodFacts
    write: DirectWrite
    why: str


class SliceDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next for a slice.

    Args:
        plan: The writes of this stage.
        progress: For the status; None while the stage that is next can follow at once.
        again: In how many seconds to look again; None for when something changes.
        goes_on: Another stage follows as soon as the plan is carried out.
        closes: The plan closes nodes to pods, and schedulers need a moment to see it.
        frees: The plan gives nodes back.
        waits: Whether the claim waits for nodes from now on; None to leave that as it is.
        departures: Pods whose evictions and deletions are among the writes.
        watched: Nodes on which the end of a pod wakes the slice.
        parted_since: Since when pods have to leave nodes that the slice goes on without, RFC 3339; "" for none.
        warning: The reason and message of an event about the claim.
    """

    plan: Plan = Plan()
    progress: SliceProgress | None = None
    again: float | None = None
    goes_on: bool = False
    closes: bool = False
    frees: bool = False
    waits: bool | None = None
    departures: tuple[Departure, ...] = ()
    watched: frozenset[str] = frozenset()
    parted_since: str = ""
    warning: tuple[str, str] | None = None


def stage(
    writes: Iterable[DirectWrite | Amendment], *, closes: bool = False, frees: bool = False
) -> SliceDecision | None:
    """Return the decision to carry out writes and go on; None if there is nothing to write."""
    found = tuple(writes)
    return SliceDecision(plan=Plan(writes=found), goes_on=True, closes=closes, frees=frees) if found else None


def amendments(nodes: Iterable[Node], change: Callable[[Node], Json], *, quiet: bool = True) -> tuple[Amendment, ...]:
    """Return the changes of those nodes that need one.

    Raises:
        Conflict: One of them may no longer be changed.
    """
    return tuple(
        Amendment(resource=node.resource, seen=node, change=change, quiet=quiet) for node in nodes if change(node)
    )


def relabelled(namespaces: Iterable[Observed], key: str, name: str | None) -> tuple[DirectWrite, ...]:
    """Return the writes that bind the pods which will be created in namespaces to a slice, or to none.

    They are not quiet: a namespace's share of the quota depends on the label.
    """
    body: Json = {"metadata": {"labels": {key: name}}}
    return tuple(DirectWrite(request=request.patch(Namespace.resource, "", each.name, body)) for each in namespaces)


def soonest(*turns: float | None) -> float | None:
    """Return the first of several times to look again."""
    return min((turn for turn in turns if turn is not None), default=None)


# -- pods that have to leave ----------------------------------------------------------------------


def departures(
    pods: Sequence[PodFacts], left: EvictionDeadlines, why: Mapping[str, str] | str
) -> tuple[Departure, ...]:
    """Return what to do with pods that have to leave.

        grace period           eviction; the pod stops as its spec says
        until budgets end      eviction; the pod stops at once
        then                   deletion

    A pod without a controller is not evicted: nothing would create it again, so it stays until the end of the grace
    period, for its owners to see.

    Args:
        pods: All that have to leave, those on their way out too.
        left: How long they may still stay.
        why: What their events report, by node or for all.
    """
    # A pod that is being deleted is not evicted again, but its deletion may be shortened after the grace period.
    chosen = [pod for pod in pods if left.grace <= 0 or (pod.controller and not pod.deleting)]
    return tuple(Departure(pod, _write(pod, left), why if isinstance(why, str) else why[pod.node]) for pod in chosen)


def _write(pod: PodFacts, left: EvictionDeadlines) -> DirectWrite:
    if left.grace > 0:
        return eviction(pod.namespace, pod.name, pod.uid)
    ends = eviction if left.budget > 0 else deletion
    return ends(pod.namespace, pod.name, pod.uid, grace_period_seconds=LAST_SECONDS)


def next_look(pods: Sequence[PodFacts], left_seconds: float) -> float | None:
    """Return when to look again at pods that have to leave; None if there are none."""
    if not pods:
        return None
    return RETRY_SECONDS if left_seconds <= 0 else min(RETRY_SECONDS, left_seconds)

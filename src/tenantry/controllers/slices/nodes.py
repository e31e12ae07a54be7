"""The marks of a slice on its nodes, as merge patches: pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tenantry.api.errors import Conflict
from tenantry.api.marks import (
    CLEANED,
    CLEANING,
    CONTRIBUTED_BY,
    HANDED_OVER,
    HANDOVER_RECORD,
    LAST_DRAIN,
    PARTS,
    SLICE,
    SLICE_CLAIM,
    SLICE_RESERVED,
)
from tenantry.api.model import Json
from tenantry.api.node import Node, Taint
from tenantry.engine.clock import rfc3339
from tenantry.world.leases import instant
from tenantry.world.slices.selection import Drain, NodeFacts

KEEPS_AWAY = ("NoSchedule", "NoExecute")
FOLLOWS_CONDITIONS = frozenset(f"node.kubernetes.io/{why}" for why in ("not-ready", "unreachable", "unschedulable"))
"""Taints that the node controller sets after a node's conditions and `unschedulable`, some time later."""

_NO_REQUEST = {CLEANING: None, CLEANED: None}
"""The node's agent is asked for nothing."""


def facts(node: Node, disturbed: int, picked: str = "", *, essential: int = 0) -> NodeFacts:
    """Return a node as selection sees it.

    Args:
        node: As last seen.
        disturbed: How many pods would have to leave.
        essential: How many of these are pods of the cluster itself.
        picked: The slice that is about to take it; "" for none.
    """
    known = {SLICE, CONTRIBUTED_BY, *FOLLOWS_CONDITIONS}
    taints = (taint.key for taint in node.spec.taints if taint.key not in known and taint.effect in KEEPS_AWAY)
    return NodeFacts(
        name=node.metadata.name,
        labels=node.metadata.labels,
        allocatable=node.status.allocatable,
        ready=node.is_ready and not node.metadata.deletion_timestamp,
        cordoned=node.spec.unschedulable,
        tainted=next(taints, ""),
        taken_by=slice_of(node) or picked,
        disturbed=disturbed,
        kept_for=next((taint.value for taint in node.spec.taints if taint.key == CONTRIBUTED_BY), None),
        essential=essential,
        drained=drain_of(node),
    )


def drain_of(node: Node) -> Drain | None:
    """Return when and for which slice pods of others were last evicted from a node; None for never."""
    at, _, whose = node.metadata.annotations.get(LAST_DRAIN, "").partition(" ")
    tenant, _, name = whose.partition(" ")
    try:
        return Drain(instant(at), tenant, name) if name else None
    except ValueError:
        return None  # an administrator wrote it


def slice_of(node: Node) -> str:
    """Return the slice that a node is set aside for; "" for none."""
    return node.metadata.labels.get(SLICE_RESERVED, "")


def is_bound(node: Node, name: str) -> bool:
    """Return whether a node has every mark by which only pods of the slice run there."""
    return node.metadata.labels.get(SLICE) == name and not patch_of(node, name, bound=True)


def is_handed_over(node: Node) -> bool:
    """Return whether a node serves another cluster, or is on its way there or back (`controllers/nodehandover`)."""
    return HANDED_OVER in node.metadata.labels or HANDOVER_RECORD in node.metadata.annotations


def is_parted(node: Node, name: str) -> bool:
    """Return whether a slice has given up a node that is not free yet: no more of its pods come there."""
    closed = Taint(key=SLICE, value=name, effect="NoExecute")
    taints = {msgspec.structs.replace(each, time_added="") for each in node.spec.taints}
    return SLICE not in node.metadata.labels and closed in taints


def lost(nodes: Sequence[Node], after_seconds: int, now: dt.datetime) -> tuple[list[Node], float | None]:
    """Return the nodes that have not been ready for too long, and in how many seconds the next one has.

    A node that serves another cluster is not ready here, and is not lost.

    Args:
        nodes: Of a slice.
        after_seconds: How long is too long; 0 for never.
        now: The time, with an offset.
    """
    found: list[Node] = []
    turns: list[float] = []
    for node in nodes:
        if not node.unready_since or not after_seconds or is_handed_over(node):
            continue
        left = (instant(node.unready_since) - now).total_seconds() + after_seconds
        if left <= 0:
            found.append(node)
        else:
            turns.append(left)
    return found, min(turns, default=None)


def patch_of(node: Node, name: str, *, bound: bool = False, claim: str = "", leaving: bool = False) -> Json:
    """Return the merge patch by which a node has the marks of a slice; {} if it has them.

    Args:
        node: As last seen; the patch holds for no other version.
        name: Of the slice.
        bound: No pods of others run there any more.
        claim: NAMESPACE/NAME/UID; "" to leave that as it is.
        leaving: The slice's pods leave: no more of them come, and no others yet.
    """
    # NoExecute would evict pods of other tenants at once, without their grace period: it waits until they have left.
    effects = KEEPS_AWAY if bound else KEEPS_AWAY[:1]
    ours = tuple(Taint(key=SLICE, value=name, effect=effect) for effect in effects)
    label = name if bound and not leaving else None
    annotations: dict[str, str | None] = {SLICE_CLAIM: claim} if claim else {}
    if not leaving:
        annotations |= _NO_REQUEST
    return marked(node, {SLICE_RESERVED: name, SLICE: label}, annotations, ours)


def reserve(name: str, claim: str) -> Callable[[Node], Json]:
    """Return the patch of a node that is set aside: a node that is bound stays bound; see `patch_of`."""
    return owned(name, lambda node: {} if SLICE in node.metadata.labels else patch_of(node, name, claim=claim))


def drain(name: str, tenant: str, now: dt.datetime, cooldown_seconds: int) -> Callable[[Node], Json]:
    """Return the patch that records that pods of others leave a node for a slice, once in each cool-down.

    Args:
        name: Of the slice.
        tenant: The uid of its tenant.
        now: The time.
        cooldown_seconds: See `DrainPace`; 0 for none.
    """
    text = f"{rfc3339(now)} {tenant} {name}"

    def change(node: Node) -> Json:
        last = drain_of(node)
        is_recent = last is not None and (not cooldown_seconds or (now - last.at).total_seconds() < cooldown_seconds)
        if is_recent and last is not None and last.slice == name:
            return {}
        return {"metadata": {"resourceVersion": node.metadata.resource_version, "annotations": {LAST_DRAIN: text}}}

    return owned(name, change)


def bind(name: str) -> Callable[[Node], Json]:
    """Return the patch of a node where only pods of the slice run; see `patch_of`."""
    return owned(name, lambda node: patch_of(node, name, bound=True))


def close(name: str) -> Callable[[Node], Json]:
    """Return the patch of a bound node by which no more pods of the slice come; see `patch_of`."""

    def change(node: Node) -> Json:
        return patch_of(node, name, bound=True, leaving=True) if SLICE in node.metadata.labels else {}

    return owned(name, change)


def free(name: str) -> Callable[[Node], Json]:
    """Return the patch that gives a node back to all tenants.

    Raises:
        Conflict: From the change: the node serves another cluster, which gives it back first.
    """

    def change(node: Node) -> Json:
        if is_handed_over(node):
            raise Conflict(f"node {node.metadata.name!r} serves another cluster", status=409)
        return freed(node)

    return owned(name, change)


def owned(name: str, change: Callable[[Node], Json]) -> Callable[[Node], Json]:
    """Return a change of a node that no other slice has taken.

    Raises:
        Conflict: From the change: another slice has the node, or gives parts of it.
    """

    def checked(node: Node) -> Json:
        owner = slice_of(node)
        if owner not in {"", name} or (not owner and PARTS in node.metadata.labels):
            raise Conflict(f"node {node.metadata.name!r} was taken by another slice", status=409)
        return change(node)

    return checked


def freed(node: Node) -> Json:
    """Return the merge patch that removes the marks of a slice from a node; {} if it has none."""
    return marked(node, {SLICE_RESERVED: None, SLICE: None}, {SLICE_CLAIM: None, **_NO_REQUEST}, ())


def marked(
    node: Node,
    labels: Mapping[str, str | None],
    annotations: Mapping[str, str | None],
    ours: tuple[Taint, ...],
    key: str = SLICE,
) -> Json:
    """Return the merge patch by which a node has marks; {} if it has them.

    Args:
        node: As last seen; the patch holds for no other version.
        labels: None removes one.
        annotations: As labels.
        ours: All taints of the key.
        key: Of these taints.
    """
    meta = node.metadata
    taints = (*(taint for taint in node.spec.taints if taint.key != key), *ours)
    # The API server sets timeAdded on NoExecute taints, so taints are compared without it.
    bare = [msgspec.structs.replace(taint, time_added="") for taint in node.spec.taints]
    same_marks = all(meta.labels.get(key) == value for key, value in labels.items())
    same_notes = all(meta.annotations.get(key) == value for key, value in annotations.items())
    if same_marks and same_notes and {*bare} == {msgspec.structs.replace(each, time_added="") for each in taints}:
        return {}
    # The list of taints is replaced as a whole: at another version, taints of other controllers would be lost.
    metadata = {"resourceVersion": meta.resource_version, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"taints": msgspec.to_builtins(taints) or None}}

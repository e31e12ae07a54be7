"""What nodes, namespaces and pods of a slice should be: pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tenantry.api import marks
from tenantry.api.marks import CLEANED, CLEANING, MANAGED_BY, MANAGER, SLICE, SLICE_CLAIM, SLICE_RESERVED, TENANT
from tenantry.api.model import ObjectMeta, OwnerReference
from tenantry.api.node import Node, Taint
from tenantry.api.quota import Quantity
from tenantry.api.slice import ClaimReference, Slice, SliceClaim, SliceSpec
from tenantry.api.tenant import Tenant
from tenantry.controllers.slices.pods import PodFacts
from tenantry.world.leases import instant
from tenantry.world.slices.selection import NodeFacts

ASK_AGAIN_SECONDS = 5.0
"""How long a pod whose disruption budget does not let it go is left alone before it is asked again."""

LAST_SECONDS = 1
"""How long a pod has to end that is deleted after the grace period, whatever it asked for."""

_KEEPS_AWAY = ("NoSchedule", "NoExecute")
SAID_BY_THE_NODE = frozenset(f"node.kubernetes.io/{why}" for why in ("not-ready", "unreachable", "unschedulable"))
"""Taints that follow what a node says of itself, some time later."""

_NO_WORD = {CLEANING: None, CLEANED: None}
"""Nothing is asked of a node's agent."""

Json = dict[str, Any]


# -- nodes ----------------------------------------------------------------------------------------


def facts(node: Node, disturbed: int, picked: str = "") -> NodeFacts:
    """Return a node as selection sees it.

    Args:
        node: As last seen.
        disturbed: How many pods would have to leave.
        picked: The slice that is about to take it; "" for none.
    """
    known = {SLICE, *SAID_BY_THE_NODE}
    taints = (taint.key for taint in node.spec.taints if taint.key not in known and taint.effect in _KEEPS_AWAY)
    return NodeFacts(
        name=node.metadata.name,
        labels=node.metadata.labels,
        allocatable=node.status.allocatable,
        ready=node.is_ready and not node.metadata.deletion_timestamp,
        cordoned=node.spec.unschedulable,
        tainted=next(taints, ""),
        taken_by=slice_of(node) or picked,
        disturbed=disturbed,
    )


def slice_of(node: Node) -> str:
    """Return the slice that a node is set aside for; "" for none."""
    return node.metadata.labels.get(SLICE_RESERVED, "")


def is_bound(node: Node, name: str) -> bool:
    """Tell whether a node is the slice's alone, with every mark that says so."""
    return node.metadata.labels.get(SLICE) == name and not patch_of(node, name, bound=True, claim="")


def is_parted(node: Node, name: str) -> bool:
    """Tell whether a slice has parted with a node that is not everybody's yet: no more of its pods come there."""
    closed = Taint(key=SLICE, value=name, effect="NoExecute")
    taints = {msgspec.structs.replace(each, time_added="") for each in node.spec.taints}
    return SLICE not in node.metadata.labels and closed in taints


def lost(nodes: Sequence[Node], after_seconds: int, now: dt.datetime) -> tuple[list[Node], float | None]:
    """Return the nodes that have not been ready for too long, and in how many seconds the next one has.

    Args:
        nodes: Of a slice.
        after_seconds: How long is too long; 0 for never.
        now: The time, with an offset.
    """
    found: list[Node] = []
    turns: list[float] = []
    for node in nodes:
        if not node.unready_since or not after_seconds:
            continue
        left = (instant(node.unready_since) - now).total_seconds() + after_seconds
        if left <= 0:
            found.append(node)
        else:
            turns.append(left)
    return found, min(turns, default=None)


def patch_of(node: Node, name: str, *, bound: bool, claim: str, leaving: bool = False) -> Json:
    """Return the merge patch by which a node has the marks of a slice; {} where it has.

    Args:
        node: As last seen; the patch holds for no other version.
        name: Of the slice.
        bound: Nobody else runs there any more.
        claim: NAMESPACE/NAME/UID; "" to leave that as it is.
        leaving: Its pods are leaving: no more of them come, and nobody else yet.
    """
    effects = _KEEPS_AWAY if bound else _KEEPS_AWAY[:1]
    ours = tuple(Taint(key=SLICE, value=name, effect=effect) for effect in effects)
    label = name if bound and not leaving else None
    annotations: dict[str, str | None] = {SLICE_CLAIM: claim} if claim else {}
    if not leaving:
        annotations |= _NO_WORD
    return _patch(node, {SLICE_RESERVED: name, SLICE: label}, annotations, ours)


def reserve(name: str, claim: str) -> Callable[[Node], Json]:
    """Return the patch of a node that is set aside; see `patch_of`."""
    return lambda node: patch_of(node, name, bound=False, claim=claim)


def bind(name: str, *, leaving: bool = False) -> Callable[[Node], Json]:
    """Return the patch of a node that is a slice's alone; see `patch_of`."""
    return lambda node: patch_of(node, name, bound=True, claim="", leaving=leaving)


def freed(node: Node) -> Json:
    """Return the merge patch that gives a node back to everybody."""
    return _patch(node, {SLICE_RESERVED: None, SLICE: None}, {SLICE_CLAIM: None, **_NO_WORD}, ())


def _patch(
    node: Node, labels: Mapping[str, str | None], annotations: Mapping[str, str | None], ours: tuple[Taint, ...]
) -> Json:
    meta = node.metadata
    taints = (*(taint for taint in node.spec.taints if taint.key != SLICE), *ours)
    bare = [msgspec.structs.replace(taint, time_added="") for taint in node.spec.taints]
    same_marks = all(meta.labels.get(key) == value for key, value in labels.items())
    same_notes = all(meta.annotations.get(key) == value for key, value in annotations.items())
    if same_marks and same_notes and {*bare} == {msgspec.structs.replace(each, time_added="") for each in taints}:
        return {}
    metadata = {"resourceVersion": meta.resource_version, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"taints": msgspec.to_builtins(taints) or None}}


# -- pods -----------------------------------------------------------------------------------------


class Eviction(msgspec.Struct, frozen=True):
    """What to do with pods that have to leave.

    Args:
        ask: By the eviction API, which keeps disruption budgets.
        end: By deletion.
        next_seconds: When to look again; None where no pod has to leave.
    """

    ask: tuple[PodFacts, ...] = ()
    end: tuple[PodFacts, ...] = ()
    next_seconds: float | None = None


def leave(pods: Sequence[PodFacts], left_seconds: float) -> Eviction:
    """Return what to do with pods that have to leave.

    One that nothing would make anew is not asked: it is there to the end of the grace period, for its people to see.

    Args:
        pods: All that have to leave, those on their way out too.
        left_seconds: Of the grace period; 0 or less once it is over.
    """
    if not pods:
        return Eviction()
    if left_seconds <= 0:
        return Eviction(end=tuple(pods), next_seconds=ASK_AGAIN_SECONDS)
    ask = tuple(pod for pod in pods if pod.controller and not pod.deleting)
    return Eviction(ask=ask, next_seconds=min(ASK_AGAIN_SECONDS, left_seconds))


def others(pods: Sequence[PodFacts], name: str) -> list[PodFacts]:
    """Return the pods that are not the slice's own."""
    return [pod for pod in pods if pod.slice != name]


# -- the Slice ------------------------------------------------------------------------------------


def slice_for(
    claim: SliceClaim, tenant: Tenant, name: str, grace_seconds: int, charge: Mapping[str, Quantity] | None = None
) -> Slice:
    """Return the Slice of a claim; charged is one whose nodes are the tenant's alone."""
    owner = OwnerReference(
        api_version=Tenant.resource.api_version,
        kind=Tenant.resource.kind,
        name=tenant.metadata.name,
        uid=tenant.metadata.uid,
    )
    labels = {MANAGED_BY: MANAGER, TENANT: tenant.metadata.name}
    return Slice(
        metadata=ObjectMeta(name=name, labels=labels, owner_references=(owner,)),
        spec=SliceSpec(
            claim=ClaimReference(namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid),
            tenant=tenant.metadata.name,
            sharing=claim.spec.sharing,
            grace_period_seconds=grace_seconds,
            charge=dict(charge or {}),
        ),
    )


def note_of(claim: SliceClaim) -> str:
    """Return the annotation of a node that says whose it is."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}/{claim.metadata.uid}"


def label_patch(name: str | None) -> Json:
    """Return what a namespace's metadata is changed by: to a slice, or to none."""
    return {"labels": {marks.SLICE: name}}

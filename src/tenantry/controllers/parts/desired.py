"""What nodes and namespaces of parts should be: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tenantry.api.marks import PART, PART_OPEN, PART_SUFFIX, PARTS
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeStatus, Taint
from tenantry.api.slice import SliceClaim
from tenantry.controllers.slices.desired import SAID_BY_THE_NODE, slice_of
from tenantry.world.parts import PartNode, Size, is_open, is_shared, key, parts_of, resources_of, room_of, size_of
from tenantry.world.quantity import parse

_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_OURS = Taint(key=PARTS, effect="NoSchedule", value="true")

Json = dict[str, Any]


def facts(node: Node, others: Size = Size()) -> PartNode:  # noqa: B008 - frozen
    """Return a node as selection sees it.

    Args:
        node: As last seen.
        others: What pods have there that are in no part.
    """
    known = {PARTS, *SAID_BY_THE_NODE}
    taints = (taint.key for taint in node.spec.taints if taint.key not in known and taint.effect in _KEEPS_AWAY)
    return PartNode(
        name=node.metadata.name,
        labels=node.metadata.labels,
        room=room_of(node.status.allocatable),
        others=others,
        set_aside=is_set_aside(node),
        ready=node.is_ready and not node.metadata.deletion_timestamp,
        cordoned=node.spec.unschedulable,
        tainted=next(taints, ""),
        taken_by=slice_of(node),
    )


# -- nodes that are given out in parts ------------------------------------------------------------


def is_set_aside(node: Node) -> bool:
    """Tell whether pods of no part are kept away from a node."""
    return any(taint.key == PARTS and taint.effect == _OURS.effect for taint in node.spec.taints)


def taints(node: Node) -> Json:
    """Return the merge patch by which a node keeps pods of no part away, or no longer does; {} where it is right.

    A node that somebody has a part of stays set aside, whatever an administrator says of it; one that is a slice's is
    the slice's to the end.
    """
    labels = node.metadata.labels
    wanted = bool(parts_of(labels)) or (is_shared(labels) and not slice_of(node))
    if wanted is is_set_aside(node):
        return {}
    others = tuple(taint for taint in node.spec.taints if taint.key != PARTS)
    whole = (*others, _OURS) if wanted else others
    metadata = {"resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata, "spec": {"taints": msgspec.to_builtins(whole) or None}}


def resources(node: Node) -> Json:
    """Return the merge patch by which a node advertises the parts that it has given, and no others; {} where it does.

    A kubelet that registers again may have set them to nothing.
    """
    wanted: dict[str, str] = {}
    for name, size in parts_of(node.metadata.labels).items():
        wanted |= resources_of(name, size)
    patch: dict[str, Mapping[str, str | None]] = {}
    for field, has in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        lacking = {each: value for each, value in wanted.items() if each not in has or parse(has[each]) != int(value)}
        stale = dict.fromkeys(each for each in has if PART_SUFFIX in each and each not in wanted)
        if lacking or stale:
            patch[field] = {**lacking, **stale}
    metadata = {"resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata, "status": patch} if patch else {}


# -- parts ----------------------------------------------------------------------------------------


def give(node: Node, name: str, size: Size) -> Json:
    """Return the merge patch of a node and its status by which it gives a part; {} where it has.

    Labels and resources are one write: whoever sees the one sees the other.
    """
    wanted = resources_of(name, size)
    labels = {**wanted, key(name, PART_OPEN): "true"}
    if all(node.metadata.labels.get(label) == value for label, value in labels.items()):
        return {}
    return _patch(node, labels, wanted)


def close(node: Node, name: str) -> Json:
    """Return the merge patch by which no more pods come to a part; {} where none does."""
    if not is_open(node.metadata.labels, name):
        return {}
    return {"metadata": _metadata(node, {key(name, PART_OPEN): None})}


def take_back(node: Node, name: str) -> Json:
    """Return the merge patch of a node and its status by which a part is nobody's any more; {} where there is none."""
    gone: dict[str, str | None] = dict.fromkeys(resources_of(name, Size()))
    labels = {**gone, key(name, PART_OPEN): None}
    return _patch(node, labels, gone) if any(label in node.metadata.labels for label in labels) else {}


def _patch(node: Node, labels: Mapping[str, str | None], resources: Mapping[str, str | None]) -> Json:
    return {
        "metadata": _metadata(node, labels),
        "status": {"capacity": resources, "allocatable": resources},
    }


def _metadata(node: Node, labels: Mapping[str, str | None]) -> Json:
    return {"resourceVersion": node.metadata.resource_version, "labels": labels}


def charged(claim: SliceClaim) -> list[Node]:
    """Return what a claim is charged with, as nodes of the size of its parts."""
    size = size_of(claim.spec.per_node)
    has = {"cpu": f"{size.cpu}m", "memory": f"{size.memory}Mi"}
    part = Node(metadata=ObjectMeta(name=claim.metadata.name), status=NodeStatus(allocatable=has))
    return [part] * claim.spec.count


# -- namespaces -----------------------------------------------------------------------------------


def label_patch(name: str | None) -> Json:
    """Return what a namespace is changed by whose pods run in parts of a slice, or of none."""
    return {"metadata": {"labels": {PART: name}}}

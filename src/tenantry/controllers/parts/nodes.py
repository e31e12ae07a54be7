"""The parts of a node in its labels, taints and resources, as merge patches: pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenantry.api.marks import PART_OPEN, PART_SUFFIX, PARTS
from tenantry.api.model import Json
from tenantry.api.node import Node, Taint
from tenantry.controllers.slices.nodes import FOLLOWS_CONDITIONS, KEEPS_AWAY, slice_of
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.world.parts import PartNode, Size, is_open, is_shared, key, parts_of, resources_of, room_of
from tenantry.world.quantity import parse

_OURS = Taint(key=PARTS, effect="NoSchedule", value="true")


def facts(node: Node, others: Size = Size()) -> PartNode:  # noqa: B008 - frozen
    """Return a node as selection sees it.

    Args:
        node: As last seen.
        others: What pods have there that are in no part.
    """
    known = {PARTS, *FOLLOWS_CONDITIONS}
    taints = (taint.key for taint in node.spec.taints if taint.key not in known and taint.effect in KEEPS_AWAY)
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
    """Return whether pods of no part are kept away from a node."""
    return any(taint.key == PARTS and taint.effect == _OURS.effect for taint in node.spec.taints)


def taints(node: Node) -> Json:
    """Return the merge patch by which a node keeps pods of no part away, or no longer does; {} if it is right.

    A node that gives a part stays set aside, whatever an administrator writes; one that a slice has whole is never set
    aside for parts.
    """
    labels = node.metadata.labels
    # Removing the taint below a part would let pods of other tenants take its capacity.
    wanted = bool(parts_of(labels)) or (is_shared(labels) and not slice_of(node))
    if wanted is is_set_aside(node):
        return {}
    others = tuple(taint for taint in node.spec.taints if taint.key != PARTS)
    whole = (*others, _OURS) if wanted else others
    metadata = {"resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata, "spec": {"taints": msgspec.to_builtins(whole) or None}}


def resources(node: Node) -> Json:
    """Return the merge patch by which a node advertises the parts that it has given, and no others; {} if it does.

    A kubelet that registers again may have set them to nothing.
    """
    wanted: dict[str, str] = {}
    for name, size in parts_of(node.metadata.labels).items():
        wanted |= resources_of(name, size)
    patch: dict[str, Mapping[str, str | None]] = {}
    for field, has in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        lacking = {each: value for each, value in wanted.items() if each not in has or parse(has[each]) != int(value)}
        # Extended resources stay in the status of a node until they are removed explicitly.
        stale = dict.fromkeys(each for each in has if PART_SUFFIX in each and each not in wanted)
        if lacking or stale:
            patch[field] = {**lacking, **stale}
    metadata = {"resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata, "status": patch} if patch else {}


def plan(node: Node) -> Plan:
    """Return the next write by which a node is set aside, or advertises its parts.

    The labels of the node alone decide, not their author.
    """
    # The taint first: capacity that is advertised without it could be used up by pods of no part.
    for patch, subresource in ((taints(node), ""), (resources(node), "status")):
        if patch:
            asked = request.patch(Node.resource, "", node.metadata.name, patch, subresource=subresource)
            return Plan(writes=(DirectWrite(request=asked),))
    return Plan()


# -- parts ----------------------------------------------------------------------------------------


def give(node: Node, name: str, size: Size) -> Json:
    """Return the merge patch of a node and its status by which it gives a part; {} if it does.

    Labels and resources are one write: a reader of one sees the other.
    """
    # A status patch may change labels of a Node (kubernetes/pkg/registry/core/node/strategy.go).
    wanted = resources_of(name, size)
    labels = {**wanted, key(name, PART_OPEN): "true"}
    if all(node.metadata.labels.get(label) == value for label, value in labels.items()):
        return {}
    return _patch(node, labels, wanted)


def close(node: Node, name: str) -> Json:
    """Return the merge patch by which no more pods come to a part; {} if none does."""
    if not is_open(node.metadata.labels, name):
        return {}
    return {"metadata": _metadata(node, {key(name, PART_OPEN): None})}


def take_back(node: Node, name: str) -> Json:
    """Return the merge patch of a node and its status by which a part ends; {} if there is none."""
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

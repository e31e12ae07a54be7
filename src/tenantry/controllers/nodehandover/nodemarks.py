"""The marks of a node that serves another cluster, as merge patches of its Node on the host: pure.

Each change is one write of one object, so that a crash leaves the node before it or after it. The first write records
what the host gets back, before anything is taken:

    held       label, record, cordon, taint NoSchedule    its pods are evicted
    emptied    taint NoExecute, too                       pods of DaemonSets end that do not tolerate it
    detached   the annotation of its simulator is gone    nothing runs there
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tenantry.api.errors import Conflict
from tenantry.api.marks import HANDED_OVER, HANDED_OVER_TO, HANDOVER_RECORD, SLICE
from tenantry.api.model import Json, Model
from tenantry.api.node import Node, Taint
from tenantry.api.nodehandover import NodeHandover
from tenantry.controllers.slices.nodes import KEEPS_AWAY, marked
from tenantry.hosting import simulation


class HandoverRecord(Model, frozen=True, kw_only=True):
    """What a Node had before it was handed over, as JSON in an annotation.

    Args:
        handover: The uid of the NodeHandover.
        since: When its pods began to leave, RFC 3339.
        cordoned: It was cordoned.
        simulator: The value of the annotation by which kwok simulates it; "" for a real node.
    """

    handover: str
    since: str
    cordoned: bool = False
    simulator: str = ""


_record = msgspec.json.Decoder(HandoverRecord)


def record_of(node: Node) -> HandoverRecord | None:
    """Return the record of a node; None if it has none, or one that an administrator has made unreadable."""
    try:
        return _record.decode(node.metadata.annotations.get(HANDOVER_RECORD, ""))
    except msgspec.MsgspecError:
        return None


def is_emptied(node: Node) -> bool:
    """Return whether the taint ends pods that do not tolerate it."""
    return any(taint.key == HANDED_OVER and taint.effect == "NoExecute" for taint in node.spec.taints)


def is_detached(node: Node) -> bool:
    """Return whether the host's kwok has let a node go."""
    return simulation.MARK not in node.metadata.annotations


def is_real(node: Node) -> bool:
    """Return whether the record of a node that is handed over says that nothing simulates it."""
    known = record_of(node)
    return known is not None and not known.simulator


def hold(handover: NodeHandover, now: str) -> Callable[[Node], Json]:
    """Return the patch of a node that gets no more pods of the host; an emptied node stays so.

    Args:
        handover: The NodeHandover.
        now: When its pods begin to leave, RFC 3339.

    Raises:
        Conflict: From the change: the slice has released the node.
    """

    def change(node: Node) -> Json:
        known = record_of(node)
        if known is None:
            # The slice and the handover both write at the version that they have seen: only one of them gets the node.
            if node.metadata.labels.get(SLICE) != handover.spec.slice:
                raise Conflict(f"node {node.metadata.name!r} is not in slice {handover.spec.slice!r}", status=409)
            simulator = node.metadata.annotations.get(simulation.MARK, "")
            known = HandoverRecord(
                handover=handover.metadata.uid, since=now, cordoned=node.spec.unschedulable, simulator=simulator
            )
        elif known.handover != handover.metadata.uid:
            # An earlier NodeHandover was deleted by force: what the host gets back is still what that one has taken.
            known = msgspec.structs.replace(known, handover=handover.metadata.uid, since=now)
        return _held(node, handover, known, KEEPS_AWAY if is_emptied(node) else KEEPS_AWAY[:1])

    return change


def empty(handover: NodeHandover) -> Callable[[Node], Json]:
    """Return the patch of a held node by which pods end that do not tolerate the taint."""

    def change(node: Node) -> Json:
        known = record_of(node)
        return _held(node, handover, known, KEEPS_AWAY) if known is not None else {}

    return change


def detach(node: Node) -> Json:
    """Return the patch by which kwok lets an emptied node go; its record names what it loses."""
    if record_of(node) is None or is_detached(node):
        return {}
    lost: Json = {simulation.MARK: None}
    return {"metadata": {"resourceVersion": node.metadata.resource_version, "annotations": lost, "labels": lost}}


def give_back(node: Node) -> Json:
    """Return the patch that gives a node back to the host, as the record says; {} if it has no readable record."""
    known = record_of(node)
    if known is None:
        return {}
    simulated: dict[str, str | None] = {simulation.MARK: known.simulator} if known.simulator else {}
    notes = {HANDED_OVER_TO: None, HANDOVER_RECORD: None, **simulated}
    return _with_cordon(node, marked(node, {HANDED_OVER: None, **simulated}, notes, (), HANDED_OVER), known.cordoned)


def _held(node: Node, handover: NodeHandover, known: HandoverRecord, effects: tuple[str, ...]) -> Json:
    plane = handover.spec.plane
    taints = tuple(Taint(key=HANDED_OVER, value=plane.name, effect=effect) for effect in effects)
    notes = {
        HANDED_OVER_TO: f"{plane.namespace}/{plane.name}",
        HANDOVER_RECORD: msgspec.json.encode(known, order="deterministic").decode(),
    }
    return _with_cordon(node, marked(node, {HANDED_OVER: plane.name}, notes, taints, HANDED_OVER), True)


def _with_cordon(node: Node, patch: Json, cordoned: bool) -> Json:  # noqa: FBT001 - the value of the field
    """Return a patch with `unschedulable`, which is left out if it is false."""
    if node.spec.unschedulable == cordoned:
        return patch
    metadata = patch.get("metadata", {"resourceVersion": node.metadata.resource_version})
    return {"metadata": metadata, "spec": {**patch.get("spec", {}), "unschedulable": cordoned or None}}

"""The next stage of a node on its way from the host to another cluster, or back: pure.

    wanted    finalizer ─► held ─► its pods leave ─► emptied ─► detached ─► not Ready here ─► Joining
    deleted   the cluster has let it go ─► given back ─► Back ─► no finalizer

A real node has no simulator that lets it go; its machine is moved (hosting/machines.py):

    wanted    … ─► emptied ─► Cleaning: clean ─► Wiped ─► `status.join` ─► join ─► Joining
    deleted   the cluster has let it go ─► Remaking: remake ─► given back ─► Back ─► no finalizer

The link of the control plane takes a node from Joining to Joined and sets `status.inside`, and clears that field when
the node is deleted; if it does not in time, the host goes on alone.

Each write stands in one object, and every look begins with what is there: after a crash, the next process continues
with the write that is missing.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.marks import HANDOVER_RECORD, SLICE
from tenantry.api.model import Json
from tenantry.api.node import Node, NodeCondition
from tenantry.api.nodehandover import FINALIZER, HandoverStage, MachineKind, NodeHandover
from tenantry.controllers import nodecondition
from tenantry.controllers.evictions import deletion
from tenantry.controllers.nodehandover import contributed, nodemarks
from tenantry.controllers.nodehandover.gather import HandoverInputs
from tenantry.controllers.nodehandover.nodemarks import HandoverRecord
from tenantry.controllers.nodehandover.status import HandoverProgress
from tenantry.controllers.slices import status as wording
from tenantry.controllers.slices.decision import SliceDecision, amendments, departures, next_look
from tenantry.controllers.slices.evictiondeadlines import eviction_deadlines
from tenantry.controllers.slices.nodes import is_handed_over
from tenantry.controllers.slices.pods import PodFacts
from tenantry.engine import request
from tenantry.engine.clock import rfc3339
from tenantry.engine.plan import Amendment, DirectWrite, Plan
from tenantry.world.leases import instant

PATIENCE_SECONDS = 60
"""How long a cluster may take to let a node go, after the seconds that its pods get to stop."""

_HERE = frozenset({HandoverStage.LEAVING, HandoverStage.BACK})
"""The stages in which nothing of the node is taken from the host yet, or all of it is given back."""

_ON_THE_WAY_BACK = frozenset({HandoverStage.RETURNING, HandoverStage.REMAKING})


class MachineStep(enum.Enum):
    """What is to be done with the machine of a real node, before any write; it can be repeated."""

    CLEAN = enum.auto()
    JOIN = enum.auto()
    REMAKE = enum.auto()


class HandoverDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next for a handover.

    Args:
        work: The writes, and when to look again.
        progress: For the status; None to leave it as it is.
        machine: What to do with the machine first; the rest is for the case that it succeeds.
    """

    work: SliceDecision = SliceDecision()
    progress: HandoverProgress | None = None
    machine: MachineStep | None = None


def plan(inputs: HandoverInputs) -> HandoverDecision:
    """Return the next stage of a handover."""
    found, node = inputs.handover, inputs.node
    machine = contributed.machine_of(found)
    if machine is not None:
        # The host has no such node: one of its name is another machine.
        inputs = msgspec.structs.replace(inputs, node=None)
    if found is None:
        # An administrator who removes the finalizer by hand has decided that the host has the node.
        given = _changed(node, nodemarks.give_back) if node is not None else ()
        # A machine that was never wiped runs for the host already.
        is_away = inputs.has_machine and node is not None and nodemarks.is_real(node)
        return HandoverDecision(
            work=SliceDecision(plan=Plan(writes=given)), machine=MachineStep.REMAKE if is_away else None
        )
    if found.metadata.deletion_timestamp:
        return _return(inputs, found) if FINALIZER in found.metadata.finalizers else HandoverDecision()
    # Before the first mark: without it, a deletion would leave a node that nothing gives back.
    if FINALIZER not in found.metadata.finalizers:
        return _write(DirectWrite(request=request.finalizers(found, (*found.metadata.finalizers, FINALIZER))))
    if machine is not None:
        return HandoverDecision(progress=contributed.progress(found, machine))
    return _leave(inputs, found)


def _changed(node: Node, change: Callable[[Node], Json]) -> tuple[Amendment, ...]:
    """Return the change of a node, if it needs it."""
    # Not quiet: slices and the links of control planes have the same cache.
    return amendments([node], change, quiet=False)


def _write(write: DirectWrite, progress: HandoverProgress | None = None) -> HandoverDecision:
    return HandoverDecision(work=SliceDecision(plan=Plan(writes=(write,)), goes_on=True), progress=progress)


def _stalled(found: NodeHandover, reason: str, message: str) -> HandoverDecision:
    return HandoverDecision(
        progress=HandoverProgress(stage=found.status.stage, reason=reason, message=message, stalled=True),
    )


# -- to the cluster -------------------------------------------------------------------------------


def _leave(inputs: HandoverInputs, found: NodeHandover) -> HandoverDecision:
    node, name = inputs.node, inputs.name
    if node is None:
        return _stalled(found, reasons.NODE_MISSING, f"the host has no Node {name!r}: delete this NodeHandover")
    if found.status.node not in {"", node.metadata.uid}:
        told = f"the Node {name!r} that was handed over was deleted, and another one has its name"
        return _stalled(found, reasons.NODE_MISSING, f"{told}: delete this NodeHandover")
    if not is_handed_over(node):
        problem = _unfit(inputs, found, node)
        if problem is not None:
            return problem
    elif nodemarks.record_of(node) is None:
        return _stalled(found, reasons.INVALID_SPEC, _unreadable(node))
    holding = _changed(node, nodemarks.hold(found, rfc3339(inputs.now)))
    record = nodemarks.record_of(node)
    if holding or record is None:
        return HandoverDecision(work=SliceDecision(plan=Plan(writes=holding), goes_on=True))
    return _held(inputs, found, node, record)


def _held(inputs: HandoverInputs, found: NodeHandover, node: Node, record: HandoverRecord) -> HandoverDecision:
    """Return the next stage of a node that gets no more pods of the host."""
    if nodemarks.is_real(node):
        return _moved(inputs, found, node, record)
    return _detached(inputs, found, node) if nodemarks.is_detached(node) else _emptied(inputs, found, node, record)


def _unfit(inputs: HandoverInputs, found: NodeHandover, node: Node) -> HandoverDecision | None:
    """Return why a node without marks cannot leave the host; None if it can."""
    name = node.metadata.name
    if node.metadata.labels.get(SLICE) != found.spec.slice:
        message = f"Node {name!r} does not belong to Slice {found.spec.slice!r}: it waits until that Slice is Bound"
        # The slice of a cluster wakes this controller when it binds the node.
        return _stalled(found, reasons.NODE_NOT_IN_SLICE, message)
    # Nothing of a real node changes here: its kubelet would keep its pods and its identity.
    return _immovable(found) if nodemarks.is_detached(node) and not inputs.has_machine else None


def _immovable(found: NodeHandover) -> HandoverDecision:
    message = (
        f"Node {found.metadata.name!r} is a real node, and nothing here can wipe its machine: only simulated nodes, and"
        " real nodes of a local cluster that were not contributed, change clusters; select such nodes for the pool"
    )
    return _stalled(found, reasons.REAL_NODE, message)


def _unreadable(node: Node) -> str:
    return (
        f"the annotation {HANDOVER_RECORD} of Node {node.metadata.name!r} cannot be read, so that the operator does not"
        " know what the host gets back: restore it, or remove the marks of the Node by hand"
    )


def _emptied(inputs: HandoverInputs, found: NodeHandover, node: Node, record: HandoverRecord) -> HandoverDecision:
    """Return the stage by which pods leave, and then the host's kwok lets the node go."""
    leaving = [pod for pod in inputs.pods if not pod.stays]
    if leaving:
        left = eviction_deadlines(record.since, inputs.now, found.spec.drain_seconds, 0)
        sent = departures(leaving, left, f"node {inputs.name!r} leaves for another cluster: the pod leaves")
        work = SliceDecision(
            plan=Plan(writes=tuple(each.write for each in sent)), again=next_look(leaving, left.grace), departures=sent
        )
        return HandoverDecision(work=work, progress=_leaving(found, leaving))
    # NoExecute would end pods at once, without budgets and grace period: it waits until they have left.
    emptying = _changed(node, nodemarks.empty(found))
    if emptying:
        return HandoverDecision(work=SliceDecision(plan=Plan(writes=emptying), goes_on=True))
    ending = [pod for pod in inputs.pods if pod.key in inputs.tainted_away]
    if ending:
        return HandoverDecision(progress=_leaving(found, ending))
    if nodemarks.is_real(node):
        return HandoverDecision(work=SliceDecision(goes_on=True), progress=_cleaning())
    letting = _changed(node, nodemarks.detach)
    return HandoverDecision(work=SliceDecision(plan=Plan(writes=letting), goes_on=True), progress=_leaving(found, ()))


def _leaving(found: NodeHandover, pods: Sequence[PodFacts]) -> HandoverProgress | None:
    """Return the progress while pods leave; a node that has left before keeps the stage that its cluster has set."""
    if found.status.stage is not HandoverStage.LEAVING:
        return None
    message = f"pods leave the node: {wording.named(sorted(pod.key for pod in pods))}" if pods else "no pods are left"
    return HandoverProgress(stage=HandoverStage.LEAVING, reason=reasons.NODE_LEAVING, message=message)


def _cleaning() -> HandoverProgress:
    message = "its pods have left the host: its machine ends, and its identity, images and files are wiped"
    return HandoverProgress(stage=HandoverStage.CLEANING, reason=reasons.NODE_LEAVING, message=message)


def _moved(inputs: HandoverInputs, found: NodeHandover, node: Node, record: HandoverRecord) -> HandoverDecision:
    """Return the next stage of a real node that leaves."""
    stage = found.status.stage
    if not inputs.has_machine:
        return _immovable(found)
    if stage is HandoverStage.LEAVING:
        return _emptied(inputs, found, node, record)
    if stage is HandoverStage.CLEANING:
        wiped = HandoverProgress(
            stage=HandoverStage.WIPED,
            reason=reasons.NODE_JOINING,
            message="its machine is wiped; it waits for the token by which the cluster admits it",
        )
        return HandoverDecision(work=SliceDecision(goes_on=True), progress=wiped, machine=MachineStep.CLEAN)
    settled = _detached(inputs, found, node)
    if stage is HandoverStage.JOINED or found.status.join is UNSET or node.is_ready:
        return settled
    # Also at Joining, until it is Ready there: a supervisor may have ended before it started the machine.
    return msgspec.structs.replace(settled, machine=MachineStep.JOIN)


def _detached(inputs: HandoverInputs, found: NodeHandover, node: Node) -> HandoverDecision:
    """Return what the host does with a node that has left."""
    plane = found.spec.plane
    where = f"{plane.namespace}/{plane.name}"
    if node.is_ready:
        told = f"the node serves the cluster {where}; no pods of the host run here"
        away = NodeCondition(type="Ready", status="False", reason=reasons.HANDED_OVER, message=told)
        return HandoverDecision(work=SliceDecision(plan=nodecondition.plan(node, away, inputs.now), goes_on=True))
    # No kubelet would confirm the end of a pod that was bound to the node meanwhile, by its nodeName or by a scheduler
    # that had not seen the taint. Those of DaemonSets that tolerate every taint would come again without an end.
    strays = tuple(
        deletion(pod.namespace, pod.name, pod.uid, grace_period_seconds=0) for pod in inputs.pods if not pod.stays
    )
    stay = sorted(pod.key for pod in inputs.pods if pod.stays)
    told = f"; these tolerate every taint, stay bound to it, and do not run: {wording.named(stay)}" if stay else ""
    # The link sets the stage, and the host the conditions that follow from it.
    progress = HandoverProgress(
        stage=HandoverStage.JOINING,
        reason=reasons.NODE_JOINING,
        message=f"the node has left the host; the cluster {where} takes it up{told}",
    )
    if found.status.stage is HandoverStage.WIPED and found.status.join is UNSET:
        message = f"its machine is wiped; it waits for the token by which the cluster {where} admits it{told}"
        progress = HandoverProgress(stage=HandoverStage.WIPED, reason=reasons.NODE_JOINING, message=message)
    elif found.status.stage is HandoverStage.WIPED:
        progress = msgspec.structs.replace(progress, joins=True)
    elif found.status.stage is HandoverStage.JOINED:
        message = f"the node is Ready in the cluster {where}{told}"
        progress = HandoverProgress(
            stage=HandoverStage.JOINED, reason=reasons.NODE_JOINED, message=message, is_ready=True
        )
    return HandoverDecision(work=SliceDecision(plan=Plan(writes=strays)), progress=progress)


# -- and back -------------------------------------------------------------------------------------


def _return(inputs: HandoverInputs, found: NodeHandover) -> HandoverDecision:
    plane, stage = found.spec.plane, found.status.stage
    where = f"{plane.namespace}/{plane.name}"
    # Users are administrators inside: a finalizer of a pod there must not keep the node for ever.
    until = instant(found.metadata.deletion_timestamp) + dt.timedelta(
        seconds=found.spec.drain_seconds + PATIENCE_SECONDS
    )
    left = (until - inputs.now).total_seconds()
    returning = HandoverProgress(
        stage=HandoverStage.RETURNING,
        reason=reasons.NODE_RETURNING,
        message=f"the cluster {where} lets the node go: its pods leave first, until {rfc3339(until)} at the latest",
    )
    # Written first: a link that is about to take the node up fails with a conflict, and looks again.
    if stage not in _HERE and stage not in _ON_THE_WAY_BACK:
        return HandoverDecision(work=SliceDecision(goes_on=True), progress=returning)
    if stage is HandoverStage.REMAKING:
        return _remade(inputs, found)
    if found.status.inside and inputs.plane_exists and left > 0:
        return HandoverDecision(work=SliceDecision(again=left), progress=returning)
    if stage is HandoverStage.RETURNING and found.status.kind is MachineKind.REAL:
        message = "the cluster has let the node go: its machine is wiped, and starts for the host"
        remaking = HandoverProgress(stage=HandoverStage.REMAKING, reason=reasons.NODE_RETURNING, message=message)
        return HandoverDecision(work=SliceDecision(goes_on=True), progress=remaking)
    return _returned(inputs, found)


def _remade(inputs: HandoverInputs, found: NodeHandover) -> HandoverDecision:
    """Return what follows when the machine of a real node runs for the host again."""
    if not inputs.has_machine:
        message = (
            f"the machine of node {inputs.name!r} is gone, or nothing here can wipe it any more, so that it does not"
            " start for the host: if no machine of this name runs, remove the finalizer"
            f" {FINALIZER} of this NodeHandover, and delete the Node"
        )
        return _stalled(found, reasons.REAL_NODE, message)
    return msgspec.structs.replace(_returned(inputs, found), machine=MachineStep.REMAKE)


def _returned(inputs: HandoverInputs, found: NodeHandover) -> HandoverDecision:
    node, stage = inputs.node, found.status.stage
    if node is not None and is_handed_over(node):
        return _given_back(inputs, found, node)
    if stage is not HandoverStage.BACK:
        gone = "the host has the node again" if node is not None else "the host has no such Node any more"
        if contributed.machine_of(found) is not None:
            gone = "the cluster has let the machine go"
        back = HandoverProgress(stage=HandoverStage.BACK, reason=reasons.NODE_BACK, message=gone)
        return HandoverDecision(work=SliceDecision(goes_on=True), progress=back)
    rest = tuple(name for name in found.metadata.finalizers if name != FINALIZER)
    return HandoverDecision(
        work=SliceDecision(plan=Plan(writes=(DirectWrite(request=request.finalizers(found, rest)),)))
    )


def _given_back(inputs: HandoverInputs, found: NodeHandover, node: Node) -> HandoverDecision:
    """Return the write by which the host gets a node back, and the one before it."""
    if nodemarks.record_of(node) is None:
        return _stalled(found, reasons.INVALID_SPEC, _unreadable(node))
    dated = _dated(inputs, node)
    if dated is not None:
        return dated
    giving = _changed(node, nodemarks.give_back)
    return HandoverDecision(work=SliceDecision(plan=Plan(writes=giving), goes_on=True))


def _dated(inputs: HandoverInputs, node: Node) -> HandoverDecision | None:
    """Return the write by which a node is not Ready since now; None if it is, or has not been away.

    Otherwise, its slice would replace it at once: not ready for as long as it was away.
    """
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is None or node.is_ready or not nodemarks.is_detached(node) or ready.reason == reasons.NODE_BACK:
        return None
    # Only another status has another time.
    status = "Unknown" if ready.status == "False" else "False"
    told = "the node comes back from another cluster"
    wanted = NodeCondition(type="Ready", status=status, reason=reasons.NODE_BACK, message=told)
    return HandoverDecision(work=SliceDecision(plan=nodecondition.plan(node, wanted, inputs.now), goes_on=True))

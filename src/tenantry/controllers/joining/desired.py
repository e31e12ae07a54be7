"""The writes for a node that is handed over, inside the control plane that it serves: pure.

    NodeHandover, the Node on the host ─► Node inside, with the labels and taints of its pool    stage Joining, Joined
    NodeHandover that is being deleted ─► its pods are evicted, then the Node is deleted         stage Returning

Users inside are administrators: a Node of this name that another client has made is replaced, and labels of the pool
that are changed are brought back. The host reads no address from a Node inside.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterapi import provider_id
from tenantry.api.contributednode import OUTSIDE_PREFIX
from tenantry.api.errors import AlreadyExists, Conflict, NotFound
from tenantry.api.marks import HANDOVER_RECORD
from tenantry.api.model import Json
from tenantry.api.node import Node, Taint
from tenantry.api.nodehandover import PENDING, HandoverStage, MachineKind, NodeHandover, NodeHandoverStatus
from tenantry.controllers import evictions
from tenantry.controllers.joining import tokens
from tenantry.controllers.joining.machines import JoinObstacle, blocked_by, is_of, seen
from tenantry.controllers.slices.pods import PodFacts
from tenantry.engine import request
from tenantry.engine.conditions import find
from tenantry.engine.plan import DirectWrite
from tenantry.hosting import simulation, versions
from tenantry.world.leases import instant

HANDOVER = HANDOVER_RECORD
"""The annotation of a Node inside: the uid of its NodeHandover. On the host, the Node has another value of this key."""

_SHOWN_LABELS = (
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
"""The labels of the Node on the host that the Node inside has, too; the others are the host's."""


class JoinInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about one node.

    Args:
        handover: Its NodeHandover.
        below: The Node on the host; None if it is gone.
        inside: The Node inside; None if there is none.
        pods: The pods that would have to leave the Node inside.
        version: The version that a simulated kubelet reports, as in "1.36.3"; "" for that of its simulator.
        now: The time.
    """

    handover: NodeHandover
    below: Node | None
    inside: Node | None
    pods: Sequence[PodFacts]
    version: str = ""
    now: dt.datetime


class JoinDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about one node.

    Args:
        writes: Inside.
        status: Of the NodeHandover, afterwards; as it is if nothing is news.
        obstacle: What keeps the node out; None for nothing.
        again_seconds: When to look again; None for never.
    """

    writes: tuple[DirectWrite, ...] = ()
    status: NodeHandoverStatus
    obstacle: JoinObstacle | None = None
    again_seconds: float | None = None


def decide(inputs: JoinInputs) -> JoinDecision:
    """Return what is to be done about a node."""
    found = inputs.handover
    if found.metadata.deletion_timestamp:
        return _leave(inputs)
    if found.status.stage not in {HandoverStage.JOINING, HandoverStage.JOINED} or inputs.below is None:
        return JoinDecision(status=found.status)
    if found.status.kind is not MachineKind.SIMULATED:
        # Its machine joins by itself (machines.py).
        return JoinDecision(status=found.status)
    return _join(inputs, inputs.below)


def orphaned(inside: Node) -> tuple[DirectWrite, ...]:
    """Return the deletion of a Node whose NodeHandover is gone; nothing if it was never of one.

    A machine from outside keeps its certificate when it leaves, and may register again with it.

    Args:
        inside: The Node inside, which no NodeHandover has the name of.
    """
    is_from_outside = inside.metadata.name.startswith(OUTSIDE_PREFIX)
    return (_deletion(inside),) if HANDOVER in inside.metadata.annotations or is_from_outside else ()


def _join(inputs: JoinInputs, below: Node) -> JoinDecision:
    found, inside = inputs.handover, inputs.inside
    if inside is None:
        status = replace(found.status, stage=HandoverStage.JOINING, inside=PENDING)
        if found.status.inside != PENDING:
            # Before there is a Node that a return would not know of.
            return JoinDecision(status=status)
        wanted = request.create_json(Node.resource, made(found, below, inputs.version))
        return JoinDecision(writes=(DirectWrite(request=wanted, ignores=(AlreadyExists,)),), status=status)
    if not is_of(inside, found):
        # The next event of this name, its end, brings ours.
        status = replace(found.status, stage=HandoverStage.JOINING)
        if inside.metadata.deletion_timestamp:
            return JoinDecision(status=status, obstacle=blocked_by(inside))
        return JoinDecision(writes=(_deletion(inside),), status=status)
    stage = HandoverStage.JOINED if inside.is_ready else HandoverStage.JOINING
    return JoinDecision(
        writes=_restored(found, inside),
        status=seen(replace(found.status, stage=stage, inside=inside.metadata.uid), inside),
    )


def version_of(found: NodeHandover, running: str) -> str:
    """Return the version that a simulated kubelet reports; "" if neither is known.

    Args:
        found: Its NodeHandover, with the minor version that the kubelet is to have.
        running: The patch release of the control plane.
    """
    wanted = found.spec.version
    return running if not wanted or (running and versions.minor(running) == wanted) else f"{wanted}.0"


def _leave(inputs: JoinInputs) -> JoinDecision:
    found, inside = inputs.handover, inputs.inside
    # A machine that has not joined must not do so any more.
    token = tokens.id_of(found)
    withdrawn = (tokens.withdrawn(token),) if token else ()
    if inside is None or not is_of(inside, found):
        return JoinDecision(writes=withdrawn, status=replace(found.status, inside="", join=UNSET))
    if not inputs.pods:
        return JoinDecision(writes=(_deletion(inside),), status=found.status)
    since = instant(found.metadata.deletion_timestamp or "")
    left = found.spec.drain_seconds - (inputs.now - since).total_seconds()
    leave = evictions.eviction if left > 0 else evictions.deletion
    writes = [leave(each.namespace, each.name, each.uid) for each in inputs.pods if not each.deleting]
    closed: Json = {"spec": {"unschedulable": True}}
    first = request.patch(Node.resource, "", inside.metadata.name, closed)
    cordon = () if inside.spec.unschedulable else (DirectWrite(request=first, ignores=(NotFound,)),)
    # A disruption budget may refuse for a while; after the time, none counts.
    return JoinDecision(writes=(*cordon, *writes), status=found.status, again_seconds=_again(left, writes))


def _again(left: float, refusable: Sequence[DirectWrite]) -> float | None:
    if left > 0:
        return min(left, _RETRY_SECONDS) if refusable else left
    return None


_RETRY_SECONDS = 5.0


def made(found: NodeHandover, below: Node, version: str = "") -> Json:
    """Return the Node inside of a simulated node.

    Args:
        found: Its NodeHandover.
        below: The Node on the host.
        version: The version of its kubelet, as in "1.36.3"; "" for that of its simulator.
    """
    status: Json = {"capacity": below.status.capacity, "allocatable": below.status.allocatable}
    if version:
        # kwok keeps what is there.
        status["nodeInfo"] = {"kubeletVersion": f"v{version}", **_NO_INFO}
    labels = {key: value for key, value in below.metadata.labels.items() if key in _SHOWN_LABELS}
    return {
        "metadata": {
            "name": found.metadata.name,
            "labels": labels | _simulated_labels(found),
            "annotations": {simulation.MARK: simulation.MARKED, HANDOVER: found.metadata.uid},
        },
        "spec": {"taints": [_taint(each) for each in _taints(found)], "providerID": provider_id(found)},
        "status": status,
    }


def _simulated_labels(found: NodeHandover) -> dict[str, str]:
    """Return the labels that the Node inside keeps: those of its pool, and that by which the simulator selects it."""
    return {**found.spec.labels, simulation.MARK: simulation.MARKED}


_NO_INFO: Json = {
    "architecture": "",
    "bootID": "",
    "containerRuntimeVersion": "",
    "kernelVersion": "",
    "kubeProxyVersion": "",
    "machineID": "",
    "operatingSystem": "",
    "osImage": "",
    "systemUUID": "",
}
"""The other fields of `nodeInfo`, which the API requires; kwok fills them."""


def _taints(found: NodeHandover) -> list[Taint]:
    return [Taint(key=each.key, value=each.value, effect=each.effect) for each in found.spec.taints]


def _taint(taint: Taint) -> Json:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _restored(found: NodeHandover, inside: Node) -> tuple[DirectWrite, ...]:
    """Return the write that brings back the labels of the pool, and the marks."""
    wanted, has = _simulated_labels(found), inside.metadata.labels
    labels = {key: value for key, value in wanted.items() if has.get(key) != value}
    marks = {simulation.MARK: simulation.MARKED, HANDOVER: found.metadata.uid}
    if not labels and marks.items() <= inside.metadata.annotations.items():
        return ()
    body: Json = {"metadata": {"labels": labels, "annotations": marks}}
    return (DirectWrite(request=request.patch(Node.resource, "", inside.metadata.name, body), ignores=(NotFound,)),)


def is_moving(found: NodeHandover) -> bool:
    """Return whether a node waits for its control plane, which must run for that."""
    if found.metadata.deletion_timestamp:
        return bool(found.status.inside)
    if found.status.kind is MachineKind.CONTRIBUTED:
        # The control plane does not stay awake for a machine whose owner does not start it.
        late = find(found.status.conditions, reasons.JOIN_REFUSED)
        if late is not None and late.reason == reasons.JOIN_TOKEN_EXPIRED:
            return False
    return found.status.stage in {HandoverStage.WIPED, HandoverStage.JOINING}


def _deletion(inside: Node) -> DirectWrite:
    wanted = request.delete(Node.resource, "", inside.metadata.name, uid=inside.metadata.uid)
    return DirectWrite(request=wanted, ignores=(NotFound, Conflict))

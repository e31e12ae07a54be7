"""The status of a NodeHandover, as far as the host writes it: pure."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.node import Node
from tenantry.api.nodehandover import PENDING, HandoverStage, MachineKind, NodeHandover, NodeHandoverStatus
from tenantry.controllers.nodehandover import nodemarks
from tenantry.engine.conditions import Wanted, replaced
from tenantry.hosting.machines import MachinePlace


class HandoverProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a handover.

    Args:
        stage: The stage.
        reason: The reason of Ready.
        message: Its message.
        is_ready: The node is Ready in the cluster.
        stalled: Nothing changes until a person changes something.
        place: Where the machine of a real node will be in the cluster, once it is wiped.
        joins: The machine starts in the cluster now, so that there may be a Node inside.
    """

    stage: HandoverStage
    reason: str
    message: str
    is_ready: bool = False
    stalled: bool = False
    place: MachinePlace | None = None
    joins: bool = False


def compute(found: NodeHandover, node: Node | None, progress: HandoverProgress | None, now: str) -> NodeHandoverStatus:
    """Return the status.

    Args:
        found: The NodeHandover.
        node: The Node on the host.
        progress: None to leave stage and conditions as they are.
        now: RFC 3339.
    """
    status = _identified(found, node)
    if progress is None:
        return status
    generation = found.metadata.generation
    # The condition of the cluster's side stays.
    wanted = [
        Wanted(reasons.READY, progress.is_ready, progress.reason, progress.message),
        Wanted(reasons.STALLED, progress.stalled, progress.reason, progress.message, only_true=True),
    ]
    status = _moved(status, progress)
    return msgspec.structs.replace(
        status,
        observed_generation=generation,
        stage=progress.stage,
        conditions=replaced(status.conditions, wanted, generation=generation, now=now),
    )


def _moved(status: NodeHandoverStatus, progress: HandoverProgress) -> NodeHandoverStatus:
    """Return the status with what follows from the place of a machine."""
    if progress.place is not None:
        place = progress.place
        return msgspec.structs.replace(status, addresses=place.addresses, pod_range=place.pod_range)
    if progress.joins:
        # Before there is a Node that a return would not know of.
        return msgspec.structs.replace(status, inside=status.inside or PENDING)
    if progress.stage in {HandoverStage.REMAKING, HandoverStage.BACK}:
        # Nothing is dialled at these addresses any more.
        return msgspec.structs.replace(status, addresses=(), pod_range="", join=UNSET)
    return status


def _identified(found: NodeHandover, node: Node | None) -> NodeHandoverStatus:
    """Return the status with the uid and the kind of the node, once it is held."""
    status = found.status
    if found.spec.contributed is not UNSET:
        return msgspec.structs.replace(status, kind=MachineKind.CONTRIBUTED)
    if node is None or found.metadata.deletion_timestamp:
        return status
    record = nodemarks.record_of(node)
    if record is not None and record.handover == found.metadata.uid:
        kind = MachineKind.SIMULATED if record.simulator else MachineKind.REAL
        return msgspec.structs.replace(status, node=status.node or node.metadata.uid, kind=kind)
    if status.kind is UNSET and nodemarks.is_detached(node):
        return msgspec.structs.replace(status, kind=MachineKind.REAL)
    return status

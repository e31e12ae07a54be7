"""The next stage of a machine from outside on its way into a cluster, or out of it: pure.

    wanted    finalizer ─► Wiped, with the addresses of its entry ─► the cluster offers a token ─► Joining ─► Joined
    deleted   Returning: the cluster drains and deletes its Node ─► Back ─► no finalizer

The host never has the machine: nothing here starts, ends or wipes it, and a Node of its name on the host would be
another machine. Joining begins with the token, because the owner of the machine starts it.
"""

from __future__ import annotations

from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.contributednode import ContributedMachine
from tenantry.api.nodehandover import HandoverStage, NodeHandover
from tenantry.controllers.nodehandover.status import HandoverProgress
from tenantry.hosting.machines import MachinePlace


def machine_of(found: NodeHandover | None) -> ContributedMachine | None:
    """Return the machine from outside that a NodeHandover is of; None for a node of the host."""
    return None if found is None or found.spec.contributed is UNSET else found.spec.contributed


def progress(found: NodeHandover, machine: ContributedMachine) -> HandoverProgress:
    """Return the progress of a machine that is to serve its cluster."""
    where = f"{found.spec.plane.namespace}/{found.spec.plane.name}"
    stage = found.status.stage
    if stage is HandoverStage.JOINED:
        told = f"the machine serves the cluster {where}, and its Node there is Ready"
        return HandoverProgress(stage=stage, reason=reasons.NODE_JOINED, message=told, is_ready=True)
    if stage in {HandoverStage.WIPED, HandoverStage.JOINING} and found.status.join is not UNSET:
        told = f"the cluster {where} waits for the machine, whose token `tenantry node contribute` has printed"
        if stage is HandoverStage.JOINING and found.status.addresses:
            return HandoverProgress(stage=stage, reason=reasons.NODE_JOINING, message=told)
        return HandoverProgress(stage=HandoverStage.JOINING, reason=reasons.NODE_JOINING, message=told, joins=True)
    return HandoverProgress(
        stage=HandoverStage.WIPED,
        reason=reasons.NODE_JOINING,
        message=f"the cluster {where} makes a token for the machine",
        place=MachinePlace(addresses=machine.addresses, pod_range=machine.pod_range),
    )

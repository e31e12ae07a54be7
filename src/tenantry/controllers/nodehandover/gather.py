"""Reads the inputs of one NodeHandover from the caches."""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api.marks import HANDED_OVER
from tenantry.api.model import object_key
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.controllers.contributions.pods import LeavingPod, on_node
from tenantry.controllers.slices.pods import BY_BOUND, Pod, PodFacts
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.hosting.machines import Machines


class HandoverInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the next stage of one handover.

    Args:
        name: Of the node.
        now: The time.
        handover: None if it is gone.
        node: The Node on the host; None if it is gone.
        pods: The pods that are bound to it and have not ended.
        tainted_away: Those pods of DaemonSets that its taint ends, as NAMESPACE/NAME.
        plane_exists: The control plane of the handover is there, and can let the node go.
        has_machine: The machine of the node can be moved to another cluster, and back.
    """

    name: str
    now: dt.datetime
    handover: NodeHandover | None = None
    node: Node | None = None
    pods: tuple[PodFacts, ...] = ()
    tainted_away: frozenset[str] = frozenset()
    plane_exists: bool = False
    has_machine: bool = False


async def gather(cluster: Cluster, name: str, machines: Machines | None = None) -> HandoverInputs:
    """Return the inputs of a handover, without pods.

    Args:
        cluster: The host.
        name: Of the node.
        machines: Moves machines of real nodes; None if nothing does.

    Raises:
        TenantryError: Whether the machine can be moved cannot be known now.
    """
    has_machine = machines is not None and await machines.has(name)
    found: NodeHandover | None = cluster.cache(NodeHandover.resource).get(name)
    node: Node | None = cluster.cache(Node.resource).get(name)
    return HandoverInputs(
        name=name,
        now=cluster.clock.now(),
        handover=found,
        node=node,
        plane_exists=found is not None and _plane_exists(cluster, found),
        has_machine=has_machine,
    )


async def with_pods(cluster: Cluster, inputs: HandoverInputs, there: Cache[PodFacts]) -> HandoverInputs:
    """Return the inputs with the pods of the node.

    Raises:
        ApiError: The pods of DaemonSets cannot be read.
    """
    pods = tuple(there.by_index(BY_BOUND, inputs.name))
    tainted: frozenset[str] = frozenset()
    # The caches keep no tolerations, which matter only for pods that no eviction ends.
    if any(pod.stays for pod in pods):
        listed = await _listed(cluster, inputs)
        tainted = frozenset(pod.facts.key for pod in listed if pod.tainted_away and pod.facts.stays)
    return msgspec.structs.replace(inputs, pods=pods, tainted_away=tainted)


async def _listed(cluster: Cluster, inputs: HandoverInputs) -> list[LeavingPod]:
    value = inputs.handover.spec.plane.name if inputs.handover is not None else ""
    selectors = {"fieldSelector": f"spec.nodeName={inputs.name}"}
    return [on_node(raw, HANDED_OVER, value) async for raw in cluster.live.raw(Pod.resource, selectors=selectors)]


def _plane_exists(cluster: Cluster, handover: NodeHandover) -> bool:
    wanted = handover.spec.plane
    key = object_key(wanted.namespace, wanted.name)
    plane: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(key)
    if plane is None or plane.metadata.uid != wanted.uid:
        return False
    # One that sleeps when it is deleted does not wake any more.
    return not (plane.metadata.deletion_timestamp and plane.status.phase is PlanePhase.ASLEEP)

"""A TenantryMachine: one node of the host, which joins the cluster of the Machine: pure.

    TenantryMachine ─► SliceClaim of one node ─► NodeHandover ─► Joined ─► spec.providerID ─► Machine is Running
    deleted         ─► NodeHandover deleted ─► the host has the node ─► SliceClaim deleted ─► no finalizer

A Machine never gets a second node: Cluster API replaces it, by another Machine.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api import reasons
from tenantry.api.clusterapi import (
    CLONED_FROM,
    CLUSTER_NAME,
    KUBEADM_CONFIGS,
    MACHINES,
    MachineAddress,
    Provisioned,
    TenantryMachine,
    TenantryMachineStatus,
    machine_claim_name,
    provider_id,
)
from tenantry.api.errors import AlreadyExists
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.nodehandover import BootstrapConfig, HandoverPlane, HandoverStage, NodeHandover, NodeHandoverSpec
from tenantry.api.slice import ClaimMode, SliceClaim, SliceClaimSpec, SliceState, Users, slice_name
from tenantry.api.tenancydefaults import SliceDefaults
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.children import deleted, kept, meta_of
from tenantry.controllers.clusterapi.children import (
    HELD,
    NO_CLUSTER,
    is_child,
    is_paused,
    taken,
    with_finalizer,
    without_finalizer,
)
from tenantry.controllers.conclusion import ready, trouble
from tenantry.controllers.dedicatedcluster.desired import wrong_settings
from tenantry.engine import request
from tenantry.engine.conditions import find, is_true, merge
from tenantry.engine.plan import Blocked, DirectWrite, Plan


class MachineInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about one TenantryMachine.

    Args:
        found: The TenantryMachine.
        cluster: The Cluster of its label, as JSON; None for none.
        plane: The VirtualControlPlane of this Cluster; None while there is none.
        claim: The SliceClaim of its name, also one of another owner; None for none.
        handover: The NodeHandover of the node that its claim has, also of another cluster; None for none.
        machine: The Machine of Cluster API that controls it, as JSON; None for none, or once it has its node.
        defaults: Of TenancyDefaults.
    """

    found: TenantryMachine
    cluster: Json | None = None
    plane: VirtualControlPlane | None = None
    claim: SliceClaim | None = None
    handover: NodeHandover | None = None
    machine: Json | None = None
    defaults: SliceDefaults = SliceDefaults()

    @property
    def own_claim(self) -> SliceClaim | None:
        """Return its SliceClaim; None for none, or one of another owner."""
        return self.claim if self.claim is not None and is_child(self.found, self.claim) else None

    @property
    def slice(self) -> str:
        """Return the name of its Slice; "" for none."""
        own = self.own_claim
        return slice_name(own.metadata.name, own.metadata.uid) if own is not None else ""

    @property
    def bootstrap(self) -> Json:
        """Return where the Machine has its bootstrap data; {} if it has no Machine."""
        spec: Json = (self.machine or {}).get("spec") or {}
        found: Json = spec.get("bootstrap") or {}
        return found

    @property
    def awaits_bootstrap(self) -> bool:
        """Return whether the bootstrap provider has not answered yet: no node may join before."""
        if machine_name(self.found):
            return self.machine is not None and not self.bootstrap.get("dataSecretName")
        # Cluster API makes it before its Machine.
        return CLONED_FROM in self.found.metadata.annotations

    @property
    def own_handover(self) -> NodeHandover | None:
        """Return the NodeHandover of its node; None for none, or one of another cluster."""
        return self.handover if self.handover is not None and self.handover.spec.slice == self.slice else None


def machine_name(found: TenantryMachine) -> str:
    """Return the name of the Machine that controls a TenantryMachine; "" for none."""
    owners = (each.name for each in found.metadata.owner_references if each.controller and each.kind == MACHINES.kind)
    return next(owners, "")


def plan(inputs: MachineInputs) -> Plan:
    """Return the next writes; an empty plan if everything is as it should be."""
    found = inputs.found
    if found.metadata.deletion_timestamp:
        return Plan(writes=_end(inputs))
    if CLUSTER_NAME not in found.metadata.labels or is_paused(found, inputs.cluster):
        return Plan()
    wrong = problem(inputs)
    if wrong is not None:
        return Plan(blocked=(wrong,))
    return Plan(before=with_finalizer(found), writes=(*_claimed(inputs), *_handed_over(inputs), *_identified(inputs)))


def problem(inputs: MachineInputs) -> Blocked | None:
    """Return what a person must change before the Machine can have a node; None if nothing."""
    told = next(iter(wrong_settings("spec", inputs.found.spec)), None)
    if told is not None:
        return Blocked(reason=reasons.INVALID_SPEC, message=told)
    is_foreign = inputs.claim is not None and inputs.own_claim is None
    return taken(inputs.claim) if inputs.claim is not None and is_foreign else None


def claim(inputs: MachineInputs) -> SliceClaim:
    """Return the SliceClaim of a Machine."""
    found, spec = inputs.found, inputs.found.spec
    return SliceClaim(
        metadata=meta_of(found, machine_claim_name(found.metadata.name)),
        spec=SliceClaimSpec(
            mode=ClaimMode.DYNAMIC,
            count=1,
            selector=spec.selector,
            node_names=spec.node_names,
            per_node=spec.per_node,
            users=Users.CLUSTER,
            grace_period_seconds=min(spec.drain_seconds, inputs.defaults.max_grace_period_seconds),
            # Cluster API replaces Machines.
            replace_after_seconds=0,
        ),
    )


def _claimed(inputs: MachineInputs) -> tuple[DirectWrite, ...]:
    if inputs.own_claim is None and inputs.found.spec.provider_id:
        return ()
    return tuple(kept(claim(inputs), inputs.own_claim))


def _handed_over(inputs: MachineInputs) -> tuple[DirectWrite, ...]:
    own, of, found = inputs.own_claim, inputs.plane, inputs.found
    if own is None or of is None or of.metadata.deletion_timestamp or found.spec.provider_id:
        return ()
    if inputs.awaits_bootstrap:
        return ()
    # Only what the slice has alone: pods of others have left the node within their grace periods.
    if own.metadata.deletion_timestamp or own.status.state is not SliceState.BOUND or inputs.handover is not None:
        return ()
    plane = HandoverPlane(namespace=of.metadata.namespace, name=of.metadata.name, uid=of.metadata.uid)
    most = inputs.defaults.max_grace_period_seconds
    return tuple(
        DirectWrite(
            request=request.create(
                NodeHandover(
                    metadata=ObjectMeta(name=node, labels={MANAGED_BY: MANAGER}),
                    spec=NodeHandoverSpec(
                        plane=plane,
                        slice=inputs.slice,
                        labels=found.spec.labels,
                        taints=found.spec.taints,
                        drain_seconds=min(found.spec.drain_seconds, most),
                        bootstrap=_config(inputs),
                    ),
                )
            ),
            # The node still serves another cluster: the end of its NodeHandover wakes this Machine.
            ignores=(AlreadyExists,),
        )
        for node in own.status.nodes[:1]
    )


def _config(inputs: MachineInputs) -> BootstrapConfig | UnsetType:
    """Return the KubeadmConfig whose token the node joins with; UNSET for none."""
    of: Json = inputs.bootstrap.get("configRef") or {}
    if of.get("kind") != KUBEADM_CONFIGS.kind or of.get("apiGroup") != KUBEADM_CONFIGS.group:
        return UNSET
    return BootstrapConfig(namespace=inputs.found.metadata.namespace, name=str(of["name"]))


def _identified(inputs: MachineInputs) -> tuple[DirectWrite, ...]:
    handover, found = inputs.own_handover, inputs.found
    if handover is None or handover.status.stage is not HandoverStage.JOINED or found.spec.provider_id:
        return ()
    meta = found.metadata
    body: Json = {"metadata": {"uid": meta.uid}, "spec": {"providerID": provider_id(handover)}}
    return (DirectWrite(request=request.patch(found.resource, meta.namespace, meta.name, body)),)


def _end(inputs: MachineInputs) -> tuple[DirectWrite, ...]:
    """Return the next write of a Machine that is being deleted: each step waits for the one before."""
    if inputs.own_handover is not None:
        return tuple(deleted([inputs.own_handover]))
    if inputs.own_claim is not None:
        return tuple(deleted([inputs.own_claim]))
    return without_finalizer(inputs.found)


def status(inputs: MachineInputs, failed: Blocked | None, now: str) -> TenantryMachineStatus:
    """Return the status.

    Args:
        inputs: The Machine with its children.
        failed: Why the last write failed; None if all were carried out.
        now: RFC 3339.
    """
    found, handover = inputs.found, inputs.own_handover
    generation = found.metadata.generation
    obstacle = _obstacle(inputs, failed)
    node = handover.metadata.name if handover is not None else found.status.node
    has_joined = bool(found.spec.provider_id)
    wanted = [ready(obstacle, f"node {node!r} is Ready in the cluster"), *trouble(obstacle)]
    return TenantryMachineStatus(
        observed_generation=generation,
        initialization=Provisioned(provisioned=has_joined),
        node=node,
        addresses=(MachineAddress(type="Hostname", address=node),) if node and has_joined else (),
        conditions=merge(found.status.conditions, wanted, generation=generation, now=now),
    )


def _obstacle(inputs: MachineInputs, failed: Blocked | None) -> Blocked | None:
    found = inputs.found
    if found.metadata.deletion_timestamp:
        return _ending(inputs)
    if CLUSTER_NAME not in found.metadata.labels:
        return NO_CLUSTER
    if is_paused(found, inputs.cluster):
        return HELD
    wrong = problem(inputs) or failed
    if wrong is not None:
        return wrong
    return _joining(inputs.own_handover) if inputs.own_handover is not None else _waiting(inputs)


def _waiting(inputs: MachineInputs) -> Blocked:
    """Return what a Machine without a node waits for."""
    found, own = inputs.found, inputs.own_claim
    if found.spec.provider_id:
        told = f"node {found.status.node!r} does not serve the cluster any more: delete the Machine"
        return Blocked(reason=reasons.NODES_LOST, message=told)
    stalled = False
    if own is None:
        told = "its SliceClaim is not created yet"
    elif own.status.state is not SliceState.BOUND:
        about = find(own.status.conditions, own.status.state.value)
        told = f"SliceClaim {own.key!r}: {about.message if about is not None else 'it gets its node'}"
        stalled = is_true(own.status.conditions, reasons.STALLED)
    elif inputs.awaits_bootstrap:
        told = "it waits for the bootstrap data of its Machine"
    elif inputs.plane is None:
        told = "it waits for the control plane of its Cluster"
    elif inputs.handover is not None:
        told = f"node {inputs.handover.metadata.name!r} still serves another cluster"
    else:
        told = "its node is handed over"
    return Blocked(reason=reasons.NODES_JOINING, message=told, passing=not stalled)


def _joining(handover: NodeHandover) -> Blocked | None:
    stalled = find(handover.status.conditions, reasons.STALLED)
    name = handover.metadata.name
    if stalled is not None:
        return Blocked(reason=stalled.reason, message=f"node {name!r}: {stalled.message}")
    if handover.metadata.deletion_timestamp:
        return Blocked(reason=reasons.NODES_LEAVING, message=f"node {name!r} leaves the cluster", passing=True)
    if handover.status.stage is HandoverStage.JOINED:
        return None
    told = f"node {name!r} is {handover.status.stage.value}"
    return Blocked(reason=reasons.NODES_JOINING, message=told, passing=True)


def _ending(inputs: MachineInputs) -> Blocked:
    handover, own = inputs.own_handover, inputs.own_claim
    if handover is not None:
        told = f"node {handover.metadata.name!r} is {handover.status.stage.value}"
        return Blocked(reason=reasons.NODES_LEAVING, message=f"it ends: {told}", passing=True)
    told = f"SliceClaim {own.key!r} gives its node back" if own is not None else "nothing is left of it"
    return Blocked(reason=reasons.PROGRESSING, message=f"it ends: {told}", passing=True)

"""H04: what Cluster API's objects become, what Cluster API reads of them, and how they end."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clusterapi import (
    CLONED_FROM,
    CLUSTER_API_FINALIZER,
    CLUSTER_API_KINDS,
    CLUSTER_NAME,
    PAUSED,
    ApiEndpoint,
    ControlPlaneInitialization,
    Provisioned,
    TenantryCluster,
    TenantryClusterStatus,
    TenantryControlPlane,
    TenantryControlPlaneSpec,
    TenantryMachine,
    TenantryMachineSpec,
    machine_claim_name,
    plane_name,
    provider_id,
)
from tenantry.api.model import Condition, ConditionStatus, KubernetesObject, ObjectMeta, OwnerReference
from tenantry.api.nodehandover import (
    BootstrapConfig,
    HandoverPlane,
    HandoverStage,
    NodeHandover,
    NodeHandoverSpec,
    NodeHandoverStatus,
)
from tenantry.api.slice import MAX_NAME as MAX_CLAIM
from tenantry.api.slice import SliceClaim, SliceClaimStatus, SliceState, Users, slice_name
from tenantry.api.virtualcontrolplane import MAX_NAME as MAX_PLANE
from tenantry.api.virtualcontrolplane import PlaneNodes, PlanePhase, VirtualControlPlane, VirtualControlPlaneStatus
from tenantry.controllers.children import meta_of
from tenantry.controllers.clusterapi import infrastructure, machines, planes
from tenantry.controllers.clusterapi.machines import MachineInputs
from tenantry.controllers.clusterapi.planes import PlaneInputs
from tenantry.engine.conditions import find
from tenantry.engine.plan import Amendment, Plan
from tenantry.engine.request import ApiRequest, Verb
from tenantry.install import clusterapi, manifests

NOW = "2027-01-01T00:00:00Z"
NAMESPACE = "acme"
KUBECONFIG = "clusters: []\n"
READY = Condition(type=reasons.READY, status=ConditionStatus.TRUE, reason="x", message="", last_transition_time=NOW)


def meta(name: str, uid: str, **more: Any) -> ObjectMeta:  # noqa: ANN401 - fields of ObjectMeta
    """Return metadata as Cluster API leaves it."""
    given: dict[str, Any] = {"labels": {CLUSTER_NAME: "web"}, "finalizers": (CLUSTER_API_FINALIZER,), **more}
    return ObjectMeta(name=name, namespace=NAMESPACE, uid=uid, resource_version="1", **given)


def control_plane(**more: Any) -> TenantryControlPlane:  # noqa: ANN401 - fields of ObjectMeta
    """Return a TenantryControlPlane."""
    return TenantryControlPlane(metadata=meta("web", "tcp", **more), spec=TenantryControlPlaneSpec(version="v1.36.3"))


def started(of: TenantryControlPlane) -> VirtualControlPlane:
    """Return its VirtualControlPlane, which serves its clients."""
    wanted = planes.plane(of)
    status = VirtualControlPlaneStatus(
        version="1.36.3",
        endpoint="https://10.0.0.1:7443",
        kubeconfig_secret="web-capi-kubeconfig",
        phase=PlanePhase.AWAKE,
        conditions=(READY,),
    )
    return replace(wanted, metadata=replace(wanted.metadata, uid="vcp", resource_version="1"), status=status)


def requests(plan: Plan) -> list[ApiRequest]:
    """Return the requests of a plan."""
    assert not any(isinstance(each, Amendment) for each in plan.writes)
    return [each.request for each in (*plan.before, *plan.writes) if not isinstance(each, Amendment)]


def kinds(plan: Plan) -> list[tuple[str, str]]:
    """Return what a plan does with which kind."""
    return [(each.verb.name, each.resource.kind) for each in requests(plan)]


def test_a_control_plane_gets_a_virtual_control_plane_with_nodes_of_its_own() -> None:
    """H04: the minor version counts, and the contract's labels are not on the child."""
    (asked,) = requests(planes.plan(PlaneInputs(found=control_plane())))
    made = asked.body
    assert isinstance(made, VirtualControlPlane)
    assert (made.metadata.name, made.spec.version, made.spec.nodes) == ("web-capi", "1.36", PlaneNodes.OWN)
    assert made.spec.sleep.after_idle_seconds == 0
    assert [each.kind for each in made.metadata.owner_references] == ["TenantryControlPlane"]


def test_the_finalizer_is_written_before_the_first_child() -> None:
    """H04: a deletion in between would otherwise not wait for the nodes."""
    for plan in (
        planes.plan(PlaneInputs(found=control_plane(finalizers=()))),
        machines.plan(MachineInputs(found=machine(finalizers=()))),
    ):
        (first,) = plan.before
        assert CLUSTER_API_FINALIZER in str(first.request.body)


def test_cluster_api_gets_the_endpoint_the_kubeconfig_and_no_key_of_the_ca() -> None:
    """H04: of the type and with the label that Cluster API looks for."""
    found = control_plane()
    inputs = PlaneInputs(found=found, plane=started(found), kubeconfig=KUBECONFIG, authority=b"CERTIFICATE")
    endpoint, *secrets = requests(planes.plan(inputs))
    assert endpoint.body == {"spec": {"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 7443}}}
    bodies = {each.name: each.body for each in secrets}
    assert set(bodies) == {"web-ca", "web-kubeconfig"}
    for each in bodies.values():
        assert isinstance(each, dict)
        assert each["type"] == "cluster.x-k8s.io/secret"
        assert each["metadata"]["labels"][CLUSTER_NAME] == "web"
    data = {name: each["data"] for name, each in bodies.items() if isinstance(each, dict)}
    assert base64.b64decode(data["web-kubeconfig"]["value"]).decode() == KUBECONFIG
    assert base64.b64decode(data["web-ca"]["tls.crt"]) == b"CERTIFICATE"
    assert b"PRIVATE" not in base64.b64decode(data["web-ca"]["tls.key"])


def published(found: TenantryControlPlane) -> PlaneInputs:
    """Return a control plane that has everything."""
    found = replace(found, spec=replace(found.spec, control_plane_endpoint=ApiEndpoint(host="10.0.0.1", port=7443)))
    inputs = PlaneInputs(found=found, plane=started(found), kubeconfig=KUBECONFIG, authority=b"CERTIFICATE")
    made: dict[str, Any] = {each.name: each.body for each in requests(planes.plan(inputs))}
    secrets = {name: {**body, "metadata": {**body["metadata"], "uid": name}} for name, body in made.items()}
    return replace(inputs, secrets=secrets)


def test_a_control_plane_that_has_everything_is_available_and_the_next_plan_is_empty() -> None:
    """H04: the fields of the contract, of which `initialization` never goes back."""
    inputs = published(control_plane())
    assert planes.plan(inputs).is_empty
    status = planes.status(inputs, None, NOW)
    assert status.initialization.control_plane_initialized
    assert [each.version for each in status.versions] == ["v1.36.3"]
    assert status.external_managed_control_plane
    available = find(status.conditions, planes.AVAILABLE)
    assert available is not None
    assert available.status is ConditionStatus.TRUE
    later = replace(inputs, found=replace(inputs.found, status=status), plane=None)
    again = planes.status(later, None, NOW)
    assert again.initialization.control_plane_initialized
    ready = find(again.conditions, reasons.READY)
    assert ready is not None
    assert ready.status is ConditionStatus.FALSE


def test_a_secret_or_a_control_plane_of_another_owner_is_left_as_it_is() -> None:
    """H04: a user may have created one of this name before; it would get the credentials, or lose its own."""
    inputs = published(control_plane())
    foreign = {"metadata": {"name": "web-kubeconfig", "uid": "f"}, "data": {"value": ""}}
    plane = VirtualControlPlane(metadata=ObjectMeta(name="web-capi", namespace=NAMESPACE, uid="f"))
    owner = {"kind": "TenantryControlPlane", "name": "web", "uid": inputs.found.metadata.uid}
    held = {"metadata": {**foreign["metadata"], "ownerReferences": [owner]}, "data": {"value": ""}}
    (reference,) = started(inputs.found).metadata.owner_references
    forged = replace(plane, metadata=replace(plane.metadata, owner_references=(replace(reference, kind="Else"),)))
    for each in (
        replace(inputs, secrets={**inputs.secrets, "web-kubeconfig": foreign}),
        replace(inputs, secrets={**inputs.secrets, "web-kubeconfig": held}),
        replace(inputs, plane=forged, secrets={}),
        replace(inputs, plane=plane, secrets={}),
    ):
        plan = planes.plan(each)
        assert not requests(plan)
        assert [blocked.reason for blocked in plan.blocked] == [reasons.OBJECT_EXISTS]


def test_a_kubeconfig_that_was_renewed_is_written_again() -> None:
    """H04: Cluster API would lose its access when the old one expires."""
    inputs = replace(published(control_plane()), kubeconfig="clusters: [new]\n")
    (asked,) = requests(planes.plan(inputs))
    assert (asked.verb, asked.name) == (Verb.PATCH, "web-kubeconfig")


def test_a_control_plane_ends_with_its_child_before_its_finalizer() -> None:
    """H04: the VirtualControlPlane waits for its nodes."""
    found = control_plane(deletion_timestamp=NOW)
    own = started(found)
    assert kinds(planes.plan(PlaneInputs(found=found, plane=own))) == [("DELETE", "VirtualControlPlane")]
    going = replace(own, metadata=replace(own.metadata, deletion_timestamp=NOW))
    assert planes.plan(PlaneInputs(found=found, plane=going)).is_empty
    (last,) = requests(planes.plan(PlaneInputs(found=found)))
    assert isinstance(last.body, dict)
    assert last.body["metadata"]["finalizers"] == []


# -- Machines -------------------------------------------------------------------------------------


def machine(spec: TenantryMachineSpec | None = None, **more: Any) -> TenantryMachine:  # noqa: ANN401 - of ObjectMeta
    """Return a TenantryMachine."""
    return TenantryMachine(metadata=meta("web-a", "tm", **more), spec=spec or TenantryMachineSpec())


def claimed(of: TenantryMachine, state: SliceState = SliceState.BOUND) -> SliceClaim:
    """Return its SliceClaim, which has a node."""
    wanted = machines.claim(MachineInputs(found=of))
    status = SliceClaimStatus(state=state, nodes=("n-1",))
    return replace(wanted, metadata=replace(wanted.metadata, uid="claim", resource_version="1"), status=status)


def handed_over(stage: HandoverStage, of_slice: str = "") -> NodeHandover:
    """Return the NodeHandover of its node."""
    name = of_slice or slice_name("web-a", "claim")
    spec = NodeHandoverSpec(plane=HandoverPlane(namespace=NAMESPACE, name="web-capi", uid="vcp"), slice=name)
    meta_ = ObjectMeta(name="n-1", uid="handover", resource_version="1")
    return NodeHandover(metadata=meta_, spec=spec, status=NodeHandoverStatus(stage=stage))


def test_a_machine_gets_a_claim_of_one_node_and_then_its_handover() -> None:
    """H04: the node leaves the host only when its slice is Bound, and only once."""
    found, plane = machine(TenantryMachineSpec(labels={"disk": "ssd"})), started(control_plane())
    (asked,) = requests(machines.plan(MachineInputs(found=found, plane=plane)))
    assert isinstance(asked.body, SliceClaim)
    assert (asked.body.spec.count, asked.body.spec.users) == (1, Users.CLUSTER)
    waiting = MachineInputs(found=found, plane=plane, claim=claimed(found, SliceState.RESERVED))
    assert machines.plan(waiting).is_empty
    assert machines.plan(replace(waiting, plane=None, claim=claimed(found))).is_empty
    (asked,) = requests(machines.plan(replace(waiting, claim=claimed(found))))
    assert isinstance(asked.body, NodeHandover)
    assert (asked.body.metadata.name, asked.body.spec.plane.uid) == ("n-1", "vcp")
    assert asked.body.spec.labels == {"disk": "ssd"}


def test_a_machine_waits_for_its_bootstrap_data_and_joins_with_the_token_of_its_kubeadm_config() -> None:
    """H04: contract of infrastructure providers; a Machine with other data joins with a token of the operator."""
    of_machine = OwnerReference(
        api_version="cluster.x-k8s.io/v1beta2", kind="Machine", name="web-a", uid="m", controller=True
    )
    cloned = {CLONED_FROM: "web"}
    found, plane = machine(owner_references=(of_machine,), annotations=cloned), started(control_plane())
    made = machine(annotations=cloned)
    assert machines.plan(MachineInputs(found=made, plane=plane, claim=claimed(made))).is_empty
    reference = {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": "web-a"}

    def having(**bootstrap: Any) -> MachineInputs:  # noqa: ANN401 - JSON
        return MachineInputs(
            found=found, plane=plane, claim=claimed(found), machine={"spec": {"bootstrap": {**bootstrap}}}
        )

    waiting = having(configRef=reference)
    assert waiting.awaits_bootstrap
    assert machines.plan(waiting).is_empty
    ready = find(machines.status(waiting, None, NOW).conditions, reasons.READY)
    assert ready is not None
    assert ready.message == "it waits for the bootstrap data of its Machine"
    (asked,) = requests(machines.plan(having(configRef=reference, dataSecretName="web-a")))
    assert isinstance(asked.body, NodeHandover)
    assert asked.body.spec.bootstrap == BootstrapConfig(namespace=NAMESPACE, name="web-a")
    (asked,) = requests(machines.plan(having(dataSecretName="none")))
    assert isinstance(asked.body, NodeHandover)
    assert asked.body.spec.bootstrap is UNSET


def test_a_machine_has_a_provider_id_when_its_node_has_joined() -> None:
    """H04: Cluster API finds the Node inside by it, and then calls the Machine Running."""
    found = machine()
    inputs = MachineInputs(found=found, plane=started(control_plane()), claim=claimed(found))
    joining = replace(inputs, handover=handed_over(HandoverStage.JOINING))
    assert machines.plan(joining).is_empty
    assert not machines.status(joining, None, NOW).initialization.provisioned
    joined = replace(inputs, handover=handed_over(HandoverStage.JOINED))
    (asked,) = requests(machines.plan(joined))
    assert isinstance(asked.body, dict)
    known = provider_id(handed_over(HandoverStage.JOINED))
    assert asked.body["spec"] == {"providerID": known}
    done = replace(joined, found=machine(TenantryMachineSpec(provider_id=known)))
    assert machines.plan(done).is_empty
    status = machines.status(done, None, NOW)
    assert (status.initialization.provisioned, status.node) == (True, "n-1")
    assert msgspec.to_builtins(done.found.spec) == {"providerID": known}


def test_a_machine_never_gets_a_second_node() -> None:
    """H04: Cluster API would take the pods of the first one for lost, or both for one."""
    found = machine(TenantryMachineSpec(provider_id="tenantry://old/n-1"))
    for claim in (None, claimed(found)):
        inputs = MachineInputs(found=found, plane=started(control_plane()), claim=claim)
        assert machines.plan(inputs).is_empty
        ready = find(machines.status(inputs, None, NOW).conditions, reasons.READY)
        assert ready is not None
        assert ready.reason == reasons.NODES_LOST


def test_a_node_that_serves_another_cluster_is_waited_for() -> None:
    """H04: its NodeHandover has the name of the node, so that there can only be one."""
    found = machine()
    other = handed_over(HandoverStage.RETURNING, "another-slice")
    inputs = MachineInputs(found=found, plane=started(control_plane()), claim=claimed(found), handover=other)
    assert machines.plan(inputs).is_empty
    ready = find(machines.status(inputs, None, NOW).conditions, reasons.READY)
    assert ready is not None
    assert "still serves another cluster" in ready.message
    gone = replace(inputs, found=machine(deletion_timestamp=NOW))
    assert kinds(machines.plan(gone)) == [("DELETE", "SliceClaim")]


def test_a_machine_ends_with_its_handover_then_its_claim_then_its_finalizer() -> None:
    """H04: the quota covers the node until the host has it."""
    found = machine(deletion_timestamp=NOW)
    inputs = MachineInputs(found=found, claim=claimed(found), handover=handed_over(HandoverStage.JOINED))
    assert kinds(machines.plan(inputs)) == [("DELETE", "NodeHandover")]
    assert kinds(machines.plan(replace(inputs, handover=None))) == [("DELETE", "SliceClaim")]
    (last,) = requests(machines.plan(MachineInputs(found=found)))
    assert isinstance(last.body, dict)
    assert last.body["metadata"]["finalizers"] == []


def test_settings_that_no_node_may_have_are_refused_before_anything_is_claimed() -> None:
    """H04: as for the pools of a DedicatedCluster."""
    found = machine(TenantryMachineSpec(labels={"kubernetes.io/os": "other"}))
    plan = machines.plan(MachineInputs(found=found))
    assert not requests(plan)
    assert plan.blocked[0].message.startswith("spec.labels must not have")


@pytest.mark.parametrize(
    ("labels", "annotations", "cluster"),
    [
        ({}, {}, None),
        ({CLUSTER_NAME: "web"}, {PAUSED: "true"}, None),
        ({CLUSTER_NAME: "web"}, {}, {"spec": {"paused": True}}),
    ],
)
def test_nothing_is_done_before_a_cluster_owns_it_or_while_it_is_paused(
    labels: dict[str, str], annotations: dict[str, str], cluster: dict[str, Any] | None
) -> None:
    """H04: as the contract requires; `clusterctl move` relies on it."""
    given: dict[str, Any] = {"labels": labels, "annotations": annotations, "finalizers": ()}
    assert planes.plan(PlaneInputs(found=control_plane(**given), cluster=cluster)).is_empty
    assert machines.plan(MachineInputs(found=machine(**given), cluster=cluster)).is_empty


@pytest.mark.parametrize("name", ["a" * 63, "a.b", "a-b", "x" * 40])
def test_names_of_children_are_labels_that_fit_and_do_not_collide(name: str) -> None:
    """H04: names that Cluster API makes are longer than those of claims may be."""
    assert len(plane_name(name)) <= MAX_PLANE
    assert len(machine_claim_name(name)) <= MAX_CLAIM
    assert "." not in plane_name(name) + machine_claim_name(name)
    assert plane_name(name) != plane_name(f"{name}b")
    assert machine_claim_name(name) != machine_claim_name(f"{name}b")


def infrastructure_of(reference: str, *, answers: bool, topology: bool = False, provisioned: bool = False) -> bool:
    """Return whether the infrastructure of a Cluster is provisioned.

    Args:
        reference: The kind of its control plane; "" for one that is not there yet.
        answers: Whether a control plane of this provider has answered.
        topology: Whether the Cluster is of a ClusterClass.
        provisioned: Whether it was before.
    """
    spec: dict[str, Any] = {"controlPlaneRef": {"kind": reference, "name": "web"}} if reference else {}
    spec |= {"topology": {}} if topology else {}
    status = TenantryClusterStatus(initialization=Provisioned(provisioned=provisioned))
    found = TenantryCluster(metadata=meta("web", "tc"), status=status)
    plane = control_plane()
    initialized = ControlPlaneInitialization(control_plane_initialized=answers)
    plane = replace(plane, status=replace(plane.status, initialization=initialized))
    why = infrastructure.obstacle(found, {"spec": spec}, [plane])
    return infrastructure.status(found, why, NOW).initialization.provisioned


def test_the_infrastructure_is_provisioned_when_the_control_plane_answers() -> None:
    """H04: Cluster API connects then; after a failure, it would wait half a minute before it tries again."""
    own = TenantryControlPlane.resource.kind
    assert not infrastructure_of(own, answers=False)
    assert infrastructure_of(own, answers=True)
    assert infrastructure_of(own, answers=False, provisioned=True), "it never goes back"
    assert infrastructure_of("KubeadmControlPlane", answers=False), "others wait for it"
    assert not infrastructure_of("", answers=False, topology=True), "the control plane may come"
    assert infrastructure_of("", answers=False)


def test_only_the_option_installs_the_kinds_with_their_contract() -> None:
    """H04: the operator has no rights on them otherwise, and none on other kinds of Cluster API."""
    assert "infrastructure.cluster.x-k8s.io" not in str(manifests.foundation(manifests.LOCAL_USER))
    made = clusterapi.everything(manifests.LOCAL_USER)
    definitions = [each for each in made if each["kind"] == "CustomResourceDefinition"]
    assert len(definitions) == 6
    assert all(each["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"] == "v1alpha1" for each in definitions)
    (role,) = (each for each in made if each["kind"] == "ClusterRole")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch", "patch", "update"}
    assert [rule["verbs"] for rule in role["rules"] if rule["apiGroups"] == ["cluster.x-k8s.io"]] == [["get"]]


def test_cluster_api_may_leave_an_empty_spec_out() -> None:
    """H04: it does so for what it makes of templates; only a control plane needs a field, its version."""
    for each in CLUSTER_API_KINDS:
        if each is not TenantryControlPlane:
            assert msgspec.convert({"metadata": {"name": "x"}}, each).metadata.name == "x"
    needed = [
        each["spec"]["names"]["kind"]
        for each in clusterapi.everything(manifests.LOCAL_USER)
        if each["kind"] == "CustomResourceDefinition"
        and "required" in each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    ]
    assert needed == ["TenantryControlPlane"]


def test_children_are_controlled_by_what_they_are_of() -> None:
    """H04: the garbage collector ends what an operator that is stopped leaves."""
    every: list[KubernetesObject] = [control_plane(), machine()]
    for each in every:
        (owner,) = meta_of(each, "x").owner_references
        assert (owner.uid, owner.controller) == (each.metadata.uid, True)

"""The life of contributed nodes, from what was agreed on to their end, in a world without I/O."""

from __future__ import annotations

import msgspec

from tenantry.api.contribution import (
    REGISTER,
    Contribution,
    EarlierRecord,
    earlier_record_of,
    read,
    recorded,
    register,
)
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import NODE_ADDRESSES, SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.api.node import Node
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.signing import SERVING, SigningRequest
from tenantry.controllers.contributions.apiserver import EndpointSlice, Service
from tenantry.controllers.slices.pods import Pod
from testkit.certificates import request
from testkit.sliceworld import SliceWorld

NODE = "contributed-abc123"


def _scene(data: dict[str, str] | None) -> SliceWorld:
    there = SliceWorld()
    if not there.has(Namespace.resource, SYSTEM_NAMESPACE):
        there.world.put_in(Namespace.resource, {"metadata": {"name": SYSTEM_NAMESPACE}})
    there.world.create(register({} if data is None else {NODE: read(data)}))
    there.node(NODE)
    return there


AGREED = {"tenant": "acme", "owner": "ada", "location": "rome", "device": ""}


def test_a_node_has_the_labels_that_were_agreed_on() -> None:
    """E19: whatever its kubelet says of itself."""
    there = _scene(AGREED)
    there.settle()
    assert there.marks(NODE)["tenantry.dev/contributed-by"] == "acme"
    there.world.patch(Node.resource, NODE, {"metadata": {"labels": {"tenantry.dev/contributed-by": "eve"}}})
    there.settle()
    assert there.marks(NODE)["tenantry.dev/contributed-by"] == "acme"
    assert "unschedulable" not in there.world.get(Node.resource, NODE)["spec"]


def test_the_taint_of_a_contributed_node_names_its_tenant_and_others_stay() -> None:
    """E19: also if the node had one that named another tenant."""
    there = _scene(AGREED)
    forged = {"key": "tenantry.dev/contributed-by", "value": "eve", "effect": "NoSchedule"}
    other = {"key": "disk", "value": "slow", "effect": "NoSchedule"}
    there.world.patch(Node.resource, NODE, {"spec": {"taints": [forged, other]}})
    there.settle()
    taints = there.world.get(Node.resource, NODE)["spec"]["taints"]
    assert {(each["key"], each.get("value", "")) for each in taints} == {(forged["key"], "acme"), ("disk", "slow")}


def test_a_node_without_an_agreement_gets_no_pods() -> None:
    """E19: it is cordoned, and stays."""
    there = _scene(None)
    there.settle()
    assert there.world.get(Node.resource, NODE)["spec"]["unschedulable"] is True


def test_a_withdrawn_node_leaves_its_slice_then_its_pods_leave_then_it_is_deleted() -> None:
    """E19: in that order."""
    there = _scene(AGREED)
    there.settle()
    name = there.claim()
    there.settle()
    assert there.marks(NODE)["tenantry.dev/slice"] == name
    own, agent, system = there.own_pod("own", NODE, name), there.pod("agent", NODE), there.pod("system", NODE)
    for each in (agent, system):
        owners = {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}}
        there.world.patch(Pod.resource, each, owners)
    there.world.patch(Pod.resource, system, {"spec": {"tolerations": [{"operator": "Exists"}]}})
    there.withdraw(NODE)
    there.settle()
    assert not there.has(Pod.resource, own)
    # Kubernetes ends the pod of the DaemonSet for the taint; until then, the node was not taken back.
    taints = there.world.get(Node.resource, NODE)["spec"]["taints"]
    assert {"key": "tenantry.dev/taken-back", "effect": "NoExecute"} in taints
    there.world.delete(Pod.resource, agent)
    there.settle()
    assert not there.has(Node.resource, NODE)
    assert there.has(Pod.resource, system)


def test_a_node_whose_kubelet_is_dead_waits_for_no_pod_that_is_being_deleted() -> None:
    """E19: no kubelet ends it; Kubernetes removes it after the node."""
    there = _scene(AGREED)
    there.settle()
    agent = there.pod("agent", NODE)
    meta = {"ownerReferences": [{"kind": "DaemonSet", "controller": True}], "finalizers": ["test/held"]}
    there.world.patch(Pod.resource, agent, {"metadata": meta})
    there.fail(NODE)
    there.withdraw(NODE)
    there.settle()
    assert there.has(Node.resource, NODE)
    there.world.delete(Pod.resource, agent)
    there.settle()
    assert not there.has(Node.resource, NODE)


def test_a_record_of_an_earlier_version_moves_into_the_register() -> None:
    """E19: with the first reconcile of its node."""
    there = _scene(None)
    about = {"name": earlier_record_of(NODE), "namespace": SYSTEM_NAMESPACE}
    there.world.put_in(EarlierRecord.resource, {"metadata": about, "data": AGREED})
    there.world.patch(Node.resource, NODE, {"metadata": {"annotations": {"woken": "true"}}})
    there.restart()
    there.settle()
    assert _recorded(there) == read(AGREED)
    assert not there.has(EarlierRecord.resource, f"{SYSTEM_NAMESPACE}/{about['name']}")


def test_the_addresses_of_a_node_that_joined_before_they_were_recorded_are_recorded_once() -> None:
    """E19, ADDR-3: without them its kubelet could report nothing more; foreign ones are left out."""
    there = _scene(None)
    there.node("other")
    there.world.patch(Node.resource, "other", _reports("10.0.0.6"))
    there.world.put_in(Namespace.resource, {"metadata": {"name": "default"}})
    service = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"clusterIPs": ["10.96.0.1"]}}
    there.world.put_in(Service.resource, service)
    about = {"name": earlier_record_of(NODE), "namespace": SYSTEM_NAMESPACE}
    there.world.put_in(EarlierRecord.resource, {"metadata": about, "data": AGREED})
    own = _reports("10.0.0.5", "2001:db8::5", "127.0.0.1", "10.0.0.6", "10.96.0.1")
    there.world.patch(Node.resource, NODE, own)
    there.restart()
    there.settle()
    wanted = read({**AGREED, "addresses": "10.0.0.5,2001:db8::5"})
    assert _recorded(there) == wanted
    assert there.world.get(Node.resource, NODE)["metadata"]["annotations"][NODE_ADDRESSES] == wanted.addresses
    there.world.patch(Node.resource, NODE, _reports("10.0.0.7"))
    there.restart()
    there.settle()
    assert _recorded(there) == wanted


def _reports(*addresses: str) -> Json:
    return {"status": {"addresses": [{"type": "InternalIP", "address": each} for each in addresses]}}


def _recorded(there: SliceWorld) -> Contribution | None:
    found = there.world.get(PolicyParameters.resource, f"{SYSTEM_NAMESPACE}/{REGISTER}")
    return recorded(msgspec.convert(found, PolicyParameters), NODE)


def _serving(there: SliceWorld, name: str, *addresses: str) -> bool:
    """Return whether a node's request for a certificate for these addresses was approved."""
    user = f"system:node:{NODE}"
    asked = request(SERVING, user, user, *addresses)
    spec = {"request": asked.spec.request, "signerName": SERVING, "username": user}
    there.world.put_in(SigningRequest.resource, {"metadata": {"name": name}, "spec": spec})
    there.settle()
    conditions = there.world.get(SigningRequest.resource, name).get("status", {}).get("conditions", [])
    return [each["type"] for each in conditions] == ["Approved"]


def test_a_serving_certificate_is_for_the_nodes_own_address_and_never_for_the_api_servers() -> None:
    """E19: which the node may report as its own; with and without endpoints that Kubernetes keeps."""
    there = _scene(AGREED)
    there.world.put_in(Namespace.resource, {"metadata": {"name": "default"}})
    service = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"clusterIPs": ["10.96.0.1"]}}
    there.world.put_in(Service.resource, service)
    reported = [{"type": "InternalIP", "address": each} for each in ("10.0.0.5", "10.96.0.1", "10.0.0.1")]
    there.world.patch(Node.resource, NODE, {"status": {"addresses": reported}})
    assert _serving(there, "own", "10.0.0.5")
    assert not _serving(there, "service", "10.96.0.1")
    endpoints = {"metadata": {"name": "kubernetes", "namespace": "default"}, "endpoints": [{"addresses": ["10.0.0.1"]}]}
    there.world.put_in(EndpointSlice.resource, endpoints)
    assert not _serving(there, "endpoint", "10.0.0.1")


def test_a_node_without_an_agreement_gets_no_certificate() -> None:
    there = _scene(None)
    there.world.put_in(Namespace.resource, {"metadata": {"name": "default"}})
    service = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"clusterIPs": ["10.96.0.1"]}}
    there.world.put_in(Service.resource, service)
    reported = [{"type": "InternalIP", "address": "10.0.0.5"}]
    there.world.patch(Node.resource, NODE, {"status": {"addresses": reported}})
    assert not _serving(there, "own", "10.0.0.5")
    there.world.delete(SigningRequest.resource, "own")
    there.settle()

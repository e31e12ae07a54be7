"""The Node that stands for another cluster: its object, and the reports that keep it, in a world without I/O."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from tenantry.api.errors import Conflict, Forbidden, TerminalError, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.node import Node
from tenantry.controllers.peering.link import virtualnode
from tenantry.controllers.peering.link.nodereports import NodeReports
from tenantry.controllers.peering.link.virtualnode import GIVEN, LEASES_NAMESPACE, PEER, Readiness, VirtualNodeInputs
from tenantry.engine.lease import Lease
from tenantry.engine.reader import Reader
from tenantry.engine.request import ApiRequest
from tenantry.engine.writer import Writer
from testkit.clock import ManualClock
from testkit.signingworld import SigningWorld, UserClient

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NODE, OPERATOR = "system:node:edge", "tenantry:operator"
READY = Readiness(is_ready=True, reason="PeerReady", message="the other cluster answers")
AWAY = Readiness(is_ready=False, reason="PeerUnreachable", message="the other cluster does not answer")
RACK = "topology.kubernetes.io/rack"
ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": PEER, "value": "b", "effect": "NoSchedule"}


def inputs(**changes: object) -> VirtualNodeInputs:
    """Return the inputs of the node "edge"."""
    given: dict[str, object] = {
        "name": "edge",
        "peer": "b",
        "labels": {ZONE: "z1", "federation.tenantry.dev/gpu": "yes"},
        "resources": {"cpu": "64", "memory": "256Gi", "pods": "110"},
        "address": "10.0.0.7",
        "port": 10250,
        "version": "v1.36.3",
        "readiness": READY,
    }
    return VirtualNodeInputs(**{**given, **changes})  # pyright: ignore[reportArgumentType] - each field by its name


class HomeWorld(SigningWorld):
    """A World with NodeRestriction.

    Attributes:
        away: Kinds that do not answer.
        conflict: Another client changes each object that the operator patches.
    """

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.away: set[str] = set()
        self.conflict = False

    def answer(self, asked: ApiRequest) -> bytes:
        """Answer a request; see `World.answer`."""
        if asked.resource.plural in self.away:
            raise Unreachable("no response")
        return super().answer(asked)

    def put_in(self, resource: Resource, value: Json) -> Json:
        """Create an object."""
        if resource == Node.resource and self.user == NODE:
            _check({}, value["metadata"].get("labels", {}))
        return super().put_in(resource, value)

    def patch(self, resource: Resource, key: str, patch: Json) -> Json:
        """Patch an object."""
        if self.conflict and self.user == OPERATOR:
            raise Conflict("has been modified", status=409)
        before = self.get(resource, key)
        if resource == Node.resource and self.user == NODE:
            assert "taints" not in patch.get("spec", {}), "NodeRestriction: a node may not change taints"
            _check(before["metadata"].get("labels", {}), patch.get("metadata", {}).get("labels", {}))
        return super().patch(resource, key, patch)


def _check(before: Json, labels: Json) -> None:
    known = {"kubernetes.io/hostname", ZONE, "topology.kubernetes.io/region"}
    for key, value in labels.items():
        domain = key.partition("/")[0]
        is_known = key in known or domain == "node.kubernetes.io"
        if before.get(key) != value and "kubernetes.io" in domain and not is_known:
            raise Forbidden(f"is not allowed to modify labels: {key}", status=403)


class Scene:
    """A home cluster, and the reports of its node "edge"."""

    def __init__(self, **changes: object) -> None:
        self.clock = ManualClock(NOW)
        self.world = HomeWorld(self.clock)
        self.world.create(Namespace(metadata=ObjectMeta(name=LEASES_NAMESPACE)))
        self.inputs = inputs(**changes)
        client = UserClient(self.world, NODE)
        self.reports = NodeReports(
            lambda: self.inputs,
            reader=Reader(client),
            writer=Writer(client),
            operator=Writer(UserClient(self.world, OPERATOR)),
            clock=self.clock,
        )

    async def report(self, **changes: object) -> list[str]:
        """Report ten seconds later, and return the writes except the renewal of the Lease."""
        self.clock.advance(10)
        if changes:
            self.inputs = inputs(**changes)
        self.world.writes.clear()
        await self.reports.report()
        return [each for each in self.world.writes if "leases" not in each]

    def changed(self, patch: Json) -> None:
        """Change the Node as another client."""
        self.world.user = "admin"
        self.world.patch(Node.resource, "edge", patch)

    @property
    def node(self) -> Json:
        """Return the Node."""
        return self.world.get(Node.resource, "edge")

    @property
    def lease(self) -> Json:
        """Return the Lease."""
        return self.world.get(Lease.resource, f"{LEASES_NAMESPACE}/edge")

    def condition(self, type_: str) -> Json:
        """Return a condition of the Node."""
        return next(each for each in self.node["status"]["conditions"] if each["type"] == type_)


async def test_the_node_identity_registers_the_node() -> None:
    there = Scene()
    assert await there.report() == [f"{NODE}: POST nodes"]
    node = there.node
    assert node["metadata"]["labels"] == {
        ZONE: "z1",
        "federation.tenantry.dev/gpu": "yes",
        "federation.tenantry.dev/virtual": "true",
        PEER: "b",
        "kubernetes.io/hostname": "edge",
        "type": "virtual-kubelet",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
    }
    assert node["spec"]["taints"] == [TAINT]
    status = node["status"]
    assert status["capacity"] == status["allocatable"] == {"cpu": "64", "memory": "256Gi", "pods": "110"}
    assert status["addresses"] == [{"type": "InternalIP", "address": "10.0.0.7"}]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert status["nodeInfo"] == {"kubeletVersion": "v1.36.3"}
    assert there.condition("Ready")["status"] == "True"
    assert {each["type"] for each in status["conditions"]} == {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"}


async def test_an_unchanged_node_gets_only_its_lease_renewed() -> None:
    there = Scene()
    await there.report()
    before = there.node
    assert there.lease["spec"]["renewTime"] == "2026-01-01T00:00:10.000000Z"
    assert await there.report() == []
    assert there.world.writes == [f"{NODE}: PATCH leases"]
    assert there.node == before
    lease = there.lease
    assert lease["spec"] == {
        "holderIdentity": "edge",
        "leaseDurationSeconds": 40,
        "renewTime": "2026-01-01T00:00:20.000000Z",
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": "edge", "uid": before["metadata"]["uid"]}
    assert lease["metadata"]["ownerReferences"] == [owner]


async def test_quantities_in_another_form_are_no_change() -> None:
    there = Scene()
    await there.report()
    quantities = {"cpu": "64000m", "memory": "262144Mi", "pods": "110"}
    assert await there.report(resources=quantities) == []


async def test_a_cluster_that_does_not_answer_is_reported_once_and_keeps_its_lease() -> None:
    there = Scene()
    await there.report()
    assert await there.report(readiness=AWAY) == [f"{NODE}: PATCH nodes/status"]
    ready = there.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PeerUnreachable")
    assert ready["lastTransitionTime"] == "2026-01-01T00:00:20Z"
    assert there.condition("MemoryPressure")["lastTransitionTime"] == "2026-01-01T00:00:10Z"
    assert await there.report(readiness=AWAY) == []
    assert there.lease["spec"]["renewTime"] == "2026-01-01T00:00:30.000000Z"
    await there.report(readiness=READY)
    assert there.condition("Ready")["status"] == "True"


async def test_what_the_node_controller_marked_unknown_is_reported_again() -> None:
    """After this process was gone for a while."""
    there = Scene()
    await there.report()
    unknown = [
        {**each, "status": "Unknown", "reason": "NodeStatusUnknown"} for each in there.node["status"]["conditions"]
    ]
    other = {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"}
    there.changed({"status": {"conditions": [*unknown, other]}})
    assert await there.report() == [f"{NODE}: PATCH nodes/status"]
    assert there.condition("Ready")["status"] == "True"
    assert there.condition("NetworkUnavailable") == other


async def test_capacity_and_address_follow_and_resources_of_others_stay() -> None:
    there = Scene(resources={"cpu": "64", "pods": "110", "nvidia.com/gpu": "2"})
    await there.report()
    bandwidth = {"tenantry.dev/ingress-mbps": "100"}
    there.changed({"status": {"capacity": bandwidth}})
    smaller = {"cpu": "8", "pods": "110"}
    assert await there.report(resources=smaller, address="10.0.0.8", port=10251) == [f"{NODE}: PATCH nodes/status"]
    status = there.node["status"]
    assert status["capacity"] == {**smaller, **bandwidth}
    assert status["allocatable"] == smaller
    assert status["addresses"][0]["address"] == "10.0.0.8"
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10251


async def test_labels_that_are_given_no_more_go_and_those_of_others_stay() -> None:
    there = Scene()
    await there.report()
    there.changed({"metadata": {"labels": {"team": "a"}}})
    # A policy lets the Node change no label of Tenantry.
    assert await there.report(labels={ZONE: "z2"}) == [f"{OPERATOR}: PATCH nodes", f"{NODE}: PATCH nodes"]
    labels = there.node["metadata"]["labels"]
    assert labels[ZONE] == "z2"
    assert "federation.tenantry.dev/gpu" not in labels
    assert labels["team"] == "a"
    assert there.node["metadata"]["annotations"][GIVEN] == ZONE
    assert await there.report(labels={ZONE: "z2"}) == []


async def test_the_operator_sets_labels_that_a_node_may_not_set() -> None:
    """NodeRestriction knows only a few labels of kubernetes.io."""
    there = Scene(labels={RACK: "r1"})
    assert await there.report() == [f"{NODE}: POST nodes", f"{OPERATOR}: PATCH nodes"]
    assert there.node["metadata"]["labels"][RACK] == "r1"
    assert await there.report(labels={}) == [f"{OPERATOR}: PATCH nodes", f"{NODE}: PATCH nodes"]
    assert RACK not in there.node["metadata"]["labels"]


async def test_the_operator_puts_a_lost_taint_back() -> None:
    """A node may not; the taints of others stay."""
    there = Scene()
    await there.report()
    other = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    wrong = {**TAINT, "value": "c"}
    there.changed({"spec": {"taints": [other, wrong]}})
    assert await there.report() == [f"{OPERATOR}: PATCH nodes"]
    assert there.node["spec"]["taints"] == [other, TAINT]


async def test_a_label_is_not_forgotten_if_the_operator_cannot_remove_it_now() -> None:
    there = Scene(labels={RACK: "r1"})
    await there.report()
    there.world.conflict = True
    await there.report(labels={})
    there.world.conflict = False
    await there.report(labels={})
    assert RACK not in there.node["metadata"]["labels"]


async def test_a_node_that_was_deleted_registers_again() -> None:
    there = Scene()
    await there.report()
    there.world.delete(Node.resource, "edge")
    assert await there.report() == [f"{NODE}: POST nodes"]
    assert there.lease["metadata"]["ownerReferences"][0]["uid"] == there.node["metadata"]["uid"]


async def test_another_node_of_the_name_stays_as_it_is() -> None:
    there = Scene()
    there.world.put_in(Node.resource, {"metadata": {"name": "edge", "labels": {PEER: "c"}}, "spec": {}})
    before = there.node
    with pytest.raises(TerminalError, match="does not stand for 'b'"):
        await there.report()
    assert there.node == before
    assert there.world.writes == []


async def test_the_lease_is_renewed_although_the_node_cannot_be_changed() -> None:
    there = Scene()
    await there.report()
    there.world.forbidden["status"] = "a policy refuses it"
    with pytest.raises(Forbidden):
        await there.report(readiness=AWAY)
    assert there.lease["spec"]["renewTime"] == "2026-01-01T00:00:20.000000Z"


async def test_reports_go_on_after_a_failure() -> None:
    there = Scene()
    there.world.away.add("nodes")
    there.reports.wake()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(there.reports.run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert there.world.list(Node.resource) == []
        there.world.away.clear()
        there.reports.wake()
        while not there.world.list(Lease.resource):  # noqa: ASYNC110 - no event reports a write
            await asyncio.sleep(0)
        running.cancel()
    assert there.condition("Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("key", "may"),
    [
        ("federation.tenantry.dev/gpu", True),
        ("type", True),
        ("kubernetes.io/hostname", True),
        ("node.kubernetes.io/exclude-from-external-load-balancers", True),
        ("a.kubelet.kubernetes.io/x", True),
        (ZONE, True),
        (RACK, False),
        ("node-role.kubernetes.io/worker", False),
        ("node-restriction.kubernetes.io/x", False),
        ("a.node-restriction.kubernetes.io/x", False),
        ("x.k8s.io/y", False),
        ("notkubernetes.io/x", True),
    ],
)
def test_labels_are_divided_as_node_restriction_does(key: str, *, may: bool) -> None:
    """Source: kubernetes/plugin/pkg/admission/noderestriction (getForbiddenLabels)."""
    assert virtualnode.may_set(key) is may


def test_given_labels_do_not_replace_those_of_the_node() -> None:
    """The other cluster proposes them: they must not name another peer or host."""
    given = {PEER: "c", "kubernetes.io/hostname": "control-plane-1", "federation.tenantry.dev/virtual": "false"}
    labels = virtualnode.node(inputs(labels=given), NOW)["metadata"]["labels"]
    assert (labels[PEER], labels["kubernetes.io/hostname"]) == ("b", "edge")
    assert labels["federation.tenantry.dev/virtual"] == "true"

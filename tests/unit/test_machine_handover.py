"""Machines of real nodes that leave the host, are wiped, join another cluster and return, in a world without I/O."""

from __future__ import annotations

import base64

from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import Slice
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.joining import tokens
from tenantry.controllers.slices.pods import Pod
from testkit.handovers import NODE, HandoverWorld
from testkit.machines import HOST, PLACE, FakeMachines


def _away() -> tuple[HandoverWorld, FakeMachines, str]:
    """Return a world in which a machine is wiped for a control plane, whose uid is the last."""
    machines = FakeMachines(NODE)
    there = HandoverWorld(real=True, machines=machines)
    plane = there.plane()
    there.hand_over(uid=plane)
    there.settle()
    return there, machines, plane


def _joined() -> tuple[HandoverWorld, FakeMachines, str]:
    there, machines, plane = _away()
    there.admit()
    there.settle()
    there.join()
    there.settle()
    return there, machines, plane


def test_a_machine_is_wiped_before_a_cluster_gets_it() -> None:
    """Its pods leave first; where it will be is known, and it does not run before there is a token."""
    machines = FakeMachines(NODE)
    there = HandoverWorld(real=True, machines=machines, quota={"requests.cpu": "8", "requests.memory": "64Gi"})
    charge = there.world.get(Slice.resource, there.slice)["spec"]["charge"]
    own = there.own_pod("own", NODE, there.slice)
    plane = there.plane()
    there.hand_over(uid=plane)
    there.settle()
    there.assert_is_away()
    assert not there.has(Pod.resource, own)
    assert machines.places == {NODE: f"wiped for {plane}"}
    assert (there.handed["stage"], there.handed["kind"]) == ("Wiped", "Real")
    assert (there.handed["addresses"], there.handed["podRange"]) == ([*PLACE.addresses], PLACE.pod_range)
    assert "waits for the token" in there.told()[1]
    assert there.world.get(Slice.resource, there.slice)["spec"]["charge"] == charge


def test_a_machine_runs_until_its_pods_have_left() -> None:
    """A pod without a controller keeps it for the whole drain period."""
    machines = FakeMachines(NODE)
    there = HandoverWorld(real=True, machines=machines)
    alone = there.own_pod("alone", NODE, there.slice)
    there.world.patch(Pod.resource, alone, {"metadata": {"ownerReferences": []}})
    there.hand_over(uid=there.plane())
    there.settle(20)
    assert (there.told()[0], machines.places[NODE]) == ("NodeLeaving", HOST)
    there.settle(40)
    assert there.handed["stage"] == "Wiped"


def test_a_machine_joins_with_the_token_of_its_own() -> None:
    """The return knows from then on that there may be a Node inside."""
    there, machines, plane = _away()
    there.admit()
    there.settle()
    assert machines.places == {NODE: f"in {plane}"}
    assert set(machines.tokens) == {"abcdef.0123456789abcdef"}
    assert (there.handed["stage"], there.handed["inside"]) == ("Joining", "pending")
    there.join()
    there.settle()
    assert there.told() == ("NodeJoined", "the node is Ready in the cluster acme/web")


def test_a_machine_is_wiped_again_before_the_host_gets_it() -> None:
    """First the cluster lets it go; afterwards nothing of the place inside is left in the status."""
    there, machines, plane = _joined()
    there.end()
    there.settle(10)
    assert (there.handed["stage"], machines.places[NODE]) == ("Returning", f"in {plane}")
    there.let_go()
    machines.problem = "the supervisor does not answer"
    there.settle(10)
    assert there.told() == ("MachineFailed", "the supervisor does not answer")
    assert (there.handed["stage"], "addresses" in there.handed) == ("Remaking", False)
    there.assert_is_away()
    machines.problem = ""
    there.settle()
    assert machines.places == {NODE: HOST}
    assert not there.has(NodeHandover.resource, NODE)
    there.assert_is_home()


def test_a_handover_that_ends_early_returns_the_machine() -> None:
    """Wiped, and not offered to the cluster yet."""
    there, machines, _ = _away()
    there.end()
    there.settle()
    assert machines.places == {NODE: HOST}
    assert not there.has(NodeHandover.resource, NODE)
    there.assert_is_home()


def test_a_handover_that_is_deleted_by_force_returns_the_machine() -> None:
    """The marks of the Node are enough."""
    there, machines, _ = _joined()
    there.world.patch(NodeHandover.resource, NODE, {"metadata": {"finalizers": []}})
    there.end()
    there.settle()
    assert machines.places == {NODE: HOST}
    there.assert_is_home()


def test_a_machine_returns_without_its_node_and_without_its_cluster() -> None:
    """Neither the deletion of the Node on the host nor that of the control plane keeps it."""
    there, machines, _ = _joined()
    there.world.delete(Node.resource, NODE)
    there.world.delete(VirtualControlPlane.resource, "acme/web")
    there.end()
    there.settle()
    assert machines.places == {NODE: HOST}
    assert not there.has(NodeHandover.resource, NODE)


def test_a_machine_whose_token_is_gone_does_not_start() -> None:
    """It would wait for a certificate without an end; the condition names the reason."""
    there, machines, plane = _away()
    join = {"server": "https://10.113.128.1:6443", "ca": "PEM", "secret": {"namespace": "kube-system", "name": "none"}}
    there.world.patch(NodeHandover.resource, NODE, {"status": {"join": join}})
    there.settle(10)
    assert (there.handed["stage"], machines.places[NODE]) == ("Wiped", f"wiped for {plane}")
    assert there.told()[0] == "MachineFailed"


def test_a_machine_does_not_start_with_the_token_of_another_node() -> None:
    """The reader is that of the control plane: what it would not accept starts nothing."""
    there, machines, plane = _away()
    there.admit()
    key = f"kube-system/{tokens.secret_name(NODE, 'abcdef')}"
    other = base64.b64encode(b"fedcba.0123456789abcdef").decode()
    there.world.patch(tokens.SECRETS, key, {"data": {"token": other}})
    there.settle(10)
    assert (there.handed["stage"], machines.places[NODE]) == ("Wiped", f"wiped for {plane}")
    assert "cannot be read" in there.told()[1]


def test_a_machine_that_nothing_can_move_stays() -> None:
    """Contributed machines are of their contributors."""
    machines = FakeMachines("another")
    there = HandoverWorld(real=True, machines=machines)
    before = there.host_node
    there.hand_over()
    there.settle()
    assert there.told("Stalled")[0] == "RealNode"
    assert "were not contributed" in there.told("Stalled")[1]
    assert there.host_node == before


def test_a_machine_that_is_gone_keeps_a_handover_that_ends_until_its_finalizer_is_removed() -> None:
    """What to do is about the end, and not about the nodes of the pool; the marks of the Node go with it."""
    there, machines, _ = _joined()
    machines.places.clear()
    there.end()
    there.let_go()
    there.settle(10)
    assert there.handed["stage"] == "Remaking"
    reason, message = there.told("Stalled")
    assert reason == "RealNode"
    assert "remove the finalizer tenantry.dev/" in message
    assert "select such nodes" not in message
    there.world.patch(NodeHandover.resource, NODE, {"metadata": {"finalizers": []}})
    there.settle()
    assert not there.has(NodeHandover.resource, NODE)
    there.assert_is_home()

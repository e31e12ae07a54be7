"""Nodes that leave the host for another cluster and come back, in a world without I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.nodehandover.desired import PATIENCE_SECONDS
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.clock import rfc3339
from tenantry.hosting import simulation
from tenantry.world.leases import instant
from testkit.handovers import NODE, HandoverWorld


def test_a_node_leaves_the_host_and_comes_back() -> None:
    """H05: its slice, its name and its charge stay meanwhile."""
    there = HandoverWorld(quota={"requests.cpu": "8", "requests.memory": "64Gi"})
    charge = there.world.get(Slice.resource, there.slice)["spec"]["charge"]
    own = there.own_pod("own", NODE, there.slice)
    there.hand_over()
    there.settle()
    there.assert_is_away()
    assert not there.has(Pod.resource, own)
    assert (there.handed["stage"], there.handed["kind"]) == ("Joining", "Simulated")
    assert there.handed["node"] == there.host_node["metadata"]["uid"]
    assert there.told()[0] == "NodeJoining"
    assert there.state() == ("Bound", "NodesBound")
    assert there.status()["nodes"] == [NODE]
    assert not [each for each in there.status()["conditions"] if each["type"] == "Degraded"]
    assert there.world.get(Slice.resource, there.slice)["spec"]["charge"] == charge
    there.end()
    there.settle()
    assert not there.has(NodeHandover.resource, NODE)
    there.assert_is_home()
    assert "unschedulable" not in there.host_node["spec"]
    assert there.marks(NODE)["tenantry.dev/slice"] == there.slice
    assert there.world.get(Slice.resource, there.slice)["spec"]["charge"] == charge


def test_a_node_that_an_administrator_had_cordoned_is_cordoned_afterwards() -> None:
    """H05: what the host gets back is what it gave."""
    there = HandoverWorld()
    there.world.patch(Node.resource, NODE, {"spec": {"unschedulable": True}})
    there.hand_over()
    there.settle()
    there.end()
    there.settle()
    there.assert_is_home()
    assert there.host_node["spec"]["unschedulable"] is True


def test_pods_leave_within_the_drain_period_and_by_their_budgets() -> None:
    """H05: no pod ends for the taint before the period is over."""
    there = HandoverWorld()
    own, alone = there.own_pod("own", NODE, there.slice), there.own_pod("alone", NODE, there.slice)
    there.world.patch(Pod.resource, alone, {"metadata": {"ownerReferences": []}})
    there.hand_over()
    there.settle(20)
    assert (there.has(Pod.resource, own), there.has(Pod.resource, alone)) == (False, True)
    assert there.taints == [("web", "NoSchedule")]
    assert there.told() == ("NodeLeaving", "pods leave the node: 'acme/alone'")
    there.settle(40)
    assert not there.has(Pod.resource, alone)
    there.assert_is_away()


def test_daemonsets_that_tolerate_everything_stay_and_are_named() -> None:
    """H05: others end by the taint before the node leaves; a pod that never started is removed later."""
    there = HandoverWorld()
    agent, logs = there.pod("agent", NODE, namespace="kube-system"), there.pod("logs", NODE, namespace="kube-system")
    for each in (agent, logs):
        there.world.patch(
            Pod.resource, each, {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}}
        )
    there.world.patch(Pod.resource, agent, {"spec": {"tolerations": [{"operator": "Exists"}]}})
    there.hand_over()
    there.settle()
    assert there.taints == [("web", "NoExecute"), ("web", "NoSchedule")]
    assert simulation.MARK in there.host_node["metadata"]["annotations"], "Kubernetes has not ended the second pod yet"
    assert there.told()[1] == "pods leave the node: 'kube-system/logs'"
    there.world.delete(Pod.resource, logs)
    there.settle()
    there.assert_is_away()
    assert there.has(Pod.resource, agent)
    assert "stay bound to it, and do not run: 'kube-system/agent'" in there.told()[1]
    stray = there.pod("stray", NODE)
    there.settle()
    assert not there.has(Pod.resource, stray), "no kubelet would confirm its end"
    assert there.has(Pod.resource, agent)


def test_a_node_is_kept_until_its_cluster_has_let_it_go() -> None:
    """H05: only the link knows when its pods there have left."""
    there = HandoverWorld()
    there.hand_over(uid=there.plane())
    there.settle()
    there.join()
    there.end()
    there.settle(80)
    there.assert_is_away()
    assert (there.handed["stage"], there.told()[0]) == ("Returning", "NodeReturning")
    there.let_go()
    there.settle()
    there.assert_is_home()
    assert not there.has(NodeHandover.resource, NODE)


def test_a_cluster_that_does_not_let_a_node_go_keeps_it_for_a_while_only() -> None:
    """H05: users inside are administrators, and could keep a pod there for ever; the condition names the time."""
    there = HandoverWorld()
    there.hand_over(uid=there.plane())
    there.settle()
    there.join()
    there.end()
    since = there.world.get(NodeHandover.resource, NODE)["metadata"]["deletionTimestamp"]
    there.settle(80)
    last = rfc3339(instant(since) + dt.timedelta(seconds=30 + PATIENCE_SECONDS))
    assert there.told()[1].endswith(f"its pods leave first, until {last} at the latest")
    there.assert_is_away()
    there.settle(15)
    there.assert_is_home()
    assert not there.has(NodeHandover.resource, NODE)


def test_a_cluster_that_is_gone_keeps_no_node() -> None:
    """H05: neither deleted before the return nor during it."""
    there = HandoverWorld()
    there.hand_over(uid=there.plane())
    there.settle()
    there.join()
    there.end()
    there.settle(10)
    there.assert_is_away()
    there.world.delete(VirtualControlPlane.resource, "acme/web")
    there.settle()
    there.assert_is_home()
    assert not there.has(NodeHandover.resource, NODE)


def test_a_node_that_has_joined_is_ready_and_stays_away() -> None:
    """H05: the stage is the link's, and the host restores what an administrator undoes."""
    there = HandoverWorld()
    there.hand_over(uid=there.plane())
    there.settle()
    there.join()
    there.world.patch(Node.resource, NODE, {"spec": {"unschedulable": None}})
    there.settle()
    there.assert_is_away()
    assert (there.handed["stage"], there.handed["inside"]) == ("Joined", "uid-inside")
    assert there.told() == ("NodeJoined", "the node is Ready in the cluster acme/web")
    # As a link does whose Node is not Ready any more.
    there.world.patch(NodeHandover.resource, NODE, {"status": {"stage": "Joining"}})
    there.settle()
    assert (there.handed["stage"], there.told()[0]) == ("Joining", "NodeJoining")


def test_a_stage_that_the_link_sets_during_a_reconcile_is_kept() -> None:
    """H05: the host would write the stage of before over it, and the link sets it once only."""
    arrives = False

    def join_meanwhile() -> str:
        nonlocal arrives
        if arrives:
            arrives = False
            there.join()
            there.cluster.look()
        return "none"

    there = HandoverWorld(faults=join_meanwhile)
    there.hand_over(uid=there.plane())
    there.settle()
    there.pod("stray", NODE)
    arrives = True
    there.settle()
    assert not arrives
    assert (there.handed["stage"], there.told()[0]) == ("Joined", "NodeJoined")


def _delete_node(there: HandoverWorld) -> None:
    there.world.delete(Node.resource, NODE)


def _replace_node(there: HandoverWorld) -> None:
    there.world.delete(Node.resource, NODE)
    there.node(NODE, notes={simulation.MARK: "fake"})


@pytest.mark.parametrize("loss", [_delete_node, _replace_node])
def test_a_handover_without_its_node_is_stalled_and_ends_when_it_is_deleted(
    loss: Callable[[HandoverWorld], None],
) -> None:
    """H05: another Node of the name is left as it is."""
    there = HandoverWorld()
    there.hand_over()
    there.settle()
    loss(there)
    there.settle()
    assert there.told("Stalled")[0] == "NodeMissing"
    there.end()
    there.settle()
    assert not there.has(NodeHandover.resource, NODE)


def test_a_real_node_stays_with_the_host() -> None:
    """H05: nothing of it changes."""
    there = HandoverWorld(real=True)
    before = there.host_node
    there.hand_over()
    there.settle()
    assert (there.told("Stalled")[0], there.handed["kind"]) == ("RealNode", "Real")
    assert there.host_node == before
    there.end()
    there.settle()
    assert not there.has(NodeHandover.resource, NODE)


def test_only_a_node_of_the_slice_leaves_the_host() -> None:
    """H05: a handover for another slice takes no node of this one, and waits for a node that is not drained."""
    there = HandoverWorld()
    there.hand_over(of_slice="another")
    there.settle()
    assert there.told("Stalled")[0] == "NodeNotInSlice"
    there.assert_is_home()
    assert there.marks(NODE)["tenantry.dev/slice"] == there.slice


def test_a_handover_waits_until_the_slice_has_the_node_alone() -> None:
    """H05: pods of other tenants leave for the slice first, within their grace period."""
    there = HandoverWorld()
    there.world.delete(SliceClaim.resource, "acme/web")
    there.settle()
    other = there.pod("other", NODE)
    there.slice = there.claim("later", users="Subnamespaces")
    there.settle()
    there.hand_over()
    there.settle()
    assert there.told("Stalled")[0] == "NodeNotInSlice"
    assert there.has(Pod.resource, other)
    there.world.patch(SliceClaim.resource, "acme/later", {"spec": {"users": "Cluster"}})
    there.settle()
    assert not there.has(Pod.resource, other)
    there.assert_is_away()
    assert there.told("Stalled") == ("", "")


def test_a_slice_that_ends_waits_for_its_nodes_to_return() -> None:
    """H05: it asks for the return, and no other claim gets the node before."""
    there = HandoverWorld()
    there.hand_over(uid=there.plane())
    there.settle()
    there.join()
    there.world.delete(SliceClaim.resource, "acme/web")
    other = there.claim("next")
    there.settle(60)
    assert there.state("next")[0] == "Pending"
    assert there.marks(NODE)["tenantry.dev/slice-reserved"] == there.slice
    assert there.world.get(NodeHandover.resource, NODE)["metadata"]["deletionTimestamp"]
    found = {each["type"]: each for each in there.world.get(Slice.resource, there.slice)["status"]["conditions"]}
    assert found["Releasing"]["reason"] == "NodeReturning"
    assert found["Releasing"]["message"] == f"these nodes return from the cluster that they serve first: '{NODE}'"
    there.let_go()
    there.settle()
    assert there.condition(NODE, "Ready") != "True"
    # kwok does this as soon as it has the node again.
    there.world.patch(Node.resource, NODE, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    there.settle()
    assert there.marks(NODE)["tenantry.dev/slice-reserved"] == other


def test_a_node_that_is_away_is_never_replaced() -> None:
    """H05: it is not ready here, whatever the claim says of lost nodes."""
    there = HandoverWorld(claim={"replaceAfterSeconds": 10})
    there.hand_over()
    there.node("n-2")
    there.settle()
    there.assert_is_away()
    assert there.status()["nodes"] == [NODE]
    assert there.marks("n-2") == {"taints": []}


def test_a_node_that_is_back_has_the_time_to_become_ready() -> None:
    """H05: how long it was away does not count as not ready for too long."""
    there = HandoverWorld(claim={"replaceAfterSeconds": 10})
    there.hand_over()
    there.node("n-2")
    there.settle()
    there.end()
    there.settle(5)
    there.assert_is_home()
    assert there.marks(NODE)["tenantry.dev/slice"] == there.slice
    there.settle(20)
    assert there.status()["nodes"] == ["n-2"], "no kwok has made it Ready"


def test_a_handover_that_is_deleted_by_force_gives_the_node_back() -> None:
    """H05: the marks of the node are the record."""
    there = HandoverWorld()
    there.hand_over(uid=there.plane())
    there.settle()
    there.join()
    there.world.patch(NodeHandover.resource, NODE, {"metadata": {"finalizers": None}})
    there.end()
    there.settle()
    there.assert_is_home()


def test_marks_that_an_administrator_has_broken_are_reported() -> None:
    """H05: the operator does not guess what the host gets back."""
    there = HandoverWorld()
    there.hand_over()
    there.settle()
    there.annotate(NODE, "tenantry.dev/handover", "broken")
    there.end()
    there.settle()
    assert there.told("Stalled")[0] == "InvalidSpec"
    assert there.has(NodeHandover.resource, NODE)

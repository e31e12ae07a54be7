"""H04: a DedicatedCluster that sleeps without nodes, that shrinks by a choice, and that ends without a machine."""

from __future__ import annotations

import datetime as dt

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.contributednode import ContributedNode
from tenantry.api.dedicatedcluster import (
    ClusterSleep,
    DedicatedClusterSpec,
    SleepingNodes,
    SleepStage,
)
from tenantry.api.marks import DELETE_FIRST, LEAVE_NODES, REQUESTED_PHASE
from tenantry.api.model import ObjectMeta
from tenantry.api.nodehandover import HandoverStage, NodeHandoverStatus
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.controllers.dedicatedcluster import ending
from tenantry.controllers.virtualcontrolplane import ownnodes, sleep
from testkit.clusterworld import ClusterWorld

RELEASE = ClusterSleep(nodes=SleepingNodes.RELEASE)
ASLEEP, AWAKE = f"{PlanePhase.ASLEEP} 1", f"{PlanePhase.AWAKE} 2"


def plane_of(there: ClusterWorld) -> VirtualControlPlane:
    """Return the control plane, which is there."""
    assert there.plane is not None
    return there.plane


def serves(there: ClusterWorld, phase: PlanePhase) -> None:
    """Let the control plane have a phase, in which it has handled its request."""
    plane = plane_of(there)
    value = plane.metadata.annotations.get(REQUESTED_PHASE, "")
    there.plane = replace(
        plane, status=replace(plane.status, phase=phase, kubeconfig_secret="s", handled_request=value)
    )


def releasing(nodes: int = 2) -> ClusterWorld:
    """Return a cluster that is awake with nodes, and gives them back when it sleeps."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=nodes, sleep=RELEASE))
    there.settle()
    serves(there, PlanePhase.AWAKE)
    there.settle()
    assert len(there.handovers) == nodes
    return there


def test_nodes_return_before_the_control_plane_sleeps_and_are_claimed_when_it_wakes() -> None:
    """H04: they are drained inside, so that it has to be awake; the claims end, and with them the charge."""
    there = releasing()
    there.note(REQUESTED_PHASE, ASLEEP)
    there.settle(returns=False)
    assert there.found.status.sleep is SleepStage.RELEASING
    assert sleep.requested(plane_of(there)) is None
    assert set(there.claims) == {"prod-default"}
    there.settle()
    assert (there.claims, there.handovers) == ({}, {})
    assert plane_of(there).metadata.annotations[REQUESTED_PHASE] == ASLEEP
    serves(there, PlanePhase.ASLEEP)
    there.settle()
    assert there.found.status.sleep is SleepStage.RELEASED
    assert there.condition(reasons.NODES_READY)[:2] == ("True", reasons.ASLEEP)
    assert there.step() == []
    serves(there, PlanePhase.STARTING)
    there.settle()
    assert there.found.status.sleep is SleepStage.NONE
    assert len(there.handovers) == 2


def test_one_that_sleeps_by_itself_wakes_to_drain_its_nodes_and_sleeps_again() -> None:
    """H04: spec.sleep.afterIdleSeconds; a request of before is not taken for the one to sleep again."""
    there = releasing()
    there.note(REQUESTED_PHASE, ASLEEP)
    there.settle()
    serves(there, PlanePhase.ASLEEP)
    there.settle()
    serves(there, PlanePhase.AWAKE)
    there.settle()
    assert len(there.handovers) == 2
    serves(there, PlanePhase.ASLEEP)
    there.settle(returns=False)
    assert there.found.status.sleep is SleepStage.RELEASING
    serves(there, PlanePhase.AWAKE)  # for its nodes
    there.settle()
    assert there.found.status.sleep is SleepStage.SLEEPING
    assert sleep.requested(plane_of(there)) is PlanePhase.ASLEEP
    serves(there, PlanePhase.ASLEEP)
    there.settle()
    assert there.found.status.sleep is SleepStage.RELEASED


def test_a_client_that_comes_first_keeps_it_awake_with_nodes() -> None:
    """H04: the request to sleep is handled, and the next connection has woken it."""
    there = releasing()
    there.note(REQUESTED_PHASE, ASLEEP)
    there.settle()
    serves(there, PlanePhase.AWAKE)
    there.settle()
    assert there.found.status.sleep is SleepStage.NONE
    assert len(there.handovers) == 2


def test_a_request_to_wake_ends_a_release() -> None:
    """H04: nodes that have left are claimed again."""
    there = releasing()
    there.note(REQUESTED_PHASE, ASLEEP)
    there.settle(returns=False)
    there.note(REQUESTED_PHASE, AWAKE)
    there.settle()
    assert there.found.status.sleep is SleepStage.NONE
    assert len(there.handovers) == 2
    assert plane_of(there).metadata.annotations[REQUESTED_PHASE] == AWAKE


def test_without_release_a_request_goes_to_the_control_plane_at_once_and_only_once() -> None:
    """H04: owners who only read VirtualControlPlanes can let their cluster sleep."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=1))
    there.settle()
    there.note(REQUESTED_PHASE, ASLEEP)
    there.settle()
    assert len(there.handovers) == 1
    plane = plane_of(there)
    assert plane.metadata.annotations[REQUESTED_PHASE] == ASLEEP
    other = {REQUESTED_PHASE: f"{PlanePhase.AWAKE} 9"}
    there.plane = replace(plane, metadata=replace(plane.metadata, annotations=other))
    there.settle()
    assert plane_of(there).metadata.annotations == other


def test_nodes_that_a_user_names_leave_first() -> None:
    """H04: before those that are not Ready, and before the youngest."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=4))
    there.settle()
    there.handovers["n-3"] = replace(there.handovers["n-3"], status=NodeHandoverStatus())
    there.note(DELETE_FIRST, "n-1, n-0,other")
    there.change(DedicatedClusterSpec(nodes=1))
    there.step()
    there.hand_back()
    assert sorted(there.handovers) == ["n-2"]


def test_a_cluster_ends_without_a_machine_that_does_not_answer() -> None:
    """H04: until a time that the condition names; what has not returned stays with its claim."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=2))
    there.settle()
    there.handovers["n-0"] = replace(
        there.handovers["n-0"], status=NodeHandoverStatus(stage=HandoverStage.JOINING, inside="i")
    )
    there.delete()
    there.step()
    # No pod is waited for where nothing confirms its end.
    assert [each.spec.drain_seconds for _, each in sorted(there.handovers.items())] == [0, 60]
    assert there.step() == []
    until = ending.deadline(there.inputs())
    assert until - there.now == dt.timedelta(seconds=60 + ending.RETURN_SECONDS)
    told = there.condition(reasons.READY)[2]
    assert "until 2027-01-01T00:03:00Z at the latest" in told
    assert "`tenantry cluster delete prod -n acme --leave-nodes`" in told
    there.now = until
    assert [write[:2] for write in there.step()][-2:] == [
        ("patch", "VirtualControlPlane"),
        ("delete", "VirtualControlPlane"),
    ]
    assert "no other claim gets them: n-0, n-1" in there.condition(reasons.READY)[2]
    there.step()
    assert there.cluster is None
    assert sorted(there.handovers) == ["n-0", "n-1"]


def test_a_dead_machine_delays_the_end_by_seconds() -> None:
    """H04: the other node is back, and nothing is waited for that cannot happen."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=2))
    there.settle()
    there.handovers["n-0"] = replace(there.handovers["n-0"], status=NodeHandoverStatus())
    there.delete()
    there.step()
    del there.handovers["n-1"]
    assert ending.deadline(there.inputs()) - there.now == dt.timedelta(seconds=ending.DEAD_SECONDS)
    there.now += dt.timedelta(seconds=ending.DEAD_SECONDS)
    there.step()
    there.step()
    assert there.cluster is None
    assert list(there.handovers) == ["n-0"]


def test_a_user_gives_nodes_up() -> None:
    """H04: `tenantry cluster delete --leave-nodes`; the control plane does not wait for them, either."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=1))
    there.settle()
    there.note(LEAVE_NODES, "true")
    there.delete()
    there.step()
    there.step()
    assert there.cluster is None


def test_the_mark_of_a_control_plane_is_the_one_that_its_controller_reads() -> None:
    """H04."""
    assert LEAVE_NODES in vars(ownnodes).values()
    assert ObjectMeta(annotations={LEAVE_NODES: "true"}).annotations


def test_a_machine_from_outside_keeps_no_cluster_from_its_sleep() -> None:
    """H04: it is no node of the host, and stays a member of the cluster."""
    machine = ContributedNode(name="outside-abc123", addresses=("192.168.7.5",), pod_range="10.200.1.0/24")
    there = ClusterWorld(DedicatedClusterSpec(nodes=2, sleep=RELEASE, contributed=(machine,)))
    there.settle()
    serves(there, PlanePhase.AWAKE)
    there.settle()
    there.note(REQUESTED_PHASE, f"{PlanePhase.ASLEEP} 1")
    there.settle()
    assert there.found.status.sleep is SleepStage.SLEEPING
    assert there.plane is not None
    assert there.plane.metadata.annotations[REQUESTED_PHASE] == f"{PlanePhase.ASLEEP} 1"
    assert (list(there.handovers), there.claims) == (["outside-abc123"], {})

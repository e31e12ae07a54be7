"""Which nodes of a pool leave: a pool that shrinks, and one whose control plane has another version (H04)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import ClusterVersions, DedicatedClusterSpec, NodePool, PoolSettings
from tenantry.api.marks import DELETE_FIRST
from tenantry.api.model import ObjectMeta
from tenantry.api.nodehandover import (
    HandoverPlane,
    HandoverStage,
    NodeHandover,
    NodeHandoverSpec,
    NodeHandoverStatus,
)
from tenantry.controllers.dedicatedcluster import desired, leaving
from tenantry.controllers.dedicatedcluster.leaving import LeavingFacts
from testkit.clusterworld import ClusterWorld
from testkit.examples import examples

PLANE = HandoverPlane(namespace="acme", name="prod", uid="p")


def node(
    name: str,
    stage: HandoverStage = HandoverStage.JOINED,
    *,
    cordoned: bool = False,
    second: int = 0,
    inside: str = "i",
) -> NodeHandover:
    """Return a node of a cluster."""
    return NodeHandover(
        metadata=ObjectMeta(name=name, creation_timestamp=f"2027-01-01T00:00:{second:02}Z"),
        spec=NodeHandoverSpec(plane=PLANE, slice="s"),
        status=NodeHandoverStatus(stage=stage, cordoned=cordoned, inside=inside),
    )


NODES = st.builds(
    node,
    st.sampled_from(["a", "b", "c", "d", "e"]),
    st.sampled_from([HandoverStage.LEAVING, HandoverStage.JOINING, HandoverStage.JOINED]),
    cordoned=st.booleans(),
    second=st.integers(0, 3),
    inside=st.sampled_from(["", "i"]),
)


@examples(200)
@given(
    st.lists(NODES, max_size=5, unique_by=lambda each: each.metadata.name),
    st.sets(st.sampled_from("abcde"), max_size=1),
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 3)),
    st.randoms(use_true_random=False),
)
def test_the_order_of_departures_follows_each_rule_before_the_next(
    found: list[NodeHandover], first: set[str], pods: dict[str, int], shuffling: random.Random
) -> None:
    """H04: named, not Ready, cordoned, fewest pods, youngest; whatever order the nodes are listed in."""
    facts = LeavingFacts(plane=None, first=first, pods=pods)
    ordered = leaving.order(found, facts)
    assert sorted(each.metadata.name for each in ordered) == sorted(each.metadata.name for each in found)
    shuffled = list(found)
    shuffling.shuffle(shuffled)
    assert leaving.order(shuffled, facts) == ordered

    def named(each: NodeHandover) -> bool:
        return each.metadata.name in first

    def count(each: NodeHandover) -> int:
        return pods.get(each.metadata.name, 0)

    for before, after in pairwise(ordered):
        if named(before) != named(after):
            assert named(before)
        elif leaving.is_joined(before) != leaving.is_joined(after):
            assert leaving.is_joined(after)
        elif leaving.is_joined(before):
            if before.status.cordoned != after.status.cordoned:
                assert before.status.cordoned
            elif count(before) != count(after):
                assert count(before) < count(after)
            else:
                assert before.metadata.creation_timestamp >= after.metadata.creation_timestamp


def test_only_a_pool_that_chooses_has_its_pods_counted() -> None:
    """H04: the pods of nodes that stay, or that all leave, cost no request."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=3))
    there.settle()
    assert desired.choosable(there.inputs()) == []
    there.change(DedicatedClusterSpec(nodes=0))
    assert desired.choosable(there.inputs()) == []
    there.change(DedicatedClusterSpec(nodes=2))
    names = sorted(there.handovers)
    assert desired.choosable(there.inputs()) == names
    counted = replace(there.inputs(), pods={names[0]: 1, names[1]: 0, names[2]: 2})
    (gone,) = leaving.surplus(desired.pools(counted)[0], desired.facts_of(counted))
    assert gone.metadata.name == names[1]


# -- versions -------------------------------------------------------------------------------------


def upgraded(count: int, most: int = 1, *, version: str = "") -> ClusterWorld:
    """Return a cluster whose nodes have 1.35, and whose control plane has 1.36 since now."""
    settings = PoolSettings(max_unavailable=most, version=version)
    there = ClusterWorld(DedicatedClusterSpec(nodes=count, default_pool=settings))
    there.versioned("1.35.4")
    there.settle()
    assert {each.spec.version for each in there.handovers.values()} <= {"1.35"}
    there.versioned("1.36.3")
    return there


@examples(60)
@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_nodes_are_rebuilt_and_never_too_many_at_a_time(count: int, most: int, data: st.DataObject) -> None:
    """H04: whatever joins and returns first, and wherever an operator ends; a second plan is empty."""
    there = upgraded(count, most)
    for _ in range(200):
        there.step(data.draw(st.none() | st.integers(0, 1)))
        there.step()
        ready = [each for each in there.handovers.values() if leaving.is_joined(each)]
        staying = [each for each in ready if not each.metadata.deletion_timestamp]
        assert len(staying) >= count - most
        assert len(there.claims["prod-default"].status.nodes) == count, "the slice keeps its nodes meanwhile"
        going = [name for name, each in there.handovers.items() if each.metadata.deletion_timestamp]
        coming = [
            name
            for name, each in there.handovers.items()
            if not each.metadata.deletion_timestamp and not leaving.is_joined(each)
        ]
        if not going and not coming:
            break
        assert there.condition(reasons.NODES_READY)[1] in {reasons.NODES_REBUILDING, reasons.NODES_JOINING}
        choice = data.draw(st.sampled_from([*going, *coming]))
        if choice in going:
            there.hand_back(choice)
        else:
            there.join(choice)
    assert {each.spec.version for each in there.handovers.values()} == {"1.36"}
    assert len(there.handovers) == count
    assert not there.step()


def test_a_node_that_is_not_ready_is_rebuilt_beside_those_that_may_be_missing() -> None:
    """H04: it serves nothing, and may be not Ready because of its version."""
    there = upgraded(3)
    there.lose("n-2")
    there.step()
    gone = {name for name, each in there.handovers.items() if each.metadata.deletion_timestamp}
    assert gone == {"n-2"}, "one is missing already, and no other one is taken"


@pytest.mark.parametrize("why", ["soaks", "asleep", "paused"])
def test_nothing_is_rebuilt_before_the_version_is_final(why: str) -> None:
    """H04: an upgrade that can be aborted, a control plane that sleeps, and a cluster that is paused."""
    there = upgraded(2)
    there.hold(why)
    there.settle()
    assert {each.spec.version for each in there.handovers.values()} == {"1.35"}
    assert there.condition(reasons.NODES_READY)[0] == "True"


def test_a_node_with_the_version_is_not_rebuilt_for_its_record() -> None:
    """H04: a machine with one kubelet has that, whatever the control plane was when it joined."""
    there = upgraded(2)
    there.report("v1.36.3")
    assert not [each for each in there.step() if each[0] == "delete"]
    there.settle()
    assert {each.spec.version for each in there.handovers.values()} == {"1.36"}


def test_a_node_of_before_is_taken_as_it_is() -> None:
    """H04: an earlier version of Tenantry has recorded no version; a new one must not rebuild every node."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=2))
    there.settle()
    assert {each.spec.version for each in there.handovers.values()} == {""}
    there.versioned("1.36.3")
    there.settle()
    assert not [each for each in there.log if each[0] == "delete"]
    assert {each.spec.version for each in there.handovers.values()} == {"1.36"}


def test_a_pool_keeps_the_version_that_it_names() -> None:
    """H04: kubelets may be three minor versions before the API server; a later pool version takes effect with it."""
    there = upgraded(2, version="1.35")
    there.settle()
    assert {each.spec.version for each in there.handovers.values()} == {"1.35"}


@pytest.mark.parametrize(
    ("pool", "told"),
    [
        ("1.37", "must be from 1.33 to 1.36, which the control plane is to have, not 1.37"),
        ("1.32", "not 1.32"),
        ("1.33", ""),
    ],
)
def test_a_pool_names_only_versions_beside_which_its_control_plane_runs(pool: str, told: str) -> None:
    """H04: never later than the API server, and at most three minor versions before it."""
    spec = DedicatedClusterSpec(nodes=0, version="1.36", pools=(NodePool(name="old", count=1, version=pool),))
    there = ClusterWorld(spec)
    messages = [each.message for each in desired.problems(there.inputs())]
    assert messages == [] if not told else told in messages[0]
    assert not told or messages[0].startswith("spec.pools[old].version must be")


def test_named_nodes_leave_first() -> None:
    """H04: the annotation has precedence over what is not Ready."""
    there = ClusterWorld(DedicatedClusterSpec(nodes=3))
    there.settle()
    there.lose("n-0")
    there.note(DELETE_FIRST, "n-2")
    there.change(DedicatedClusterSpec(nodes=2))
    there.step()
    assert [name for name, each in there.handovers.items() if each.metadata.deletion_timestamp] == ["n-2"]


def test_the_status_has_the_versions_while_nodes_are_rebuilt() -> None:
    """H04: the oldest and the newest kubelet, and nothing that is no version of Kubernetes."""
    there = upgraded(2)
    there.report("v1.35.10")
    there.report("v1.35.9", "n-1")
    assert there.status.versions == ClusterVersions(control_plane="1.36.3", oldest_node="1.35.9", newest_node="1.35.10")
    there.report("kwok-v0.7.0", "n-0")
    assert there.status.versions.newest_node == "1.35.9"


@pytest.mark.parametrize("most", [1, 2])
def test_nodes_that_are_not_ready_are_not_all_rebuilt_at_once(most: int) -> None:
    """H04: a short failure of the network must not cost the volumes of a whole pool."""
    there = upgraded(3, most)
    for name in tuple(there.handovers):
        there.lose(name)
    for _ in range(3):
        there.step()
        assert sum(bool(each.metadata.deletion_timestamp) for each in there.handovers.values()) == most
    # What returns and joins again counts until it has joined.
    there.hand_back()
    there.step()
    assert not [each for each in there.handovers.values() if each.metadata.deletion_timestamp]

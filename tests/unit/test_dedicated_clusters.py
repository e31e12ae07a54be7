"""H04: the children of a DedicatedCluster, how it grows, shrinks and ends, and what it reports."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import (
    CLUSTER_FINALIZER,
    ClusterSleep,
    DedicatedCluster,
    DedicatedClusterSpec,
    NodePool,
    PoolSettings,
)
from tenantry.api.marks import POOL
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.nodehandover import HandoverStage, NodeHandover, NodeHandoverStatus
from tenantry.api.planecredentials import PlaneRotation
from tenantry.api.planeegress import PlaneEgress
from tenantry.api.planesnapshots import PlaneOutcome
from tenantry.api.quota import Quantity
from tenantry.api.slice import SliceClaim, SliceClaimSpec, SliceClaimStatus, SliceState, Users, slice_name
from tenantry.api.virtualcontrolplane import PlaneNodes, PlanePhase, PlaneSnapshots, VirtualControlPlane
from tenantry.controllers.dedicatedcluster import desired, status
from tenantry.controllers.dedicatedcluster.gather import owner_of
from tenantry.engine.plan import DirectWrite
from testkit.clusterworld import NAME, NAMESPACE, NOW, ClusterWorld


def spec(nodes: int = 2, *pools: NodePool) -> DedicatedClusterSpec:
    """Return a spec."""
    return DedicatedClusterSpec(nodes=nodes, pools=pools)


def settled(nodes: int = 2, *pools: NodePool, hosts: int = 8) -> ClusterWorld:
    """Return a cluster whose nodes have joined."""
    there = ClusterWorld(spec(nodes, *pools), hosts)
    there.settle()
    return there


def meta_of(*, name: str = NAME) -> ObjectMeta:
    """Return the metadata of an object that another user has created."""
    return ObjectMeta(name=name, namespace=NAMESPACE, uid="foreign", resource_version="1")


def test_a_cluster_has_a_control_plane_a_claim_for_each_pool_and_a_handover_for_each_node() -> None:
    """H04: all are controlled by the cluster, but for the handovers, which have no namespace."""
    there = settled(2, NodePool(name="gpu", count=1, labels={"disk": "ssd"}, per_node={"cpu": 8}))
    assert there.plane is not None
    assert there.plane.spec.nodes is PlaneNodes.OWN
    assert {name: (each.spec.count, each.spec.users) for name, each in there.claims.items()} == {
        "prod-default": (2, Users.CLUSTER),
        "prod-gpu": (1, Users.CLUSTER),
    }
    assert {owner_of(each) for each in (there.plane, *there.claims.values())} == {"cluster"}
    assert [each.spec.labels for each in there.handovers.values()] == [
        {POOL: "default"},
        {POOL: "default"},
        {POOL: "gpu", "disk": "ssd"},
    ]
    assert {each.spec.plane.uid for each in there.handovers.values()} == {there.plane.metadata.uid}
    assert CLUSTER_FINALIZER in there.found.metadata.finalizers


def test_the_finalizer_is_written_before_the_first_child() -> None:
    """H04: a deletion in between would otherwise leave children that nothing ends in order."""
    plan = desired.plan(ClusterWorld(spec()).inputs())
    (first,) = plan.before
    assert CLUSTER_FINALIZER in str(first.request.body)


def test_no_node_is_handed_over_before_its_slice_is_bound() -> None:
    """H04: pods of other tenants leave by the rules of slices."""
    there = ClusterWorld(spec(1))
    there.step()
    claim = there.claims["prod-default"]
    for state in SliceState:
        there.claims["prod-default"] = replace(claim, status=SliceClaimStatus(state=state, nodes=("n-0",)))
        writes = [each for each in desired.plan(there.inputs()).writes if isinstance(each, DirectWrite)]
        assert [each.request.resource.kind for each in writes] == (
            ["NodeHandover"] if state is SliceState.BOUND else []
        )


def test_a_pool_shrinks_by_its_handovers_first_and_by_its_claim_when_they_are_gone() -> None:
    """H04: the quota returns when the host has the nodes."""
    there = settled(3)
    there.change(spec(1))
    assert [verb for verb, kind, _ in there.step() if kind == "NodeHandover"] == ["delete", "delete"]
    assert there.step() == []
    assert there.claims["prod-default"].spec.count == 3
    there.hand_back()
    there.settle()
    assert there.claims["prod-default"].spec.count == 1
    assert there.claims["prod-default"].status.nodes == tuple(there.handovers)


@pytest.mark.parametrize(
    ("leaving", "stays"),
    [("n-0", ["n-1", "n-2"]), ("n-1", ["n-0", "n-2"])],
)
def test_nodes_that_have_not_joined_leave_first(leaving: str, stays: list[str]) -> None:
    """H04: then those that are not Ready, then the youngest."""
    there = settled(3)
    there.handovers[leaving] = replace(there.handovers[leaving], status=NodeHandoverStatus())
    there.change(spec(2))
    there.step()
    there.hand_back()
    assert sorted(there.handovers) == stays


def test_a_node_that_is_not_ready_leaves_before_one_that_is() -> None:
    """H04: and without any difference, the youngest leaves."""
    there = settled(3)
    lost = NodeHandoverStatus(stage=HandoverStage.JOINING, inside="uid")
    there.handovers["n-0"] = replace(there.handovers["n-0"], status=lost)
    there.change(spec(2))
    there.step()
    there.hand_back()
    assert sorted(there.handovers) == ["n-1", "n-2"]
    there.change(spec(1))
    there.step()
    there.hand_back()
    assert sorted(there.handovers) == ["n-1"]


def test_a_deleted_cluster_ends_in_order_and_reports_what_it_waits_for() -> None:
    """H04: handovers, claims, the control plane, and then the cluster itself."""
    there = settled(2)
    there.delete()
    assert there.step() == [("delete", "NodeHandover", "n-0"), ("delete", "NodeHandover", "n-1")]
    assert there.step() == []
    ready = there.condition(reasons.READY)
    assert ready[:2] == ("False", reasons.NODES_LEAVING)
    assert "'n-0'" in ready[2]
    there.hand_back()
    assert there.step() == [("delete", "SliceClaim", "prod-default")]
    assert "VirtualControlPlane 'acme/prod' ends" in there.condition(reasons.READY)[2]
    assert there.step() == [("delete", "VirtualControlPlane", "prod")]
    assert [verb for verb, _, _ in there.step()] == ["patch"]
    assert there.cluster is None


def test_a_paused_cluster_changes_nothing_and_ends_all_the_same() -> None:
    """H04: spec.paused."""
    there = settled(2)
    there.change(DedicatedClusterSpec(nodes=5, paused=True))
    assert there.step() == []
    there.delete()
    there.settle()
    assert there.cluster is None


def test_children_that_are_edited_by_hand_are_brought_back() -> None:
    """H04: what the cluster does not decide stays, such as the egress that an administrator has set."""
    there = settled(1)
    assert there.plane is not None
    edited = replace(
        there.plane.spec,
        replicas=3,
        egress=PlaneEgress(allowed_hosts=("example.com",)),
        snapshots=PlaneSnapshots(keep=9),
    )
    there.plane = replace(there.plane, spec=edited)
    claim = there.claims["prod-default"]
    there.claims["prod-default"] = replace(
        claim,
        metadata=replace(claim.metadata, labels={}),
        spec=replace(claim.spec, users=Users.EVERYBODY, replace_after_seconds=60),
    )
    there.settle()
    assert (there.plane.spec.replicas, there.plane.spec.snapshots.keep) == (1, 5)
    assert there.plane.spec.egress.allowed_hosts == ("example.com",)
    repaired = there.claims["prod-default"]
    assert (repaired.spec.users, repaired.spec.replace_after_seconds) == (Users.CLUSTER, 0)
    assert repaired.metadata.labels[POOL] == "default"


def test_requests_of_the_cluster_are_brought_to_the_control_plane_once() -> None:
    """H04: an old restore would otherwise run again after each request that an administrator writes there."""
    there = settled(1)
    asked = PlaneSnapshots(schedule="30 2 * * *", keep=3, request="1", restore="a.snapshot@1")
    there.change(replace(spec(1), snapshots=asked, rotation=PlaneRotation(request="Users@1")))
    there.settle()
    assert there.plane is not None
    assert (there.plane.spec.snapshots, there.plane.spec.rotation.request) == (asked, "Users@1")
    there.plane = replace(
        there.plane,
        spec=replace(
            there.plane.spec,
            snapshots=replace(asked, keep=9, request="2", restore="b.snapshot@2"),
            rotation=PlaneRotation(request="All@2"),
        ),
    )
    there.settle()
    assert there.plane.spec.snapshots == replace(asked, request="2", restore="b.snapshot@2")
    assert there.plane.spec.rotation.request == "All@2"


@pytest.mark.parametrize(
    ("wanted", "kept", "running", "expected"),
    [
        ("1.36", "1.35", "1.35.4", "1.36"),
        ("1.35", "1.36", "1.36.3", "1.36"),
        ("1.35", "", "1.36.3", ""),
        # What a restore that was refused has left.
        ("1.35", "1.35", "1.36.3", "1.36"),
        ("", "1.35", "1.36.3", "1.36"),
        ("", "1.35", "1.35.4", "1.35"),
        # An upgrade that has not begun can be taken back.
        ("1.35", "1.36", "1.35.4", "1.35"),
        ("1.36", "1.35", "", "1.36"),
    ],
)
def test_the_version_of_a_control_plane_never_goes_back(wanted: str, kept: str, running: str, expected: str) -> None:
    """H04: only a restore goes back; without spec.version, that of the control plane stays."""
    there = settled(1)
    assert there.plane is not None
    there.plane = replace(
        there.plane,
        spec=replace(there.plane.spec, version=kept),
        status=replace(there.plane.status, version=running),
    )
    there.change(replace(spec(1), version=wanted))
    there.settle()
    assert there.plane.spec.version == expected


def test_a_restore_goes_back_in_one_change_with_the_version() -> None:
    """H04: and when it is refused, the control plane has its version again."""
    rules = [each for each in DedicatedCluster.validations if each.field == "spec.version"]
    assert any("`tenantry cluster restore --version`" in each.message for each in rules)
    there = settled(1)
    assert there.plane is not None
    there.plane = replace(there.plane, status=replace(there.plane.status, version="1.36.3"))
    there.change(replace(spec(1), version="1.35", snapshots=PlaneSnapshots(restore="a.snapshot@1")))
    there.settle()
    assert (there.plane.spec.version, there.plane.spec.snapshots.restore) == ("1.35", "a.snapshot@1")
    refused = replace(there.plane.status, last_restore=PlaneOutcome(requested="a.snapshot@1", message="no"))
    there.plane = replace(there.plane, status=refused)
    there.settle()
    assert there.plane.spec.version == "1.36"


def test_a_control_plane_of_another_owner_is_left_alone_and_named() -> None:
    """H04: its nodes would get a control plane that the cluster does not have."""
    there = ClusterWorld(spec(1))
    there.plane = VirtualControlPlane(metadata=meta_of())
    there.settle()
    assert there.handovers == {}
    assert there.plane.spec.nodes is PlaneNodes.USED
    told = there.condition(reasons.STALLED)
    assert told[:2] == ("True", reasons.OBJECT_EXISTS)
    assert "VirtualControlPlane 'acme/prod'" in told[2]
    there.delete()
    there.settle()
    assert there.plane is not None


def test_a_claim_of_another_owner_is_left_alone_and_named() -> None:
    """H04: the other pools go on."""
    there = ClusterWorld(spec(1, NodePool(name="gpu", count=1)))
    there.claims["prod-gpu"] = SliceClaim(metadata=meta_of(name="prod-gpu"), spec=desired_claim())
    there.settle()
    assert [each.spec.labels[POOL] for each in there.handovers.values()] == ["default"]
    assert "SliceClaim 'acme/prod-gpu'" in there.condition(reasons.STALLED)[2]
    there.delete()
    there.settle()
    assert "prod-gpu" in there.claims


def desired_claim() -> SliceClaimSpec:
    """Return the spec of a claim of another user."""
    return SliceClaimSpec(count=1)


def test_nodes_of_an_earlier_control_plane_return_before_they_serve_the_new_one() -> None:
    """H04: a VirtualControlPlane that was deleted by hand is created again, with another uid."""
    there = settled(2)
    there.plane = None
    there.settle(joins=False, returns=False)
    assert all(each.metadata.deletion_timestamp for each in there.handovers.values())
    there.settle()
    assert there.plane is not None
    assert {each.spec.plane.uid for each in there.handovers.values()} == {there.plane.metadata.uid}


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "tenantry.dev/pool"])
def test_labels_that_have_a_meaning_are_refused(key: str) -> None:
    """H04: a pool may not pose as another node."""
    there = ClusterWorld(replace(spec(), default_pool=PoolSettings(labels={key: "a"})))
    there.settle()
    assert (there.plane, there.claims) == (None, {})
    assert there.condition(reasons.STALLED)[1:] == (
        reasons.INVALID_SPEC,
        (
            f"spec.defaultPool.labels must not have {key!r}: keys of kubernetes.io and k8s.io and tenantry.dev have a"
            " meaning of their own"
        ),
    )


def serving() -> Condition:
    """Return the condition of a control plane that serves its clients."""
    return Condition(
        type=reasons.READY,
        status=ConditionStatus.TRUE,
        reason=reasons.ESTABLISHED,
        message="",
        last_transition_time=NOW,
    )


def test_a_cluster_is_not_ready_until_its_spec_is_carried_out() -> None:
    """H04: neither before the control plane has the spec, nor before its own controller has seen that."""
    there = settled(1)
    assert there.plane is not None
    usable = replace(there.plane.status, conditions=(serving(),), kubeconfig_secret="s", observed_generation=1)
    there.plane = replace(there.plane, metadata=replace(there.plane.metadata, generation=1), status=usable)
    assert there.condition(reasons.READY)[0] == "True"
    there.change(replace(spec(1), sleep=ClusterSleep(after_idle_seconds=60)))
    assert there.condition(reasons.CONTROL_PLANE_READY) == (
        "False",
        reasons.PROGRESSING,
        "VirtualControlPlane 'acme/prod': it does not have the spec of the cluster yet",
    )
    there.settle()
    assert there.condition(reasons.READY)[0] == "True"
    there.plane = replace(there.plane, metadata=replace(there.plane.metadata, generation=2))
    assert there.condition(reasons.READY)[:2] == ("False", reasons.PROGRESSING)
    assert there.condition(reasons.STALLED) == ("", "", "")
    there.plane = replace(there.plane, status=replace(usable, phase=PlanePhase.ASLEEP))
    assert there.condition(reasons.READY)[0] == "True"


def test_a_cluster_whose_tenant_is_suspended_is_not_ready() -> None:
    """H04: its endpoint refuses users; no person has to do anything about it."""
    there = settled(1)
    assert there.plane is not None
    closed = replace(serving(), reason=reasons.TENANT_SUSPENDED)
    usable = replace(there.plane.status, conditions=(closed,), kubeconfig_secret="s")
    there.plane = replace(there.plane, status=usable)
    assert there.condition(reasons.READY)[:2] == ("False", reasons.TENANT_SUSPENDED)
    assert there.condition(reasons.CONTROL_PLANE_READY)[:2] == ("False", reasons.TENANT_SUSPENDED)
    assert there.condition(reasons.STALLED) == ("", "", "")


def test_a_paused_cluster_with_another_spec_is_not_ready() -> None:
    """H04: the message names the field that keeps the spec from being carried out."""
    there = settled(1)
    assert there.plane is not None
    usable = replace(there.plane.status, conditions=(serving(),), kubeconfig_secret="s")
    there.plane = replace(there.plane, status=usable)
    there.change(replace(spec(1), version="1.36", paused=True))
    assert there.condition(reasons.READY)[:2] == ("False", reasons.PROGRESSING)
    assert there.condition(reasons.READY)[2].endswith("spec.paused of the cluster is true")


def test_a_paused_cluster_says_so_whether_it_is_complete_or_not() -> None:
    """H04: a pool that is to grow meanwhile waits for spec.paused, and not for nodes."""
    there = settled(1)
    assert there.plane is not None
    usable = replace(there.plane.status, conditions=(serving(),), kubeconfig_secret="s")
    there.plane = replace(there.plane, status=usable)
    there.change(replace(spec(1), paused=True))
    status, reason, message = there.condition(reasons.READY)
    assert (status, reason) == ("True", reasons.ESTABLISHED)
    assert message.endswith("spec.paused is true: the operator changes nothing")
    there.change(replace(spec(2), paused=True))
    status, reason, message = there.condition(reasons.NODES_READY)
    assert (status, reason) == ("False", reasons.PAUSED)
    assert message.startswith("spec.paused is true: the operator changes neither claims nor nodes; pool 'default': 1")


def test_a_cluster_is_ready_when_its_control_plane_and_all_nodes_are() -> None:
    """H04: conditions follow the order in which it comes up."""
    there = ClusterWorld(spec(2))
    there.settle(joins=False)
    assert there.condition(reasons.CONTROL_PLANE_READY)[:2] == ("False", reasons.PROGRESSING)
    assert there.condition(reasons.NODES_READY)[:2] == ("False", reasons.NODES_JOINING)
    there.join("n-0")
    assert "1 of 2 nodes are Ready; node 'n-1' is Leaving" in there.condition(reasons.NODES_READY)[2]
    there.join()
    assert there.condition(reasons.NODES_READY)[0] == "True"
    assert there.condition(reasons.READY)[0] == "False"
    assert there.plane is not None
    there.plane = replace(
        there.plane,
        status=replace(
            there.plane.status, conditions=(serving(),), kubeconfig_secret="prod-kubeconfig", version="1.36.3"
        ),
    )
    assert there.condition(reasons.READY)[:2] == ("True", reasons.ESTABLISHED)
    told = status.compute(there.inputs(), None, NOW)
    assert (told.version, told.kubeconfig_secret, told.nodes, told.ready_nodes) == (
        "1.36.3",
        "prod-kubeconfig",
        2,
        "2/2",
    )


@pytest.mark.parametrize(("reason", "stalls"), [(reasons.REAL_NODE, True), (reasons.NODE_NOT_IN_SLICE, False)])
def test_a_node_that_cannot_join_stalls_the_cluster(reason: str, stalls: bool) -> None:  # noqa: FBT001 - a parameter
    """H04: but not while pods of others still leave it."""
    there = ClusterWorld(spec(1))
    there.settle(joins=False)
    stalled = Condition(
        type=reasons.STALLED, status=ConditionStatus.TRUE, reason=reason, message="why", last_transition_time=NOW
    )
    there.handovers["n-0"] = replace(there.handovers["n-0"], status=NodeHandoverStatus(conditions=(stalled,)))
    told = there.condition(reasons.STALLED)
    assert told == (("True", reason, "pool 'default': node 'n-0': why") if stalls else ("", "", ""))


def test_a_node_that_has_joined_and_is_stalled_stalls_the_cluster() -> None:
    """H04: the host has lost its Node, and a person must act."""
    there = settled(1)
    stalled = Condition(
        type=reasons.STALLED,
        status=ConditionStatus.TRUE,
        reason=reasons.NODE_MISSING,
        message="why",
        last_transition_time=NOW,
    )
    joined = there.handovers["n-0"]
    there.handovers["n-0"] = replace(joined, status=replace(joined.status, conditions=(stalled,)))
    assert there.condition(reasons.NODES_READY)[:2] == ("False", reasons.NODE_MISSING)
    assert there.condition(reasons.STALLED) == ("True", reasons.NODE_MISSING, "pool 'default': node 'n-0': why")


def test_a_claim_requests_the_nodes_that_leave_and_those_that_join() -> None:
    """H04: one that requests fewer would give up a node that serves the cluster."""
    there = settled(1)
    there.change(spec(0))
    there.step()
    there.change(spec(2))
    there.step()
    there.change(spec(1))
    there.step()
    check(there)
    assert len(there.handovers) == 2


def test_a_pool_without_nodes_says_what_its_claim_says() -> None:
    """H04: as for a quota that does not cover it."""
    there = ClusterWorld(spec(3), hosts=2)
    there.step()
    claim = there.claims["prod-default"]
    short = Condition(
        type=reasons.PENDING,
        status=ConditionStatus.TRUE,
        reason=reasons.NODES_INSUFFICIENT,
        message="3 nodes asked for, 2 can be had",
        last_transition_time=NOW,
    )
    there.claims["prod-default"] = replace(claim, status=replace(claim.status, conditions=(short,)))
    status, reason, message = there.condition(reasons.NODES_READY)
    assert (status, reason) == ("False", reasons.NODES_INSUFFICIENT)
    assert message.startswith(
        "pool 'default': 0 of 3 nodes are Ready; SliceClaim 'acme/prod-default': 3 nodes asked for, 2 can be had; lower"
    )


# -- properties -----------------------------------------------------------------------------------

POOLS = st.dictionaries(st.sampled_from(["a", "b", "gpu"]), st.integers(0, 3), max_size=2)


def with_pools(nodes: int, pools: dict[str, int]) -> DedicatedClusterSpec:
    """Return a spec with pools of so many nodes."""
    return spec(nodes, *(NodePool(name=name, count=count) for name, count in pools.items()))


SPECS = st.builds(with_pools, st.integers(0, 4), POOLS)


@given(specs=st.lists(SPECS, min_size=1, max_size=4), seed=st.randoms(use_true_random=False))
def test_from_any_changes_it_comes_to_rest_and_the_next_plan_is_empty(
    specs: list[DedicatedClusterSpec], seed: object
) -> None:
    """H04: also if each change comes before the one before it is carried out."""
    there = ClusterWorld(specs[0], hosts=16)
    for each in specs:
        there.change(each)
        for _ in range(seed.randint(0, 4)):  # type: ignore[attr-defined] # Hypothesis' own Random
            there.step()
            check(there)
            if seed.random() < 0.5:  # type: ignore[attr-defined] # as above
                there.join()
            if seed.random() < 0.3:  # type: ignore[attr-defined] # as above
                there.hand_back()
    there.settle()
    assert desired.plan(there.inputs()).is_empty
    wanted = {name: pool.count for name, pool in desired.settings_of(there.found).items()}
    assert {name: count for name, count in pool_sizes(there.handovers.values()).items() if count} == {
        name: count for name, count in wanted.items() if count
    }
    there.delete()
    there.settle()
    assert (there.cluster, there.plane, there.claims, there.handovers) == (None, None, {}, {})


def check(there: ClusterWorld) -> None:
    """Check that no claim requests fewer nodes than serve the cluster, or are on their way."""
    for claim in there.claims.values():
        name = slice_name(claim.metadata.name, claim.metadata.uid)
        serving = [each for each in there.handovers.values() if each.spec.slice == name]
        assert claim.spec.count >= len(serving)


def pool_sizes(handovers: Iterable[NodeHandover]) -> dict[str, Quantity]:
    """Return how many nodes each pool has in the cluster."""
    found: dict[str, Quantity] = {}
    for each in handovers:
        name = each.spec.labels[POOL]
        found[name] = int(found.get(name, 0)) + 1
    return found

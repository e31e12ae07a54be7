"""Nodes that join a control plane, and leave it (H04): pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import Conflict, NotFound, TooManyRequests
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node, NodeCondition, NodeInfo, NodeSpec, NodeStatus
from tenantry.api.nodehandover import (
    PENDING,
    HandoverPlane,
    HandoverStage,
    MachineKind,
    NodeHandover,
    NodeHandoverSpec,
    NodeHandoverStatus,
    NodeTaint,
    TaintEffect,
)
from tenantry.controllers.joining.desired import HANDOVER, JoinInputs, decide, is_moving, made, orphaned, version_of
from tenantry.controllers.slices.pods import PodFacts
from tenantry.engine.request import Verb
from tenantry.hosting import simulation

NOW = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
SPEC = NodeHandoverSpec(
    plane=HandoverPlane(namespace="acme", name="prod", uid="p-1"),
    slice="prod-default-1",
    labels={"pool": "blue"},
    taints=(NodeTaint(key="only", value="blue", effect=TaintEffect.NO_SCHEDULE),),
    drain_seconds=60,
)
HANDED = NodeHandover(
    metadata=ObjectMeta(name="blue-1", uid="h-1"),
    spec=SPEC,
    status=NodeHandoverStatus(stage=HandoverStage.JOINING, kind=MachineKind.SIMULATED, node="n-1"),
)
BELOW = Node(
    metadata=ObjectMeta(name="blue-1", uid="n-1", labels={"kubernetes.io/os": "linux", "tenantry.dev/slice": "s"}),
    status=NodeStatus(capacity={"cpu": "8"}, allocatable={"cpu": "7"}),
)
MARKS = {simulation.MARK: simulation.MARKED, HANDOVER: "h-1"}
READY = NodeStatus(conditions=(NodeCondition(type="Ready", status="True"),))
POOL = {"pool": "blue", simulation.MARK: simulation.MARKED}
INSIDE = Node(metadata=ObjectMeta(name="blue-1", uid="i-1", labels=POOL, annotations=MARKS), status=READY)
POD = PodFacts(
    namespace="default",
    name="web",
    uid="w-1",
    version=1,
    node="blue-1",
    slice="",
    controller="",
    stays=False,
    deleting=False,
)


def inputs(
    handover: NodeHandover = HANDED,
    *,
    below: Node | None = BELOW,
    inside: Node | None = None,
    pods: Sequence[PodFacts] = (),
) -> JoinInputs:
    """Return the inputs about one node that joins."""
    return JoinInputs(handover=handover, below=below, inside=inside, pods=pods, now=NOW)


def returning(at: dt.datetime = NOW, inside: str = "i-1") -> NodeHandover:
    """Return a NodeHandover that is deleted."""
    meta = replace(HANDED.metadata, deletion_timestamp=at.isoformat().replace("+00:00", "Z"))
    return replace(HANDED, metadata=meta, status=replace(HANDED.status, inside=inside))


def test_a_node_joins_with_the_labels_of_its_pool_and_none_of_the_hosts() -> None:
    # Before there is a Node, a return waits for it.
    first = decide(inputs())
    assert (first.writes, first.status.inside, first.status.stage) == ((), PENDING, HandoverStage.JOINING)
    found = decide(inputs(replace(HANDED, status=first.status)))
    (write,) = found.writes
    assert write.request.verb is Verb.CREATE
    assert found.status == first.status
    body: Any = write.request.body
    body = msgspec.to_builtins(body)
    assert body["metadata"]["labels"] == {"kubernetes.io/os": "linux", **POOL}
    assert body["metadata"]["annotations"] == MARKS
    assert body["spec"]["taints"] == [{"key": "only", "value": "blue", "effect": "NoSchedule"}]
    assert body["status"] == {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}}


@pytest.mark.parametrize("stage", [HandoverStage.LEAVING, HandoverStage.RETURNING, HandoverStage.BACK])
def test_a_node_that_the_host_still_has_does_not_join(stage: HandoverStage) -> None:
    status = replace(HANDED.status, stage=stage)
    assert decide(inputs(replace(HANDED, status=status))).writes == ()


def test_only_what_is_simulated_is_made() -> None:
    real = replace(HANDED, status=replace(HANDED.status, kind=MachineKind.REAL))
    assert decide(inputs(real)).writes == ()
    assert decide(inputs(below=None)).writes == ()


def test_it_has_joined_when_it_is_ready_inside() -> None:
    found = decide(inputs(inside=INSIDE))
    assert (found.writes, found.status.stage, found.status.inside) == ((), HandoverStage.JOINED, "i-1")
    # A second decision about what the first one has written does nothing.
    settled = replace(HANDED, status=found.status)
    assert decide(inputs(settled, inside=INSIDE)) == found
    # It is not ready any more.
    again = decide(inputs(settled, inside=replace(INSIDE, status=NodeStatus())))
    assert again.status.stage is HandoverStage.JOINING
    # Users inside have deleted it.
    gone = decide(inputs(settled))
    assert (gone.writes, gone.status.inside) == ((), PENDING)


def test_users_inside_do_not_keep_another_node_or_other_labels() -> None:
    foreign = replace(INSIDE, metadata=replace(INSIDE.metadata, annotations={}))
    found = decide(inputs(inside=foreign))
    assert [each.request.verb for each in found.writes] == [Verb.DELETE]
    assert found.status.stage is HandoverStage.JOINING
    edited = replace(INSIDE, metadata=replace(INSIDE.metadata, labels={"pool": "red", "own": "1"}))
    (write,) = decide(inputs(inside=edited)).writes
    body: Any = write.request.body
    assert body["metadata"]["labels"] == POOL
    # Without its annotation, the Node that was created is still known.
    joined = replace(HANDED, status=replace(HANDED.status, inside="i-1"))
    unmarked = replace(INSIDE, metadata=replace(INSIDE.metadata, annotations={}))
    (write,) = decide(inputs(joined, inside=unmarked)).writes
    body = write.request.body
    assert body["metadata"]["annotations"] == MARKS
    assert decide(inputs(returning(), inside=unmarked, pods=[POD])).status.inside == "i-1"


def test_an_earlier_node_with_a_finalizer_is_named() -> None:
    meta = replace(INSIDE.metadata, annotations={}, deletion_timestamp="2026-11-28T11:00:00Z", finalizers=("a/b",))
    found = decide(inputs(inside=replace(INSIDE, metadata=meta)))
    assert found.writes == ()
    assert found.obstacle is not None
    assert "'a/b'" in found.obstacle.message


def test_pods_are_evicted_before_a_node_leaves_and_deleted_when_their_time_is_over() -> None:
    found = decide(inputs(returning(), inside=INSIDE, pods=[POD]))
    cordon, eviction = found.writes
    assert cordon.request.verb is Verb.PATCH
    assert eviction.request.subresource == "eviction"
    assert TooManyRequests in eviction.ignores
    assert found.status.inside == "i-1"
    assert found.again_seconds is not None
    closed = replace(INSIDE, spec=NodeSpec(unschedulable=True))
    late = decide(inputs(returning(NOW - dt.timedelta(seconds=61)), inside=closed, pods=[POD]))
    (deletion,) = late.writes
    assert (deletion.request.verb, deletion.request.name) == (Verb.DELETE, "web")
    # A pod that ends is not asked again.
    ending = decide(inputs(returning(), inside=closed, pods=[replace(POD, deleting=True)]))
    assert ending.writes == ()


def test_a_node_without_pods_is_deleted_and_then_the_host_has_it() -> None:
    (deletion,) = decide(inputs(returning(), inside=INSIDE)).writes
    assert deletion.request.verb is Verb.DELETE
    assert set(deletion.ignores) == {NotFound, Conflict}
    assert decide(inputs(returning())).status.inside == ""
    # A Node that users inside have made under its name stays theirs, and keeps nothing.
    foreign = replace(INSIDE, metadata=replace(INSIDE.metadata, uid="other", annotations={}))
    found = decide(inputs(returning(), inside=foreign))
    assert (found.writes, found.status.inside) == ((), "")


def test_a_node_whose_handover_is_gone_is_deleted_and_a_users_own_stays() -> None:
    """After a sleep, during which the host has taken the node back."""
    assert [each.request.verb for each in orphaned(INSIDE)] == [Verb.DELETE]
    assert orphaned(replace(INSIDE, metadata=replace(INSIDE.metadata, annotations={}))) == ()


@pytest.mark.parametrize(
    ("found", "moves"),
    [
        (HANDED, True),
        (replace(HANDED, status=replace(HANDED.status, stage=HandoverStage.JOINED, inside="i-1")), False),
        (replace(HANDED, status=replace(HANDED.status, stage=HandoverStage.LEAVING)), False),
        (returning(), True),
        (returning(inside=""), False),
    ],
    ids=["joining", "joined", "leaving", "returning", "returned"],
)
def test_a_control_plane_does_not_sleep_while_a_node_waits_for_it(found: NodeHandover, *, moves: bool) -> None:
    assert is_moving(found) is moves


@pytest.mark.parametrize(
    ("wanted", "running", "told"),
    [("1.36", "1.36.3", "1.36.3"), ("1.35", "1.36.3", "1.35.0"), ("", "1.36.3", "1.36.3"), ("", "", "")],
)
def test_a_simulated_kubelet_reports_the_version_of_its_pool(wanted: str, running: str, told: str) -> None:
    """H04: Cluster API, the plan of an upgrade and `status.versions` compare it with that of the control plane."""
    found = replace(HANDED, spec=replace(SPEC, version=wanted))
    assert version_of(found, running) == told
    status = made(found, BELOW, told)["status"]
    assert status.get("nodeInfo", {}).get("kubeletVersion", "") == (f"v{told}" if told else "")


def test_what_a_node_inside_reports_is_in_the_status() -> None:
    """H04: its version and whether users have cordoned it decide which node leaves first."""
    reported = replace(READY, node_info=NodeInfo(kubelet_version="v1.36.3"))
    status = decide(inputs(inside=replace(INSIDE, status=reported, spec=NodeSpec(unschedulable=True)))).status
    assert (status.kubelet, status.cordoned) == ("v1.36.3", True)

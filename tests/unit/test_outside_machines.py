"""Machines from outside that serve a DedicatedCluster: entries, stages, and tokens (H04, X03)."""

from __future__ import annotations

import datetime as dt

import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.contributednode import ContributedMachine, ContributedNode
from tenantry.api.dedicatedcluster import DedicatedClusterSpec
from tenantry.api.model import Condition, ConditionStatus, ObjectMeta
from tenantry.api.node import Node
from tenantry.api.nodehandover import (
    FINALIZER,
    PENDING,
    HandoverPlane,
    HandoverStage,
    JoinSecret,
    MachineKind,
    NodeHandover,
    NodeHandoverSpec,
    NodeHandoverStatus,
    NodeJoin,
)
from tenantry.api.planenetwork import PlaneNetwork
from tenantry.controllers.dedicatedcluster import contributed, status
from tenantry.controllers.joining import machines, tokens
from tenantry.controllers.joining.desired import is_moving, orphaned
from tenantry.controllers.joining.machines import JoinMachineInputs
from tenantry.controllers.joining.tokens import LIFE, JoinToken
from tenantry.controllers.nodehandover import desired
from tenantry.controllers.nodehandover import status as handoverstatus
from tenantry.controllers.nodehandover.gather import HandoverInputs
from tenantry.engine.request import Verb
from tenantry.hosting.noderuntime import NodeEndpoint
from testkit.clusterworld import NOW, ClusterWorld

NAME = "outside-abc123"
CLOCK = dt.datetime.fromisoformat(NOW)
ENTRY = ContributedNode(name=NAME, addresses=("192.168.7.5",), pod_range="10.200.1.0/24")
OTHER = ContributedNode(name="outside-other1", addresses=("192.168.7.6",), pod_range="10.200.2.0/24")
PLANE = HandoverPlane(namespace="acme", name="prod", uid="p-1")
TOKEN = JoinToken(id="tok111", secret="0123456789abcdef", expires=CLOCK + LIFE)


def world(*entries: ContributedNode, nodes: int = 1) -> ClusterWorld:
    """Return a cluster with machines from outside."""
    return ClusterWorld(DedicatedClusterSpec(nodes=nodes, contributed=entries))


def machine(stage: HandoverStage = HandoverStage.LEAVING, *, deleted: str = "", inside: str = "") -> NodeHandover:
    """Return the NodeHandover of the machine."""
    return NodeHandover(
        metadata=ObjectMeta(name=NAME, uid="h-1", finalizers=(FINALIZER,), deletion_timestamp=deleted, generation=1),
        spec=NodeHandoverSpec(
            plane=PLANE, slice="", contributed=ContributedMachine(addresses=ENTRY.addresses, pod_range=ENTRY.pod_range)
        ),
        status=NodeHandoverStatus(stage=stage, kind=MachineKind.CONTRIBUTED, inside=inside),
    )


def with_condition(found: NodeHandover, kind: str, reason: str) -> NodeHandover:
    """Return a NodeHandover with one condition that is true; without it for the reason ""."""
    told = Condition(type=kind, status=ConditionStatus.TRUE, reason=reason, message="why", last_transition_time=NOW)
    others = tuple(each for each in found.status.conditions if each.type != kind)
    return replace(found, status=replace(found.status, conditions=(*others, told) if reason else others))


def test_each_entry_has_a_handover_and_counts_for_no_pool_and_no_claim() -> None:
    """Machines of others are free of charge, and the cluster is Ready without them."""
    there = world(ENTRY, OTHER)
    there.settle()
    made = {name: each for name, each in there.handovers.items() if contributed.is_outside(each)}
    assert sorted(made) == [NAME, "outside-other1"]
    assert made[NAME].spec.slice == ""
    assert made[NAME].spec.contributed == ContributedMachine(addresses=("192.168.7.5",), pod_range="10.200.1.0/24")
    assert [each.spec.count for each in there.claims.values()] == [1]
    told = status.compute(there.inputs(), None, NOW)
    assert told.ready_nodes == "1/1"
    assert [(each.name, each.stage) for each in told.contributed] == [(NAME, "Joined"), ("outside-other1", "Joined")]
    there.handovers[NAME] = with_condition(there.handovers[NAME], reasons.JOIN_REFUSED, reasons.NO_NODE_ENDPOINT)
    (refused, _) = status.compute(there.inputs(), None, NOW).contributed
    assert (refused.reason, refused.message) == (reasons.NO_NODE_ENDPOINT, "why")
    there.handovers[NAME] = with_condition(there.handovers[NAME], reasons.JOIN_REFUSED, "")
    assert there.condition(reasons.NODES_READY)[0] == "True"
    assert there.step() == [], "a second plan is empty"


def test_an_entry_that_goes_ends_and_one_that_changes_joins_anew() -> None:
    there = world(ENTRY, OTHER)
    there.settle()
    before = there.handovers[OTHER.name].metadata.uid
    there.change(DedicatedClusterSpec(nodes=1, contributed=(replace(OTHER, pod_range="10.200.9.0/24"),)))
    there.settle()
    found = {name: each for name, each in there.handovers.items() if contributed.is_outside(each)}
    assert list(found) == [OTHER.name]
    assert found[OTHER.name].metadata.uid != before
    wanted = ContributedMachine(addresses=OTHER.addresses, pod_range="10.200.9.0/24")
    assert found[OTHER.name].spec.contributed == wanted


def test_a_cluster_that_ends_ends_its_machines() -> None:
    there = world(ENTRY, nodes=0)
    there.settle()
    there.delete()
    there.settle()
    assert there.cluster is None
    assert not there.handovers


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (replace(ENTRY, addresses=("127.0.0.1",)), "must not have 127.0.0.1"),
        (replace(ENTRY, addresses=("169.254.169.254",)), "must not have 169.254.169.254"),
        (replace(ENTRY, addresses=("1.2.3",)), "must be IP addresses"),
        (replace(ENTRY, pod_range="10.0.0.0/8"), "at most a /16"),
        (replace(ENTRY, pod_range="10.200.1.7/24"), "without host bits"),
        (replace(ENTRY, pod_range="127.0.0.0/16"), "loopback"),
        (replace(ENTRY, pod_range="192.168.7.0/24"), "the node's own address"),
        (replace(ENTRY, addresses=OTHER.addresses), "'outside-other1' of the cluster has it"),
        (replace(ENTRY, pod_range="10.200.0.0/16"), "'outside-other1' of the cluster has it"),
        (replace(ENTRY, addresses=("10.200.2.9",)), "must not have 10.200.2.9: node 'outside-other1'"),
        (replace(ENTRY, pod_range="192.168.6.0/23"), "must not have"),
    ],
)
def test_a_machine_shares_its_addresses_with_no_other_one(entry: ContributedNode, told: str) -> None:
    """An address leads to one machine; what is wrong keeps back no other entry."""
    there = world(OTHER, entry)
    there.settle()
    assert NAME not in there.handovers
    assert OTHER.name in there.handovers
    shown = {each.name: each for each in status.compute(there.inputs(), None, NOW).contributed}
    assert shown[NAME].message.startswith(f"spec.contributed[{NAME}]")
    assert told in shown[NAME].message
    assert (shown[NAME].token, shown[NAME].stage, shown[NAME].reason) == ("", "", reasons.INVALID_SPEC)


def test_a_machine_has_no_address_of_the_endpoint_of_its_cluster() -> None:
    """H04: users trust certificates for it from the authority of the cluster."""
    there = world(ENTRY, OTHER)
    there.settle()
    plane = there.plane
    assert plane is not None
    there.plane = replace(plane, status=replace(plane.status, endpoint="https://192.168.7.5:6443"))
    assert "must not have 192.168.7.5, at which users reach" in contributed.problem(there.inputs(), ENTRY)
    assert not contributed.problem(there.inputs(), OTHER)
    inside = replace(there.inputs().found.spec, network=PlaneNetwork(service_range="192.168.7.0/24"))
    there.change(inside)
    assert "spec.network.serviceRange, 192.168.7.0/24, has it" in contributed.problem(there.inputs(), OTHER)


def test_an_entry_before_another_one_does_not_take_its_addresses() -> None:
    there = world(OTHER)
    there.settle()
    there.change(DedicatedClusterSpec(nodes=1, contributed=(replace(ENTRY, addresses=OTHER.addresses), OTHER)))
    there.settle()
    assert NAME not in there.handovers


def test_a_name_of_another_cluster_is_refused() -> None:
    there = world(ENTRY)
    inputs = replace(there.inputs(), taken_outside=frozenset({NAME}))
    assert "a machine of another cluster has it" in contributed.problem(inputs, ENTRY)


# -- the host -------------------------------------------------------------------------------------


def staged(found: NodeHandover, node: Node | None = None) -> NodeHandover:
    """Return the NodeHandover after one look of the host."""
    inputs = HandoverInputs(name=NAME, now=CLOCK, handover=found, node=node, plane_exists=True)
    decision = desired.plan(inputs)
    assert not decision.work.plan.writes, "nothing of the host changes"
    assert decision.machine is None
    return replace(found, status=handoverstatus.compute(found, node, decision.progress, NOW))


def test_a_machine_is_never_the_hosts_although_a_node_has_its_name() -> None:
    """A Node of the host with this name is another machine, of which nothing changes."""
    node = Node(metadata=ObjectMeta(name=NAME, uid="n-1"))
    found = staged(machine(), node)
    assert (found.status.stage, found.status.kind) == (HandoverStage.WIPED, MachineKind.CONTRIBUTED)
    assert (found.status.addresses, found.status.pod_range) == (("192.168.7.5",), "10.200.1.0/24")
    assert staged(found, node).status == found.status
    secret = JoinSecret(namespace="tenantry-system", name=tokens.secret_name(NAME, TOKEN.id))
    joined = replace(found, status=replace(found.status, join=NodeJoin(server="https://a", ca="CA", secret=secret)))
    waits = staged(joined, node)
    assert (waits.status.stage, waits.status.inside) == (HandoverStage.JOINING, PENDING)
    ready = staged(replace(waits, status=replace(waits.status, stage=HandoverStage.JOINED, inside="i-1")), node)
    assert ready.status.stage is HandoverStage.JOINED
    assert next(each for each in ready.status.conditions if each.type == reasons.READY).status is ConditionStatus.TRUE


def test_a_machine_leaves_when_the_cluster_has_let_it_go() -> None:
    leaving = staged(machine(HandoverStage.JOINED, deleted=NOW, inside="i-1"))
    assert leaving.status.stage is HandoverStage.RETURNING
    assert staged(leaving).status.stage is HandoverStage.RETURNING
    gone = staged(replace(leaving, status=replace(leaving.status, inside="", addresses=("192.168.7.5",))))
    assert (gone.status.stage, gone.status.addresses) == (HandoverStage.BACK, ())
    (last,) = desired.plan(HandoverInputs(name=NAME, now=CLOCK, handover=gone)).work.plan.writes
    assert "finalizers" in str(last)


# -- the token ------------------------------------------------------------------------------------


def joining(now: dt.datetime, token: JoinToken | None = TOKEN) -> machines.MachineDecision:
    """Return what is decided about the machine, which has not joined."""
    found = machine(HandoverStage.JOINING)
    secret = JoinSecret(namespace="tenantry-system", name=tokens.secret_name(NAME, TOKEN.id))
    join = NodeJoin(server="https://a", ca="CA", secret=secret)
    fresh = JoinToken(id="fresh1", secret="f" * 16, expires=now + LIFE)
    return machines.decide(
        JoinMachineInputs(
            handover=replace(found, status=replace(found.status, join=join)),
            inside=None,
            token=token,
            fresh=fresh,
            endpoint=NodeEndpoint(server="https://a", ca="CA"),
            now=now,
        )
    )


def test_a_token_that_was_not_used_in_time_is_not_made_again() -> None:
    """One that is made again and again would be a token that never expires; and nothing wakes the cluster for it."""
    found = joining(CLOCK + LIFE)
    assert not found.home
    assert [(each.request.verb, each.request.name) for each in found.inside] == [
        (Verb.DELETE, "bootstrap-token-tok111")
    ]
    assert found.obstacle is not None
    assert found.obstacle.reason == reasons.JOIN_TOKEN_EXPIRED
    assert f"take-back {NAME} --from acme/prod" in found.obstacle.message
    late = Condition(
        type=reasons.JOIN_REFUSED,
        status=ConditionStatus.TRUE,
        reason=reasons.JOIN_TOKEN_EXPIRED,
        message="late",
        last_transition_time=NOW,
    )
    waiting = machine(HandoverStage.JOINING)
    assert is_moving(waiting)
    assert not is_moving(replace(waiting, status=replace(waiting.status, conditions=(late,))))


@pytest.mark.parametrize(
    ("address", "pods", "told"),
    [
        ("10.113.128.1", "10.200.1.0/24", "must not have 10.113.128.1, at which machines reach the API server"),
        ("::ffff:10.113.128.1", "10.200.1.0/24", "at which machines reach the API server"),
        ("10.96.0.1", "10.200.1.0/24", "because Services of the cluster have 10.96.0.0/16"),
        ("192.168.7.5", "10.96.4.0/24", "podRange 10.96.4.0/24 must not overlap 10.96.0.0/16"),
        ("192.168.7.5", "10.113.128.0/24", "podRange must not have 10.113.128.1"),
        ("fd00:96::1", "10.200.1.0/24", "Services of the cluster have fd00:96::/112"),
        ("192.168.7.5", "10.200.1.0/24", ""),
    ],
)
def test_a_machine_with_an_address_of_the_api_server_gets_no_token(address: str, pods: str, told: str) -> None:
    """H04: its kubelet would get a certificate with which it takes the place of the API server."""
    found = machine(HandoverStage.WIPED)
    entry = ContributedMachine(addresses=(address,), pod_range=pods)
    decided = machines.decide(
        JoinMachineInputs(
            handover=replace(found, spec=replace(found.spec, contributed=entry)),
            inside=None,
            token=None,
            fresh=JoinToken(id="fresh1", secret="f" * 16, expires=CLOCK + LIFE),
            endpoint=NodeEndpoint(server="https://10.113.128.1:6443", ca="CA"),
            services="10.96.0.0/16,fd00:96::/112",
            now=CLOCK,
        )
    )
    assert bool(decided.home) is not bool(told)
    if told:
        assert decided.obstacle is not None
        assert decided.obstacle.message.startswith(f"spec.contributed[{NAME}]")
        assert told in decided.obstacle.message
        assert not decided.inside


def test_a_token_is_offered_while_it_is_valid() -> None:
    found = joining(CLOCK)
    assert [each.request.name for each in found.inside] == ["bootstrap-token-tok111"]
    assert found.obstacle is None
    assert joining(CLOCK, None).home, "the first one is recorded"


def test_a_machine_that_has_left_does_not_come_back_with_its_certificate() -> None:
    """Its certificate is valid for 30 days: a Node that its kubelet makes again is deleted at once."""
    again = Node(metadata=ObjectMeta(name=NAME, uid="i-2"))
    (gone,) = orphaned(again)
    assert gone.request.verb is Verb.DELETE
    assert orphaned(Node(metadata=ObjectMeta(name="of-a-user", uid="i-3"))) == ()

"""What the agent understands of objects; what it does not understand closes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api.kubernetes import MIRROR
from tenantry.world.netpol.blocks import merged, without
from tenantry.world.netpol.compile import GuardedNode, compile_rules
from tenantry.world.netpol.objects import (
    NamedPort,
    NamespaceLabels,
    NetworkPolicyRule,
    NetworkState,
    NodeRecord,
    Peer,
    PodEndpoint,
    Policy,
    Port,
    Selector,
    decode_node,
    decode_pod,
    decode_policy,
)
from tenantry.world.netpol.records import foreign
from tenantry.world.netpol.ruleset import difference, render
from testkit.connections import ConnectionAttempt, allows

Json = dict[str, Any]
META: Json = {"name": "web", "namespace": "shop", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}


def _raw(value: Json) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _pod(spec: Json | None = None, phase: str = "Running", *ips: str, **metadata: object) -> PodEndpoint:
    status = {"phase": phase, "podIPs": [{"ip": ip} for ip in ips or ("10.0.0.1", "FD00::1")]}
    return decode_pod(_raw({"metadata": META | metadata, "spec": {"nodeName": "n0"} | (spec or {}), "status": status}))


def test_a_pod_has_its_addresses_in_canonical_form_and_its_named_ports() -> None:
    """H06: of containers, and of init containers that stay."""
    port = {"name": "http", "containerPort": 80}
    spec: Json = {
        "containers": [{"ports": [port, {"containerPort": 81}]}],
        "initContainers": [
            {"ports": [{"name": "early", "containerPort": 1}]},
            {"ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}], "restartPolicy": "Always"},
        ],
    }

    pod = _pod(spec)

    assert pod.addresses == ("10.0.0.1", "fd00::1")
    named = NamedPort(name="http", container_port=80)
    assert pod.ports == (named, NamedPort(name="dns", container_port=53, protocol="UDP"))


@pytest.mark.parametrize(
    "pod",
    [
        _pod(phase="Succeeded"),
        _pod(phase="Failed"),
        _pod({"hostNetwork": True}),
        _pod(None, "Running", "fe80::1%eth0", "nonsense"),
    ],
)
def test_a_pod_without_an_own_address_is_never_selected(pod: PodEndpoint) -> None:
    """H06: a finished pod's address may be another's; the node's own network is the node's."""
    assert pod.addresses == ()


def test_a_mirror_of_a_contributed_node_is_no_pod_of_its_namespace() -> None:
    """E19: the owner of the node chose the namespace and the labels; those of other nodes are the cluster's own."""
    mirror = {MIRROR: "0"}
    claimed, own = _pod({"nodeName": "contributed-abc123"}, annotations=mirror), _pod(annotations=mirror)
    assert (claimed.node, claimed.addresses) == ("", ())
    assert (own.node, own.addresses) == ("n0", ("10.0.0.1", "fd00::1"))
    assert _pod({"nodeName": "contributed-abc123"}).node == "contributed-abc123"


DIRECTIONS: list[tuple[Json, tuple[NetworkPolicyRule, ...] | None, tuple[NetworkPolicyRule, ...] | None]] = [
    ({"podSelector": {}}, (), None),
    ({"podSelector": {}, "policyTypes": ["Egress"]}, None, ()),
    ({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, (), ()),
    ({"podSelector": {}, "egress": [{}]}, (), (NetworkPolicyRule(),)),
    (
        {"podSelector": {}, "ingress": [{"ports": [{"port": "http"}]}]},
        (NetworkPolicyRule(ports=(Port(port="http"),)),),
        None,
    ),
]


@pytest.mark.parametrize(("spec", "ingress", "egress"), DIRECTIONS)
def test_a_policy_is_about_the_directions_that_it_says(
    spec: Json, ingress: tuple[NetworkPolicyRule, ...] | None, egress: tuple[NetworkPolicyRule, ...] | None
) -> None:
    """H06: policyTypes, and what it is where it is left out."""
    policy = decode_policy(_raw({"metadata": META, "spec": spec}))

    assert (policy.ingress, policy.egress) == (ingress, egress)


STRANGE: list[Json] = [
    {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}, "ingress": [{}]},
    {"podSelector": {"matchLabels": {"a": "b"}}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0"}}]}]},
    {"podSelector": {"matchLabels": {"a": "b"}}, "ingress": [{"ports": [{"protocol": "ICMP"}]}]},
    {"podSelector": 7},
]


@pytest.mark.parametrize("spec", STRANGE)
def test_a_policy_that_is_not_understood_closes_its_namespace(spec: Json) -> None:
    """H06: both directions, for all pods."""
    policy = decode_policy(_raw({"metadata": META, "spec": spec}))

    assert policy == Policy(namespace="shop", name="web", version=7, pods=Selector(), ingress=(), egress=())


def test_of_two_pods_with_one_address_the_one_that_lives_has_it() -> None:
    """H06: a deleted pod's object may be there longer than its address is its own."""
    gone = _pod(deletionTimestamp="2026-01-03T00:00:00Z", creationTimestamp="2026-01-02T00:00:00Z", labels={"a": "old"})
    here = _pod(name="new", labels={"a": "new"})
    closed = Policy(namespace="shop", name="p", pods=Selector(match_labels={"a": "new"}), ingress=())

    for pods in ((gone, here), (here, gone)):
        rules = compile_rules(NetworkState(pods=pods, policies=(closed,)), GuardedNode(node="n0"))
        assert set(rules.sets["in4"].elements) == {"10.0.0.1"}


def test_nothing_is_written_where_nothing_differs() -> None:
    """H06: in whatever order the objects come, the table is the same."""
    pods = tuple(PodEndpoint(namespace="a", name=f"p{n}", node="n0", addresses=(f"10.0.0.{n}",)) for n in range(1, 9))
    policies = tuple(Policy(namespace="a", name=f"p{n}", ingress=(NetworkPolicyRule(),)) for n in range(3))
    one = compile_rules(NetworkState(pods=pods, policies=policies), GuardedNode(node="n0"))
    other = compile_rules(NetworkState(pods=pods[::-1], policies=policies[::-1]), GuardedNode(node="n0"))

    assert difference(one, other) == ""
    assert render(one) == render(other)


def test_a_new_pod_is_only_elements() -> None:
    """H06: what others do is not written again."""
    closed = (Policy(namespace="a", name="p", ingress=()),)
    pods = tuple(PodEndpoint(namespace="a", name=f"p{n}", node="n0", addresses=(f"10.0.0.{n}",)) for n in range(1, 3))
    before = compile_rules(NetworkState(pods=pods[:1], policies=closed), GuardedNode(node="n0"))
    after = compile_rules(NetworkState(pods=pods, policies=closed), GuardedNode(node="n0"))

    lines = difference(before, after).splitlines()

    assert [line.split()[:2] for line in lines] == [["add", "element"]] * 3
    assert all("10.0.0.2" in line and "10.0.0.1" not in line for line in lines)


@pytest.mark.parametrize(
    ("whole", "holes", "left"),
    [
        ((0, 9), [], [(0, 9)]),
        ((0, 9), [(0, 9)], []),
        ((0, 9), [(0, 3), (5, 5)], [(4, 4), (6, 9)]),
        ((0, 9), [(8, 20), (30, 40)], [(0, 7)]),
        ((5, 9), [(0, 2), (1, 5)], [(6, 9)]),
    ],
)
def test_holes_are_taken_out_of_a_range(
    whole: tuple[int, int], holes: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    """H06: `except` of an ipBlock."""
    assert without(whole, holes) == left


def test_ranges_that_touch_become_one() -> None:
    """H06: nft refuses ranges that overlap."""
    assert merged([(5, 6), (1, 2), (3, 4), (9, 9), (5, 5)]) == [(1, 6), (9, 9)]


def test_a_pod_reaches_itself_whatever_policies_say() -> None:
    """H06: Kubernetes, "Network Policies"."""
    closed = Policy(namespace="a", name="p", ingress=(), egress=())
    world = NetworkState(pods=(PodEndpoint(namespace="a", name="p", addresses=("10.0.0.1",)),), policies=(closed,))

    assert allows(world, ConnectionAttempt(source="10.0.0.1", target="10.0.0.1", port=80))
    assert not allows(world, ConnectionAttempt(source="10.0.0.1", target="10.0.0.2", port=80))


OWN, OTHER = "n0", "contributed-abc"


@pytest.mark.parametrize(
    ("node", "address", "counts"),
    [
        (OTHER, "10.0.1.7", True),
        (OTHER, "fd00:0:0:1::7", True),
        # Of another tenant's pod, of nodes, at the gateway of its own range, and of a namesake of another node.
        (OTHER, "10.0.0.2", False),
        (OTHER, "192.0.2.1", False),
        (OTHER, "192.0.2.2", False),
        (OTHER, "10.0.1.1", False),
        (OTHER, "203.0.113.9", False),
        # A contributed node has no pods before it has a range, nor after it was taken back.
        ("contributed-new", "203.0.113.9", False),
        ("contributed-gone", "10.0.1.7", False),
        # The network plugin of an administrator's node may divide addresses itself, but not those of others.
        ("plain", "203.0.113.9", True),
        ("plain", "10.0.0.9", False),
        ("plain", "192.0.2.1", False),
        ("plain", "192.0.2.3", False),
        ("unknown", "203.0.113.9", True),
        ("unknown", "10.0.0.9", False),
    ],
)
def test_a_node_reports_only_recorded_addresses_of_its_pods(node: str, address: str, counts: bool) -> None:  # noqa: FBT001 - a table
    """H06, E19: a forged one neither takes a pod's NetworkPolicies nor lets an isolated pod reach a node."""
    honest = PodEndpoint(namespace="a", name="web", node=OWN, addresses=("10.0.0.2",), born=(True, "2026-01-01"))
    forged = PodEndpoint(namespace="b", name="web", node=node, addresses=(address,), born=(True, "2026-01-02"))
    inside = NetworkPolicyRule(peers=(Peer(namespace_selector=Selector()),))
    policies = (Policy(namespace="a", name="p", ingress=(inside,), egress=(inside,)),)
    spaces = (NamespaceLabels(key="a"), NamespaceLabels(key="b"))
    world = NetworkState(pods=(honest, forged), policies=policies, spaces=spaces, nodes=_recorded())

    rules = compile_rules(world, GuardedNode(node=OWN))

    reached = {each for name, found in rules.sets.items() if name.startswith("group-") for each in found.elements}
    assert (address in reached - {"10.0.0.2"}) == counts
    assert set(rules.sets["in4"].elements) == {"10.0.0.2"}
    assert [each for _, each in foreign(world)] == ([] if counts else [address])


def _recorded() -> tuple[NodeRecord, ...]:
    """Return the records of an administrator's nodes and of contributed ones, as the agent decodes them."""

    def node(name: str, address: str, *ranges: str) -> NodeRecord:
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        return decode_node(_raw({"metadata": META | {"name": name}, "spec": {"podCIDRs": ranges}, "status": status}))

    return (
        node(OWN, "192.0.2.1", "10.0.0.0/24"),
        node(OTHER, "192.0.2.2", "10.0.1.0/24", "fd00:0:0:1::/64"),
        node("contributed-new", "10.0.0.2"),
        node("plain", "192.0.2.3"),
    )

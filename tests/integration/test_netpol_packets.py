"""Random NetworkPolicies, as nftables on nodes made of network namespaces, against what reading the policies says."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from tenantry.world.netpol.compile import GuardedNode, closed, compile_rules
from tenantry.world.netpol.objects import (
    Block,
    LabelExpression,
    NamedPort,
    NamespaceLabels,
    NetworkPolicyRule,
    NetworkState,
    Peer,
    PodEndpoint,
    Policy,
    Port,
    Protocol,
    Selector,
)
from tenantry.world.netpol.ruleset import Ruleset, difference, render
from testkit.connections import ConnectionAttempt, allows
from testkit.podnet import Endpoint, Fabric, Netns, mismatches, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PORTS = (80, 81, 90)
PROTOCOLS: tuple[Protocol, ...] = ("TCP", "UDP")
NODES = 2
PODS = 6
ROUNDS = 12


class Cluster:
    """A fabric with pods that serve, and what is in force on its nodes."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.pods = [fabric.pod(number % NODES) for number in range(PODS)]
        self.in_force: list[Ruleset | None] = [None] * NODES

    def enforce(self, world: NetworkState) -> None:
        """Bring each node from what is in force there to what the world asks for."""
        for number, node in enumerate(self.fabric.nodes):
            rules = compile_rules(world, GuardedNode(node=f"n{number}"))
            before = self.in_force[number]
            node.run("nft", "-f", "-", text=render(rules) if before is None else difference(before, rules))
            self.in_force[number] = rules


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with Fabric(NODES) as made:
        yield made


@pytest.fixture(scope="module")
async def cluster(fabric: Fabric) -> Cluster:
    made = Cluster(fabric)
    for pod in (*made.pods, fabric.outside()):
        await fabric.serve(pod, PORTS)
    return made


class Draw:
    """Random objects."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def labels(self) -> dict[str, str]:
        keys = [key for key in ("app", "tier") if self.chance.random() < 0.7]
        return {key: self.chance.choice("xyz") for key in keys}

    def selector(self) -> Selector:
        kind = self.chance.randrange(4)
        key, values = self.chance.choice(("app", "tier")), tuple(self.chance.sample("xyz", 2))
        if kind == 0:
            return Selector()
        if kind == 1:
            return Selector(match_labels={key: values[0]})
        operator = self.chance.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        wanted = values if operator in {"In", "NotIn"} else ()
        return Selector(match_expressions=(LabelExpression(key=key, operator=operator, values=wanted),))

    def peer(self) -> Peer:
        kind = self.chance.randrange(5)
        if kind == 0:
            return Peer(pod_selector=self.selector())
        if kind == 1:
            return Peer(namespace_selector=self.selector())
        if kind == 2:
            return Peer(namespace_selector=self.selector(), pod_selector=self.selector())
        v4 = ("0.0.0.0/0", "10.90.0.0/16", "10.90.1.0/24", "198.51.100.0/24", "10.90.0.2/31")
        v6 = ("::/0", "fd90::/16", "fd90:1::/64", "fd90::2/127")
        blocks = v4 if self.chance.random() < 0.5 else v6
        but = tuple(each for each in blocks[1:] if self.chance.random() < 0.3)
        return Peer(ip_block=Block(cidr=self.chance.choice(blocks[:2]), but=but))

    def port(self) -> Port:
        protocol = self.chance.choice(PROTOCOLS)
        kind = self.chance.randrange(4)
        if kind == 0:
            return Port(protocol=protocol)
        if kind == 1:
            return Port(protocol=protocol, port=self.chance.choice(("web", "admin")))
        if kind == 2:
            return Port(protocol=protocol, port=80, end_port=self.chance.choice((80, 81, 89, 90)))
        return Port(protocol=protocol, port=self.chance.choice(PORTS))

    def rules(self) -> tuple[NetworkPolicyRule, ...] | None:
        if self.chance.random() < 0.35:
            return None
        count = self.chance.choice((0, 1, 1, 2))
        return tuple(
            NetworkPolicyRule(
                peers=tuple(self.peer() for _ in range(self.chance.choice((0, 1, 2)))),
                ports=tuple(self.port() for _ in range(self.chance.choice((0, 0, 1, 2)))),
            )
            for _ in range(count)
        )

    def named(self) -> tuple[NamedPort, ...]:
        drawn = [("web", 80, "TCP"), ("web", 81, "UDP"), ("admin", 90, "TCP"), ("admin", 80, "UDP")]
        return tuple(
            NamedPort(name=name, container_port=port, protocol="TCP" if protocol == "TCP" else "UDP")
            for name, port, protocol in drawn
            if self.chance.random() < 0.5
        )

    def world(self, endpoints: Sequence[Endpoint]) -> NetworkState:
        spaces = tuple(NamespaceLabels(key=key, labels=self.labels()) for key in ("a", "b", "c"))
        pods = tuple(
            PodEndpoint(
                namespace=self.chance.choice("abc"),
                name=f"pod-{number}",
                node=f"n{number % NODES}",
                labels=self.labels(),
                addresses=endpoint.addresses,
                ports=self.named(),
            )
            for number, endpoint in enumerate(endpoints)
        )
        policies = tuple(
            Policy(
                namespace=self.chance.choice("abc"),
                name=f"policy-{number}",
                pods=self.selector(),
                ingress=self.rules(),
                egress=self.rules(),
            )
            for number in range(self.chance.randrange(1, 8))
        )
        return NetworkState(pods=pods, spaces=spaces, policies=policies)


def matrix(cluster: Cluster, world: NetworkState) -> list[tuple[Endpoint, ConnectionAttempt, bool]]:
    """Return all pairs of pods, at all ports of both protocols, by both families."""
    places = [*cluster.pods, cluster.fabric.outside()]
    attempts = [
        (source, ConnectionAttempt(source=own, target=other, port=port, protocol=protocol))
        for source in places
        for target in places
        if source is not target
        for own, other in zip(source.addresses, target.addresses, strict=False)
        for port in PORTS
        for protocol in PROTOCOLS
    ]
    return [(source, attempt, allows(world, attempt)) for source, attempt in attempts]


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_packets_do_what_random_policies_say(cluster: Cluster, number: int) -> None:
    """H06: each side of each connection is decided as the policies say; also after a change of what was in force."""
    seed = random.randrange(10**9)
    print(f"round {number}, seed {seed}")
    draw = Draw(random.Random(seed))
    world = draw.world(cluster.pods)
    # A world in which all is allowed, or nothing, proves little.
    while len({expected for _, _, expected in matrix(cluster, world)}) < 2:
        world = draw.world(cluster.pods)
    cluster.enforce(world)

    assert await mismatches(matrix(cluster, world)) == []


async def test_a_datagram_that_the_network_loses_is_not_refused(cluster: Cluster) -> None:
    """A client of UDP asks again, and so do these tests."""
    source, target = cluster.pods[0], cluster.pods[1]
    places = ((number, pod) for number, pod in enumerate((source, target)))
    pods = tuple(PodEndpoint(namespace="a", name=f"p{n}", node=f"n{n}", addresses=pod.addresses) for n, pod in places)
    cluster.enforce(NetworkState(pods=pods))
    lossy = """
table ip lossy {
chain lost {
type filter hook forward priority -300
meta l4proto udp numgen inc mod 4 < 2 drop
}
}
"""
    cluster.fabric.nodes[0].run("nft", "-f", "-", text=lossy)
    attempt = ConnectionAttempt(
        source=source.addresses[0], target=target.addresses[0], port=PORTS[0], protocol=PROTOCOLS[1]
    )
    try:
        found = await mismatches([(source, attempt, True)])
    finally:
        cluster.fabric.nodes[0].run("nft", "delete", "table", "ip", "lossy")

    assert found == []


async def test_a_changed_table_is_the_one_that_is_written_whole(cluster: Cluster) -> None:
    """H06: what `difference` makes of one table of another is what `render` makes of it, as the kernel tells it."""
    chance = random.Random(7)
    worlds = [Draw(chance).world(cluster.pods) for _ in range(40)]
    for world in worlds:
        cluster.enforce(world)
        node = cluster.fabric.nodes[0]
        changed = listed(node)
        rules = cluster.in_force[0]
        assert rules is not None
        node.run("nft", "-f", "-", text=render(rules))
        assert listed(node) == changed


def listed(node: Netns) -> list[str]:
    """Return the table as lines, without what has been counted; elements of a set are in no order."""
    text = node.run("nft", "-s", "list", "table", "inet", "tenantry-netpol")
    joined = " ".join(text.split()).replace("{", "\n").replace("}", "\n")
    return sorted(", ".join(sorted(line.split(", "))) for line in joined.splitlines())


async def test_services_are_decided_by_the_pods_behind_them(cluster: Cluster) -> None:
    """H06: by an address that the node translates, as kube-proxy does; a pod reaches itself by it in any case."""
    chance = random.Random(11)
    world = Draw(chance).world(cluster.pods)
    own = [pod.addresses[0] for pod in cluster.pods]
    virtual = {address: f"10.96.0.{number}" for number, address in enumerate(own, 1)}
    translated = ", ".join(f"{service} : {address}" for address, service in virtual.items())
    hairpins = "\n".join(f"ip saddr {address} ip daddr {address} masquerade" for address in own)
    proxy = f"""
table ip services {{
chain before {{
type nat hook prerouting priority dstnat
dnat to ip daddr map {{ {translated} }}
}}
chain after {{
type nat hook postrouting priority srcnat
{hairpins}
}}
}}
"""
    for node in cluster.fabric.nodes:
        node.run("nft", "-f", "-", text=proxy)
    cluster.enforce(world)
    attempts = [
        ConnectionAttempt(source=source, target=target, port=port, protocol=protocol)
        for source in own
        for target in own
        for port in PORTS
        for protocol in PROTOCOLS
    ]
    rows = [
        (
            cluster.pods[own.index(attempt.source)],
            msgspec.structs.replace(attempt, target=virtual[attempt.target]),
            allows(world, attempt),
        )
        for attempt in attempts
    ]

    found = await mismatches(rows)
    for node in cluster.fabric.nodes:
        node.run("nft", "delete", "table", "ip", "services")

    assert {expected for _, _, expected in rows} == {False, True}
    assert found == []


async def test_no_port_of_a_node_leads_around_an_exception(cluster: Cluster) -> None:
    """H06: a hostPort at an address of a node, which is replaced by a pod's; the pod itself is within reach."""
    source, target = cluster.pods[0], cluster.pods[1]
    pods = tuple(
        PodEndpoint(namespace=space, name="web", node=f"n{number}", addresses=pod.addresses)
        for number, (space, pod) in enumerate((("a", source), ("b", target)))
    )
    node, at = cluster.fabric.nodes[0], cluster.fabric.node(0).addresses[0]
    proxy = f"table ip ports {{ chain before {{ type nat hook prerouting priority dstnat\nip daddr {at} dnat to "
    node.run("nft", "-f", "-", text=f"{proxy}{target.addresses[0]}\n}}\n}}\n")
    direct = ConnectionAttempt(source=source.addresses[0], target=target.addresses[0], port=PORTS[0])
    around = msgspec.structs.replace(direct, target=at)
    found: list[list[str]] = []
    for excepted, expected in (((), True), ((f"{at}/32",), False)):
        block = Peer(ip_block=Block(cidr="0.0.0.0/0", but=excepted))
        policy = Policy(namespace="a", name="outside", egress=(NetworkPolicyRule(peers=(block,)),))
        cluster.enforce(NetworkState(pods=pods, policies=(policy,)))
        found.append(await mismatches([(source, direct, True), (source, around, expected)]))
    node.run("nft", "delete", "table", "ip", "ports")

    assert found == [[], []]


async def test_sctp_is_decided_by_its_ports(cluster: Cluster) -> None:
    """H06: as packets on the wire, since few kernels have sockets for it."""
    source, target = cluster.pods[0], cluster.pods[1]
    pods = tuple(
        PodEndpoint(namespace="a", name=f"pod-{number}", node=f"n{number}", addresses=pod.addresses)
        for number, pod in enumerate((source, target))
    )
    open_ = Port(protocol="SCTP", port=9998, end_port=9999)
    policy = Policy(namespace="a", name="sctp", ingress=(NetworkPolicyRule(ports=(open_, Port(port=9997))),))
    cluster.enforce(NetworkState(pods=pods, policies=(policy,)))

    def raw() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)

    with source.place.inside(raw) as sender, target.place.inside(raw) as receiver:
        for port in (9997, 9999, 10000, 9998):
            # The common header and an INIT chunk (RFC 9260, section 3).
            packet = struct.pack("!HHII", 4000, port, 0, 0) + struct.pack("!BBHIIHHI", 1, 0, 20, 1, 65535, 1, 1, 1)
            sender.sendto(packet, (target.addresses[0], 0))
        receiver.settimeout(10.0)
        # Packets of one way come in order: with the last one, all have come.
        arrived = [struct.unpack("!H", receiver.recv(100)[22:24])[0] for _ in range(2)]

    assert arrived == [9999, 9998]


async def test_where_nothing_is_known_pods_have_no_network(cluster: Cluster) -> None:
    """H06: not among each other, and not to or from outside; but the node reaches them, as it must for probes."""
    pods = [pod for number, pod in enumerate(cluster.pods) if number % NODES == 0]
    for number, node in enumerate(cluster.fabric.nodes):
        node.run("nft", "-f", "-", text=closed(GuardedNode(node=f"n{number}")))
        cluster.in_force[number] = None
    outside = cluster.fabric.outside()
    shut = [
        (source, ConnectionAttempt(source=own, target=other, port=PORTS[0]), False)
        for source in (*pods, outside)
        for target in (*pods, outside)
        if source is not target
        for own, other in zip(source.addresses, target.addresses, strict=False)
    ]
    node = cluster.fabric.node(0)
    probes = [
        (node, ConnectionAttempt(source=own, target=other, port=PORTS[0]), True)
        for pod in pods
        for own, other in zip(node.addresses, pod.addresses, strict=True)
    ]

    assert await mismatches([*shut, *probes]) == []

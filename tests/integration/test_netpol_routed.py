"""Real packets of pods that have a cable of their own each: who may send as whom, before and after rules are known."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tenantry.world.netpol.compile import GuardedNode, closed, compile_rules
from tenantry.world.netpol.objects import NetworkPolicyRule, NetworkState, PodEndpoint, Policy
from tenantry.world.netpol.ruleset import render
from testkit.connections import ConnectionAttempt
from testkit.podnet import Endpoint, Fabric, mismatches, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")

PORT = 8080
# linux/in.h and linux/in6.h: bind to an address that is another's; Python has no name for the second one.
_TRANSPARENT = {socket.AF_INET: (socket.SOL_IP, 19), socket.AF_INET6: (socket.IPPROTO_IPV6, 75)}


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with Fabric(2, is_routed=True) as made:
        yield made


def world(*nodes: tuple[Endpoint, ...]) -> NetworkState:
    """Return a world in which pods of one namespace may do everything, and are where they are."""
    pods = [
        PodEndpoint(namespace="a", name=f"pod-{number}-{each}", node=f"n{number}", addresses=endpoint.addresses)
        for number, endpoints in enumerate(nodes)
        for each, endpoint in enumerate(endpoints)
    ]
    return NetworkState(
        pods=tuple(pods),
        policies=(Policy(namespace="a", name="all", ingress=(NetworkPolicyRule(),), egress=(NetworkPolicyRule(),)),),
    )


def enforce(fabric: Fabric, known: NetworkState, *, is_routed: bool = True) -> None:
    for number, node in enumerate(fabric.nodes):
        guarded = GuardedNode(node=f"n{number}", interfaces=("veth*",), is_routed=is_routed)
        node.run("nft", "-f", "-", text=render(compile_rules(known, guarded)))


def first_heard(sender: Endpoint, target: Endpoint, forged: str, own: str, at: str) -> str:
    """Send a datagram under a forged address, then one under the sender's own; whose comes first is returned."""
    family = socket.AF_INET6 if ":" in at else socket.AF_INET

    def opened() -> socket.socket:
        return socket.socket(family, socket.SOCK_DGRAM)

    with (
        target.place.inside(opened) as receiver,
        sender.place.inside(opened) as liar,
        sender.place.inside(opened) as honest,
    ):
        receiver.bind((at, PORT))
        receiver.settimeout(20.0)
        liar.setsockopt(*_TRANSPARENT[family], 1)
        liar.bind((forged, 0))
        liar.sendto(b"?", (at, PORT))
        honest.bind((own, 0))
        honest.sendto(b"?", (at, PORT))
        return str(receiver.recvfrom(16)[1][0])


def test_no_pod_sends_as_another(fabric: Fabric) -> None:
    """H06: as a pod beside it, to any node, which without the rule it could; nor as a pod of another node."""
    sender, beside, far = fabric.pod(0), fabric.pod(0), fabric.pod(1)
    third = fabric.pod(0)
    known = world((sender, beside, third), (far,))
    cases = [
        (target, beside.addresses[family], sender.addresses[family], target.addresses[family])
        for target in (far, third)
        for family in (0, 1)
    ]
    elsewhere = (third, far.addresses[0], sender.addresses[0], third.addresses[0])

    enforce(fabric, known, is_routed=False)
    assert [first_heard(sender, *case) for case in cases] == [forged for _, forged, _, _ in cases]
    enforce(fabric, known)
    assert [first_heard(sender, *case) for case in (*cases, elsewhere)] == [own for _, _, own, _ in (*cases, elsewhere)]


async def test_cables_carry_what_policies_allow_and_nothing_before_they_are_known(fabric: Fabric) -> None:
    """H06: a node's first rules close it to and from its pods; with the pods known, all that they may passes."""
    pods = [fabric.pod(0), fabric.pod(0), fabric.pod(1)]
    for pod in pods:
        await fabric.serve(pod, [PORT])
    pairs = [(one, other) for one in pods for other in pods if one is not other]
    attempts = [
        (one, ConnectionAttempt(source=own, target=target, port=PORT, protocol=protocol))
        for one, other in pairs
        for own, target in zip(one.addresses, other.addresses, strict=True)
        for protocol in ("TCP", "UDP")
    ]
    for number, node in enumerate(fabric.nodes):
        guarded = GuardedNode(node=f"n{number}", interfaces=("veth*",), is_routed=True)
        node.run("nft", "-f", "-", text=closed(guarded))

    assert await mismatches([(*each, False) for each in attempts]) == []
    enforce(fabric, world((pods[0], pods[1]), (pods[2],)))
    assert await mismatches([(*each, True) for each in attempts]) == []

"""Measure the cost of the NetworkPolicy agent's table: to compile, to load, and for new connections.

    .venv/bin/python benchmarks/netpol.py --pods 1000 --policies 200

Takes root, nft and ip. Makes network namespaces of its own and deletes them. Prints JSON: milliseconds of CPU and of
the clock, and connections a second in the median of interleaved rounds: without any table, with connection tracking
alone, and with the table.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import socket
import statistics
import struct
import sys
import time
from collections import deque

import msgspec

from tenantry.world.netpol.compile import GuardedNode, compile_rules
from tenantry.world.netpol.objects import (
    Block,
    NamedPort,
    NamespaceLabels,
    NetworkPolicyRule,
    NetworkState,
    Peer,
    PodEndpoint,
    Policy,
    Port,
    Selector,
)
from tenantry.world.netpol.ruleset import difference, render
from testkit.podnet import Endpoint, Fabric, Netns, missing

SPACES = 100
CONNECTIONS = 1500
AT_ONCE = 8
PORT = 80
TRACKING = """
table inet tracking {
chain forward {
type filter hook forward priority 0
ct state established accept
}
}
"""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The result, in milliseconds and connections per second.

    Args:
        compile_cpu: One compilation.
        load_cpu: One `nft -f` of the whole table.
        load: The same, by the clock.
        change: One pod that goes, by the clock.
        text_bytes: The whole table.
        without, tracking, through: Rates without a table, with connection tracking alone, and with the table.
    """

    compile_cpu: float
    load_cpu: float
    load: float
    change: float
    text_bytes: int
    without: int
    tracking: int
    through: int


def world(pods: int, policies: int, real: tuple[Endpoint, ...]) -> NetworkState:
    """Return namespaces that are each a zone; in half of them, policies also restrict ports."""
    chance = random.Random(1)  # noqa: S311 - chance that can be repeated
    spaces = tuple(NamespaceLabels(key=f"ns{n}", labels={"zone": f"z{n}"}) for n in range(SPACES))
    found = [
        PodEndpoint(
            namespace=f"ns{n % SPACES}",
            name=f"p{n}",
            node="n0",
            labels={"app": chance.choice("abcde")},
            addresses=(f"10.91.{n // 250}.{n % 250 + 1}", f"fd91::{n + 1:x}"),
            ports=(NamedPort(name="http", container_port=PORT),),
        )
        for n in range(pods)
    ]
    found += [
        PodEndpoint(namespace="ns0", name=f"real{n}", node="n0", addresses=each.addresses)
        for n, each in enumerate(real)
    ]
    return NetworkState(pods=tuple(found), spaces=spaces, policies=tuple(_policy(n) for n in range(policies)))


def _policy(number: int) -> Policy:
    space = number % SPACES
    if number < SPACES:
        own = (NetworkPolicyRule(peers=(Peer(namespace_selector=Selector(match_labels={"zone": f"z{space}"})),)),)
        return Policy(namespace=f"ns{space}", name="isolation", ingress=own, egress=own)
    peers = (
        Peer(pod_selector=Selector(match_labels={"app": "c"})),
        Peer(ip_block=Block(cidr="0.0.0.0/0", but=("10.0.0.0/8", "169.254.0.0/16"))),
    )
    ports = (Port(port="http"), Port(port=8000, end_port=8100))
    pods = Selector(match_labels={"app": "b"})
    return Policy(
        namespace=f"ns{space}", name=f"own{number}", pods=pods, ingress=(NetworkPolicyRule(peers=peers, ports=ports),)
    )


async def rate(client: Endpoint, target: str) -> float:
    """Return the number of connections per second; each is answered once, and reset."""
    # Sockets are made beforehand: making them in another namespace is not what is measured.
    waiting = client.place.inside(lambda: [_client() for _ in range(CONNECTIONS)])
    loop = asyncio.get_running_loop()

    async def work() -> None:
        while waiting:
            with waiting.pop() as opened:
                await loop.sock_connect(opened, (target, PORT))
                await loop.sock_recv(opened, 1)

    began = time.monotonic()
    async with asyncio.timeout(120.0), asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return CONNECTIONS / (time.monotonic() - began)


def _client() -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    # Reset at the end: nothing waits in TIME_WAIT for the next round.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return made


async def serve(listener: socket.socket) -> None:
    """Answer each connection, and close it late, because the side that closes first keeps the port."""
    held: deque[socket.socket] = deque()
    while True:
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        accepted.send(b"!")
        held.append(accepted)
        if len(held) > 300:  # noqa: PLR2004 - more than are under way
            held.popleft().close()


def _load(node: Netns, text: str) -> tuple[float, float]:
    """Return nft's milliseconds of CPU and of wall-clock time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    node.run("nft", "-f", "-", text=text)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu * 1000, (time.monotonic() - began) * 1000


async def measure(pods: int, policies: int, rounds: int) -> Cost:
    """Measure everything."""
    with Fabric(1) as fabric:
        node, client, server = fabric.nodes[0], fabric.pod(0), fabric.pod(0)
        whole = world(pods, policies, (client, server))
        began = time.process_time()
        rules = compile_rules(whole, GuardedNode(node="n0"))
        compile_cpu = (time.process_time() - began) * 1000
        text = render(rules)
        loads = [_load(node, text) for _ in range(rounds)]
        fewer = compile_rules(msgspec.structs.replace(whole, pods=whole.pods[1:]), GuardedNode(node="n0"))
        _, change = _load(node, difference(rules, fewer))

        listener = server.place.inside(socket.socket)
        listener.setblocking(False)
        listener.bind((server.addresses[0], PORT))
        listener.listen(1024)
        serving = asyncio.create_task(serve(listener))
        rates: dict[str, list[float]] = {"": [], TRACKING: [], text: []}
        for _ in range(rounds):
            for commands, found in rates.items():
                node.run("nft", "-f", "-", text=f"flush ruleset\n{commands}")
                found.append(await rate(client, server.addresses[0]))
        serving.cancel()
        listener.close()
    medians = [round(statistics.median(found)) for found in rates.values()]
    return Cost(
        compile_cpu=round(compile_cpu, 1),
        load_cpu=round(min(cpu for cpu, _ in loads), 1),
        load=round(statistics.median(clock for _, clock in loads), 1),
        change=round(change, 1),
        text_bytes=len(text),
        without=medians[0],
        tracking=medians[1],
        through=medians[2],
    )


def main() -> None:
    """Measure, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--policies", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args()
    reason = missing()
    if reason:
        sys.exit(f"netpol.py: {reason}")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20_000), most))
    cost = asyncio.run(measure(given.pods, given.policies, given.rounds))
    print(msgspec.json.format(msgspec.json.encode(cost), indent=2).decode())


if __name__ == "__main__":
    main()

"""Nodes and pods as network namespaces of this machine, and real connections between them.

A socket stays in the network namespace that it was made in: so all pods' servers and clients are tasks of one process.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import http.client
import ipaddress
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from testkit.connections import ConnectionAttempt

CLONE_NEWNET = 0x40000000
OUTSIDE = "198.51.100.1"
"""An address outside all pods and nodes."""

PATIENCE_SECONDS = 8.0
"""The time limit of a connection that must succeed, on a busy machine."""

_ASK_AGAIN_SECONDS = 0.5
"""When a datagram that is not answered is sent again."""

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str:
    """Return why network namespaces cannot be created here; "" if they can."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    tools = [tool for tool in ("ip", "nft", "nsenter") if shutil.which(tool) is None]
    if tools:
        return f"not installed: {', '.join(tools)} (packages iproute2, nftables, util-linux)"
    probe = f"tn-{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)  # noqa: S607 - a command that we made
    if made.returncode:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    _call("ip", "netns", "delete", probe)
    return ""


class Netns:
    """A network namespace.

    Args:
        name: What it is called below /run/netns.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = Path("/run/netns") / name
        _call("ip", "netns", "add", name)
        self.configure(["link set lo up"])

    def configure(self, lines: Iterable[str]) -> None:
        """Run commands of ip(8)."""
        _call("ip", "-n", self.name, "-batch", "-", text="\n".join(lines) + "\n")

    def run(self, *command: str, text: str = "") -> str:
        """Run a command inside and return its output."""
        return _call("nsenter", f"--net={self.path}", *command, text=text)

    def set(self, value: int, *settings: str) -> None:
        """Set kernel settings to a value, each as in "ipv4/ip_forward"."""
        for name in settings:
            self.run("sh", "-c", f"echo {value} > /proc/sys/net/{name}")

    def inside(self, act: Callable[[], T]) -> T:
        """Call a function in a thread inside, and return its result."""

        def call() -> T:
            with self.path.open("rb") as file:
                if _libc.setns(file.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"setns {self.path}")
            return act()

        # The thread ends here, because it cannot leave the namespace.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(call).result()

    def delete(self) -> None:
        """Delete it with its links; the caller ends its processes."""
        _call("ip", "netns", "delete", self.name)


class Endpoint(msgspec.Struct, frozen=True):
    """A client and server with addresses.

    Args:
        place: Where its sockets are.
        addresses: One of each family that it has.
    """

    place: Netns
    addresses: tuple[str, ...]

    @asynccontextmanager
    async def open(self, attempt: ConnectionAttempt) -> AsyncGenerator[Opened]:
        """Open a socket for an attempt; the first request connects it."""
        kind = socket.SOCK_STREAM if attempt.protocol == "TCP" else socket.SOCK_DGRAM
        family = _family(attempt.target)
        with self.place.inside(lambda: socket.socket(family, kind)) as opened:
            opened.setblocking(False)
            opened.bind((attempt.source, 0))
            yield Opened(opened, attempt)


class Opened:
    """One side of a connection."""

    def __init__(self, opened: socket.socket, attempt: ConnectionAttempt) -> None:
        self._socket = opened
        self._attempt = attempt
        self._is_connected = False
        self._asked = 0

    async def is_answered(self, *, seconds: float) -> bool:
        """Return whether the other side answers within a time limit.

        Refused is not answered either: nothing that does not listen is asked by tests of policies.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                if not self._is_connected:
                    await loop.sock_connect(self._socket, (self._attempt.target, self._attempt.port))
                    self._is_connected = True
                if self._attempt.protocol == "UDP":
                    return await self._is_echoed()
                await loop.sock_sendall(self._socket, b"?")
                return await loop.sock_recv(self._socket, 1) == b"?"
        except (TimeoutError, ConnectionError):
            return False
        except OSError as error:
            if error.errno in {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EACCES, errno.EPERM}:
                return False
            raise

    async def _is_echoed(self) -> bool:
        """Ask until a datagram is answered: a network may lose some, and answers to an earlier call do not count."""
        loop, before = asyncio.get_running_loop(), self._asked
        while True:
            self._asked += 1
            await loop.sock_sendall(self._socket, self._asked.to_bytes(4))
            with suppress(TimeoutError):
                async with asyncio.timeout(_ASK_AGAIN_SECONDS):
                    while int.from_bytes(await loop.sock_recv(self._socket, 4)) <= before:
                        pass
                    return True


class Fabric:
    """Nodes on a common network, each with a bridge for its pods; the network itself is outside, at `OUTSIDE`.

    Node N (from 0) has the address 10.89.0.1N and pods 10.90.N.2 and up, fd90:N::2 and up.

    Args:
        nodes: How many.
        is_routed: Pods have a cable of their own each, veth2 and up, as the CNI plugin ptp lays it, and no bridge.
    """

    def __init__(self, nodes: int = 2, *, is_routed: bool = False) -> None:
        self._is_routed = is_routed
        self._prefix = f"tn-{uuid.uuid4().hex[:6]}"
        self._spaces: list[Netns] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._sockets: list[socket.socket] = []
        self._pods = [0] * nodes
        try:
            self._build(nodes)
        except BaseException:
            self._delete()
            raise

    def _build(self, nodes: int) -> None:
        self.hub = self._add("hub")
        self.nodes = [self._node(number) for number in range(nodes)]
        self.hub.set(1, "ipv4/ip_forward", "ipv6/conf/all/forwarding")
        self.hub.configure(
            [
                f"addr add {OUTSIDE}/32 dev lo",
                *(f"route add 10.90.{n}.0/24 via 10.89.0.1{n}" for n in range(nodes)),
                *(f"route add fd90:{n}::/64 via fd89::1{n}" for n in range(nodes)),
            ]
        )

    def __enter__(self) -> Self:
        """Return the fabric as it is."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete all namespaces and links."""
        for task in self._tasks:
            task.cancel()
        for each in self._sockets:
            each.close()
        self._delete()

    def _delete(self) -> None:
        for space in reversed(self._spaces):
            space.delete()

    def outside(self) -> Endpoint:
        """Return the endpoint outside all pods and nodes."""
        return Endpoint(self.hub, (OUTSIDE,))

    def node(self, number: int) -> Endpoint:
        """Return the endpoint of a node's own processes."""
        return Endpoint(self.nodes[number], (f"10.89.0.1{number}", f"fd89::1{number}"))

    def pod(self, node: int) -> Endpoint:
        """Add a pod to a node."""
        self._pods[node] += 1
        number = self._pods[node] + 1
        v4, v6 = f"10.90.{node}.{number}", str(ipaddress.ip_address(f"fd90:{node}::{number:x}"))
        place = self._add(f"p{node}-{number}")
        gateways = f"10.90.{node}.1", f"fd90:{node}::1"
        if self._is_routed:
            self._route(self.nodes[node], number, place, (v4, v6), gateways)
        else:
            self._bridge(self.nodes[node], number, place)
        place.configure(
            [
                f"addr add {v4}/24 dev eth0",
                f"addr add {v6}/64 dev eth0 nodad",
                "link set eth0 up",
                *(self._only(gateways) if self._is_routed else ()),
                f"route add default via {gateways[0]}",
                f"route add ::/0 via {gateways[1]}",
            ]
        )
        return Endpoint(place, (v4, v6))

    @staticmethod
    def _bridge(node: Netns, number: int, place: Netns) -> None:
        node.configure(
            [
                f"link add v{number} type veth peer name eth0 netns {place.name}",
                f"link set v{number} master cni0",
                # As the CNI plugin bridge with hairpinMode: a pod reaches itself through a service.
                f"link set v{number} type bridge_slave hairpin on",
                f"link set v{number} up",
            ]
        )

    @staticmethod
    def _route(node: Netns, number: int, place: Netns, own: Iterable[str], gateways: Iterable[str]) -> None:
        cable = f"veth{number}"
        node.configure(
            [
                f"link add {cable} type veth peer name eth0 netns {place.name}",
                f"link set {cable} up",
                *(f"addr add {each} dev {cable} {'nodad' if ':' in each else ''}" for each in gateways),
                *(f"route add {each} dev {cable}" for each in own),
            ]
        )

    @staticmethod
    def _only(gateways: Iterable[str]) -> list[str]:
        """Return the commands that route a pod's neighbours through its gateway."""
        v4, v6 = gateways
        return [
            f"route del {v4.rsplit('.', 1)[0]}.0/24 dev eth0",
            f"route del {v6.removesuffix('1')}/64 dev eth0",
            f"route add {v4} dev eth0",
            f"route add {v6} dev eth0",
        ]

    async def serve(self, endpoint: Endpoint, ports: Iterable[int]) -> None:
        """Serve ports of TCP and UDP at all addresses of an endpoint."""
        for port in ports:
            for address in endpoint.addresses:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    found = self._listener(endpoint.place, address, port, kind)
                    served = _accept(found, _answer) if kind == socket.SOCK_STREAM else _echo(found)
                    self._tasks.append(asyncio.create_task(served))

    async def serve_http(self, endpoint: Endpoint, port: int, text: str) -> None:
        """Serve a text by HTTP at all addresses of an endpoint."""
        for address in endpoint.addresses:
            listener = self._listener(endpoint.place, address, port, socket.SOCK_STREAM)
            self._tasks.append(asyncio.create_task(_accept(listener, lambda each: _send_page(each, text))))

    def _listener(self, place: Netns, address: str, port: int, kind: int) -> socket.socket:
        family = _family(address)
        found = place.inside(lambda: socket.socket(family, kind))
        self._sockets.append(found)
        found.setblocking(False)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address, port))
        if kind == socket.SOCK_STREAM:
            found.listen(64)
        return found

    def _node(self, number: int) -> Netns:
        node = self._add(f"n{number}")
        if number == 0:
            self.hub.configure(["link add dp0 type bridge", "link set dp0 up"])
            self.hub.configure(["addr add 10.89.0.1/24 dev dp0", "addr add fd89::1/64 dev dp0 nodad"])
        self.hub.configure(
            [
                f"link add n{number} type veth peer name eth0 netns {node.name}",
                f"link set n{number} master dp0",
                f"link set n{number} up",
            ]
        )
        node.set(1, "ipv4/ip_forward", "ipv6/conf/all/forwarding")
        node.configure(
            [
                f"addr add 10.89.0.1{number}/24 dev eth0",
                f"addr add fd89::1{number}/64 dev eth0 nodad",
                "link set eth0 up",
                *([] if self._is_routed else _bridge_of(number)),
                # The hub routes everything except this node's pods.
                "route add default via 10.89.0.1",
                "route add ::/0 via fd89::1",
            ]
        )
        return node

    def _add(self, name: str) -> Netns:
        space = Netns(f"{self._prefix}-{name}")
        self._spaces.append(space)
        return space


def _bridge_of(number: int) -> list[str]:
    return [
        "link add cni0 type bridge",
        f"addr add 10.90.{number}.1/24 dev cni0",
        f"addr add fd90:{number}::1/64 dev cni0 nodad",
        "link set cni0 up",
    ]


async def connects(source: Endpoint, attempt: ConnectionAttempt, *, seconds: float) -> bool:
    """Return whether a real connection succeeds within a time limit; an answer proves both directions."""
    async with source.open(attempt) as opened:
        return await opened.is_answered(seconds=seconds)


async def mismatches(
    attempts: Iterable[tuple[Endpoint, ConnectionAttempt, bool]],
    *,
    seconds: float = 0.6,
    patience: float = PATIENCE_SECONDS,
    at_once: int = 400,
) -> list[str]:
    """Return the attempts whose result differs from the expected one.

    An allowed connection that fails is tried again with a longer limit: the machine may be busy.

    Args:
        attempts: The source, the attempt, and whether it must succeed.
        seconds: The time limit of one attempt.
        patience: The longer limit for an allowed connection.
        at_once: The number of concurrent attempts.
    """
    gate = asyncio.Semaphore(at_once)

    async def one(source: Endpoint, attempt: ConnectionAttempt, expected: bool) -> str:  # noqa: FBT001 - a row of a table
        async with gate:
            found = await connects(source, attempt, seconds=seconds)
            if expected and not found:
                found = await connects(source, attempt, seconds=patience)
        wanted = "to connect" if expected else "not to connect"
        return "" if found == expected else f"{attempt} ought {wanted}"

    return [each for each in await asyncio.gather(*(one(*row) for row in attempts)) if each]


async def _accept(listener: socket.socket, answer: Callable[[socket.socket], Coroutine[None, None, None]]) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        while True:
            accepted, _ = await loop.sock_accept(listener)
            group.create_task(answer(accepted))


async def _send_page(accepted: socket.socket, text: str) -> None:
    loop = asyncio.get_running_loop()
    request = b""
    with accepted, suppress(OSError):
        while b"\r\n\r\n" not in request:
            data = await loop.sock_recv(accepted, 1024)
            if not data:
                return
            request += data
        head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
        await loop.sock_sendall(accepted, (head + text).encode())


async def page(source: Endpoint, target: str, port: int, *, host: str, seconds: float = PATIENCE_SECONDS) -> str:
    """Return status and text that a visitor of a host gets by HTTP, as in "200 welcome"; "" if nothing answers.

    Args:
        source: The visitor.
        target: The address of the server.
        port: Of the server.
        host: The name that the visitor asks for.
        seconds: The time limit.
    """

    def ask() -> str:
        connection = http.client.HTTPConnection(target, port, timeout=seconds)
        try:
            connection.request("GET", "/", headers={"Host": host})
            answer = connection.getresponse()
            return f"{answer.status} {answer.read().decode()}"
        except OSError:
            return ""
        finally:
            connection.close()

    return await asyncio.to_thread(source.place.inside, ask)


async def _answer(accepted: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with accepted, suppress(OSError):
        while data := await loop.sock_recv(accepted, 1024):
            await loop.sock_sendall(accepted, data)


async def _echo(bound: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        data, source = await loop.sock_recvfrom(bound, 64)
        with suppress(OSError):
            await loop.sock_sendto(bound, data, source)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _call(*command: str, text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout

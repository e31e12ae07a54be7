"""The tunnel to nodes without a route: who opens it, what it carries, and where its agent connects (X03)."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenantry.api.contributednode import ContributedMachine
from tenantry.api.model import ObjectMeta
from tenantry.api.nodehandover import (
    HandoverPlane,
    HandoverStage,
    NodeHandover,
    NodeHandoverSpec,
    NodeHandoverStatus,
)
from tenantry.controllers.virtualcontrolplane.ownmachines import machines, of_own_nodes
from tenantry.engine.sockets import short_path
from tenantry.hosting import frames, nodetunnels, tunnelapi
from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.hosting.destinations import Destination, Direct, Refused, TunnelEntry, Tunnelled
from tenantry.hosting.frames import FrameError, MessageKind, TunnelMessage
from tenantry.hosting.gate import Gate
from tenantry.hosting.mux import StreamMux
from tenantry.hosting.nodetunnels import NodeTunnels
from tenantry.hosting.outside import OutsideRule, networks
from tenantry.hosting.tunnel import ByteStream
from tenantry.local import x509
from tenantry.nodeagent.tunnel import TunnelOptions, admits
from testkit.egress import echo, listening

pytestmark = pytest.mark.timeout(60)

NODE, ADDRESS, PODS = "outside-abc123", "192.168.7.5", "10.200.1.0/24"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
PLANE = HandoverPlane(namespace="acme", name="prod", uid="p-1")


# -- destinations ---------------------------------------------------------------------------------


def handover(name: str, address: str, pods: str, *, outside: bool) -> NodeHandover:
    """Return the NodeHandover of a machine that has joined."""
    given = ContributedMachine(addresses=(address,), pod_range=pods)
    spec = NodeHandoverSpec(plane=PLANE, slice="" if outside else "s")
    return NodeHandover(
        metadata=ObjectMeta(name=name),
        spec=replace(spec, contributed=given) if outside else spec,
        status=NodeHandoverStatus(stage=HandoverStage.JOINED, addresses=(address,), pod_range=pods),
    )


OWN = handover("n-1", "10.113.128.11", "10.113.1.0/24", outside=False)
OUTSIDE = handover(NODE, ADDRESS, PODS, outside=True)


def decided(*of: NodeHandover, host: str, port: int, opened: bool = True, egress: tuple[str, ...] = ()) -> Destination:
    """Return where the gate leads a connection."""
    rule = OutsideRule(cidrs=networks(egress))
    return of_own_nodes(lambda: rule, lambda: machines(of, "p-1"), lambda _: opened)(host, port)


def test_a_machine_from_outside_is_reached_through_its_tunnel_only() -> None:
    assert decided(OUTSIDE, host=ADDRESS, port=10250) == Tunnelled(node=NODE, address=ADDRESS, port=10250)
    assert decided(OUTSIDE, host="10.200.1.9", port=8443) == Tunnelled(node=NODE, address="10.200.1.9", port=8443)
    assert isinstance(decided(OUTSIDE, host=ADDRESS, port=22), Refused)
    for host in (ADDRESS, "10.200.1.9"):
        closed = decided(OUTSIDE, host=host, port=10250, opened=False)
        assert isinstance(closed, Refused)
        assert "tunnel is not open" in closed.reason
    assert isinstance(decided(host=tunnelapi.ADDRESS, port=tunnelapi.PORT), TunnelEntry)
    assert isinstance(decided(host=tunnelapi.ADDRESS, port=80), Refused)


@pytest.mark.parametrize("claimed", ["10.113.128.11", "10.113.128.1", "127.0.0.1", "10.0.0.1", "169.254.169.254"])
@pytest.mark.parametrize("opened", [True, False])
def test_no_entry_makes_the_gate_dial_an_address(claimed: str, *, opened: bool) -> None:
    """Attack: an entry with an address of the provider, or of another node, leads at most to its own machine."""
    liar = handover(NODE, claimed, "10.113.1.0/24", outside=True)
    for host in (claimed, "10.113.1.7"):
        found = decided(OWN, liar, host=host, port=10250, opened=opened)
        is_of_own = host in {"10.113.128.11", "10.113.1.7"}
        assert (found == Direct(address=host, port=10250)) is is_of_own, "that of the machine of the host"
        if not is_of_own:
            assert found == Tunnelled(node=NODE, address=claimed, port=10250) or isinstance(found, Refused)


def test_an_administrator_allows_a_route_to_a_machine() -> None:
    found = decided(OUTSIDE, host=ADDRESS, port=10250, opened=False, egress=("192.168.7.0/24",))
    assert not isinstance(found, Refused | Direct)


# -- the agent ------------------------------------------------------------------------------------


@given(address=st.ip_addresses(), port=st.integers(1, 65535))
def test_an_agent_connects_to_its_kubelet_and_its_pods_and_to_nothing_else(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    options = TunnelOptions(
        kubeconfig=Path("none"), node=NODE, addresses=(ADDRESS,), pods=ipaddress.ip_network("10.0.0.0/9")
    )
    assert admits(options, ADDRESS, 10250)
    assert not admits(options, ADDRESS, 22)
    assert admits(options, str(address), port) is (address in options.pods)


# -- frames ---------------------------------------------------------------------------------------


@given(address=st.ip_addresses(), port=st.integers(1, 65535), stream=st.integers(0, 2**32 - 1))
def test_a_destination_arrives_as_it_was_sent(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, stream: int
) -> None:
    again = frames.unpack(frames.pack(frames.dial(stream, str(address), port)))
    assert (again.kind, again.stream) == (MessageKind.DIAL, stream)
    assert frames.dialled(again) == (str(address), port)


@given(st.binary(min_size=1, max_size=100))
def test_bytes_that_name_no_destination_end_the_tunnel(data: bytes) -> None:
    message = TunnelMessage(MessageKind.DIAL, 1, data)
    try:
        address, port = frames.dialled(message)
    except FrameError:
        return
    assert frames.dialled(frames.unpack(frames.pack(frames.dial(1, address, port)))) == (address, port)


@pytest.mark.parametrize(
    "text", [b"[10.0.0.1]:0", b"[10.0.0.1]:65536", b"10.0.0.1:1", b"[a.example.com]:1", b"[fe80::1%eth0]:1", b"[::]:1x"]
)
def test_a_destination_is_an_address_and_a_port(text: bytes) -> None:
    with pytest.raises(FrameError):
        frames.dialled(TunnelMessage(MessageKind.DIAL, 1, text))


# -- the gate -------------------------------------------------------------------------------------


class World:
    """A gate with tunnels, and an API server that forwards requests to it.

    Args:
        folder: For certificates and the socket.
        answer_seconds: How long a tunnel may take to answer.
    """

    def __init__(self, folder: Path, *, answer_seconds: float = nodetunnels.ANSWER_SECONDS) -> None:
        self.folder = folder
        self.admitted = {NODE}
        now = dt.datetime.now(dt.UTC)
        end = now + dt.timedelta(hours=1)
        for ca in ("front", "other"):
            x509.write_authority(folder, ca, now, end)
        for name, ca in (("proxy", "front"), ("stranger", "other")):
            x509.write_leaf(folder, name, LeafCertificate(ca=ca, user="front-proxy-client"), now, end)
        server = LeafCertificate(ca="other", user="kubelet", use=CertificateUse.SERVER, names=("localhost",))
        x509.write_leaf(folder, "server", server, now, end)
        self.tunnels = NodeTunnels(lambda node: node in self.admitted, self._tls, answer_seconds=answer_seconds)
        self.path = folder / "s"
        self.opened: list[asyncio.StreamWriter] = []

    async def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.folder / "front.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        return context

    def decide(self, host: str, port: int) -> Destination:
        """Return the entry, or a pod of the node."""
        if (host, port) == (tunnelapi.ADDRESS, tunnelapi.PORT):
            return TunnelEntry()
        return Tunnelled(node=NODE, address=host, port=port)

    async def connected(self, host: str, port: int) -> tuple[ByteStream, bytes]:
        """Connect through the gate; return the stream, and the first line of the answer."""
        with short_path(self.path) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        self.opened.append(writer)
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return ByteStream(reader, writer), head.splitlines()[0]

    async def entered(self, identity: str = "proxy") -> ByteStream:
        """Connect to the aggregated API as an API server, with a client certificate."""
        outer, line = await self.connected(tunnelapi.ADDRESS, tunnelapi.PORT)
        assert b" 200 " in line
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(self.folder / f"{identity}.crt", self.folder / f"{identity}.key")
        await outer.writer.start_tls(context)
        return outer

    async def asked(
        self, path: str = "", *, user: str = f"system:node:{NODE}", group: str = "system:nodes", identity: str = "proxy"
    ) -> tuple[ByteStream, int]:
        """Ask for a tunnel; return the stream and the status."""
        stream = await self.entered(identity)
        lines = [
            f"GET {path or tunnelapi.path_of(NODE)} HTTP/1.1",
            *("Host: x", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
            *(f"Sec-WebSocket-Key: {KEY}", f"X-Remote-User: {user}", f"X-Remote-Group: {group}"),
        ]
        stream.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = await stream.reader.readuntil(b"\r\n\r\n")
        return stream, int(head.split(b" ")[1])


@asynccontextmanager
async def opened(found: World) -> AsyncGenerator[World]:
    """Open a gate."""
    async with Gate(found.path, found.decide, tunnels=found.tunnels).serve():
        yield found
        for each in found.opened:
            each.transport.abort()
        await asyncio.sleep(0)


@pytest.fixture(name="world")
async def gate_world(tmp_path: Path) -> AsyncGenerator[World]:
    """Return a gate that is open."""
    async with opened(World(tmp_path)) as found:
        yield found


@asynccontextmanager
async def agent(world: World, port: int) -> AsyncGenerator[list[tuple[str, int]]]:
    """Open the tunnel of the node, and connect its streams to a port; yield what was asked for."""
    stream, status = await world.asked()
    assert status == 101
    dialled: list[tuple[str, int]] = []

    async def dial(address: str, to: int) -> ByteStream:
        dialled.append((address, to))
        if to != 8080:
            raise ConnectionRefusedError
        return ByteStream(*await asyncio.open_connection("127.0.0.1", port))

    mux = StreamMux(stream, is_client=True, dial=dial)

    async def run() -> None:
        with suppress(FrameError, OSError, EOFError):
            await mux.run()

    running = asyncio.create_task(run())
    try:
        yield dialled
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_bytes_pass_through_the_tunnel_of_a_node(world: World) -> None:
    _, line = await world.connected("10.200.1.9", 8080)
    assert b" 503 " in line, "before there is a tunnel"
    async with listening(echo) as port, agent(world, port) as dialled:
        assert world.tunnels.is_open(NODE)
        stream, line = await world.connected("10.200.1.9", 8080)
        assert b" 200 " in line
        stream.writer.write(b"ping")
        stream.writer.write_eof()
        assert await stream.reader.read() == b"ping"
        # What the agent refuses ends; the tunnel goes on.
        refused, _ = await world.connected("10.200.1.9", 22)
        assert await refused.reader.read() == b""
        assert dialled == [("10.200.1.9", 8080), ("10.200.1.9", 22)]
        assert world.tunnels.is_open(NODE)


async def test_a_node_that_may_have_no_tunnel_any_more_loses_it(world: World) -> None:
    async with listening(echo) as port, agent(world, port):
        stream, _ = await world.connected("10.200.1.9", 8080)
        world.admitted.clear()
        world.tunnels.recheck()
        assert await stream.reader.read() == b""
        await world.tunnels.ended(NODE)
        assert not world.tunnels.is_open(NODE)
    _, status = await world.asked()
    assert status == 403


@pytest.mark.parametrize(
    ("path", "user", "group", "status"),
    [
        (tunnelapi.path_of("outside-other1"), f"system:node:{NODE}", "system:nodes", 403),
        (tunnelapi.path_of(NODE), "system:node:outside-other1", "system:nodes", 403),
        (tunnelapi.path_of(NODE), "ada", "system:masters", 403),
        (tunnelapi.path_of(NODE), f"system:node:{NODE}", "system:authenticated", 403),
        ("/apis/tunnel.tenantry.dev/v1/nodes", f"system:node:{NODE}", "system:nodes", 404),
        ("/apis", f"system:node:{NODE}", "system:nodes", 404),
    ],
)
async def test_only_the_node_itself_opens_its_tunnel(
    world: World, path: str, user: str, group: str, status: int
) -> None:
    _, found = await world.asked(path, user=user, group=group)
    assert found == status
    assert not world.tunnels.is_open(NODE)


async def test_headers_count_only_from_the_api_server(world: World) -> None:
    """A webhook or a proxy of a Service leads here, too, and sends headers as its user likes."""
    with pytest.raises((OSError, EOFError)):
        await world.asked(identity="stranger")
    assert not world.tunnels.is_open(NODE)


async def test_a_tunnel_that_answers_stays(world: World) -> None:
    async with listening(echo) as port, agent(world, port):
        _, status = await world.asked()
        assert status == 409
        assert world.tunnels.is_open(NODE)
    await world.tunnels.ended(NODE)
    assert not world.tunnels.is_open(NODE)


async def test_a_tunnel_that_is_silent_is_replaced(tmp_path: Path) -> None:
    async with opened(World(tmp_path, answer_seconds=0.1)) as world:
        silent, status = await world.asked()
        assert status == 101
        _, status = await world.asked()
        assert status == 101, "it answers no ping"
        # It gets the ping that it did not answer, and the end.
        assert (await silent.reader.read())[:1] == bytes([0x80 | frames.Opcode.PING])
        assert world.tunnels.is_open(NODE), "the second one"


async def test_a_node_asks_for_its_tunnel_at_a_bounded_rate(world: World) -> None:
    world.admitted.clear()
    found = [(await world.asked())[1] for _ in range(2 * nodetunnels.OPENINGS_PER_SECOND + 2)]
    assert 429 in found
    assert set(found) == {403, 429}


async def test_malformed_frames_end_the_tunnel(world: World) -> None:
    stream, status = await world.asked()
    assert status == 101
    # A stream that the machine begins: the gate accepts none.
    payload = frames.pack(TunnelMessage(MessageKind.OPEN, 1))
    stream.writer.write(frames.encode(frames.Opcode.BINARY, payload, b"\x01\x02\x03\x04"))
    assert await stream.reader.read() == b""
    assert not world.tunnels.is_open(NODE)


async def test_the_api_shows_no_resources_and_is_there(world: World) -> None:
    stream = await world.entered()
    stream.writer.write(f"GET {tunnelapi.ROOT}?timeout=5s HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await stream.reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"groupVersion":"tunnel.tenantry.dev/v1"' in answer


async def test_a_gate_without_tunnels_refuses_them(tmp_path: Path) -> None:
    found = World(tmp_path)
    async with Gate(found.path, found.decide).serve():
        stream, line = await found.connected(tunnelapi.ADDRESS, tunnelapi.PORT)
        assert b" 403 " in line
        stream.writer.transport.abort()

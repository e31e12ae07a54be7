"""The egress gate, on real sockets: a Unix socket in front, loopback and TLS behind it."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import ssl
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tenantry.api.errors import ConfigError
from tenantry.hosting import gate as gates
from tenantry.hosting import kubeletpaths, tunnel
from tenantry.hosting.destinations import Destination, Direct, Kubelet, Refused
from tenantry.hosting.gate import Gate, GateLimits
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.transport import Transport
from tenantry.local import pki
from tenantry.local.pki import CertificateUse, LeafCertificate

pytestmark = pytest.mark.timeout(60)
NODE = "node-1:10250"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


# -- a client, as kube-apiserver is one ---------------------------------------------------------


class Answer(NamedTuple):
    """A response to a request."""

    status: int
    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        return await self.reader.read()


@asynccontextmanager
async def asked(path: Path, request: bytes) -> AsyncGenerator[Answer]:
    """Send bytes to the gate, and read the head of its response."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        with suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        yield await answer(reader, writer)
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
    """Read the head of a response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return Answer(int(head.split(" ")[1]), head, reader, writer)


def connecting(path: Path, target: str) -> AbstractAsyncContextManager[Answer]:
    """Ask the gate for a connection."""
    return asked(path, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())


@asynccontextmanager
async def inside(path: Path, context: ssl.SSLContext, request: str) -> AsyncGenerator[Answer]:
    """Send a request to the kubelet of node-1."""
    async with connecting(path, NODE) as found:
        assert found.status == 200
        await found.writer.start_tls(context, server_hostname="node-1")
        found.writer.write(request.encode())
        yield await answer(found.reader, found.writer)
        found.writer.transport.abort()


def get(target: str) -> str:
    """Return a request for a log."""
    return f"GET {target} HTTP/1.1\r\nHost: {NODE}\r\nAuthorization: Bearer inner\r\n\r\n"


def spdy(target: str) -> str:
    """Return a request for a stream, as kube-apiserver sends it."""
    return (
        f"POST {target} HTTP/1.1\r\nHost: {NODE}\r\nUser-Agent: test\r\nContent-Length: 0\r\nConnection: Upgrade\r\n"
        "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v5.channel.k8s.io\r\n"
        "X-Stream-Protocol-Version: v4.channel.k8s.io\r\nAuthorization: Bearer inner\r\nImpersonate-User: admin\r\n\r\n"
    )


# -- servers ------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(handler: Handler) -> AsyncGenerator[int]:
    """Serve on loopback, and return the port; connections end with the context."""
    open_now: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            open_now.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        ending = [*open_now]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Return each chunk, and close with the client."""
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()
    # The other end may still have bytes to take.
    await writer.drain()
    writer.close()
    await writer.wait_closed()


class Host:
    """The host's API server: it records heads and plays the subresources of pods."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.more = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        match head.split(" ")[1].partition("?")[0].split("/")[-2:]:
            case ["web", "log"]:
                await self._log(reader, writer)
            case ["broken", "log"]:
                writer.write(_OK + b"4\r\nhalf\r\n")
                await writer.drain()
            case ["web", _]:
                writer.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nAudit-Id: x\r\n"
                    b"X-Stream-Protocol-Version: v5.channel.k8s.io\r\n\r\nfirst "
                )
                try:
                    await echo(reader, writer)
                finally:
                    self.left.set()
            case ["teapot", _]:
                await _respond(writer, "429 Too Many Requests", '{"kind":"Status","message":"slow\\ndown","code":429}')
            case ["unknown", _]:
                await _respond(writer, "401 Unauthorized", "{}")
            case _:
                await _respond(writer, "404 Not Found", '{"kind":"Status","message":"no such pod","code":404}')

    async def _log(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_OK + b"6\r\nline1\n\r\n")
        await writer.drain()
        waiting = asyncio.gather(self.more.wait(), return_exceptions=True)
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait([waiting, gone], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if gone.done():
            self.left.set()
            return
        writer.write(b"6\r\nline2\n\r\n0\r\n\r\n")
        await writer.drain()
        await gone


_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


async def _respond(writer: asyncio.StreamWriter, status: str, body: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
    await writer.drain()


# -- certificates -------------------------------------------------------------------------------


class Certificates(NamedTuple):
    """TLS contexts of the gate, and of clients with certificates of the same and another authority, and with none."""

    server: ssl.SSLContext
    known: ssl.SSLContext
    stranger: ssl.SSLContext
    none: ssl.SSLContext


@pytest.fixture(name="tls", scope="module")
def make_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certificates]:
    """Issue certificates of two authorities."""
    folder = tmp_path_factory.mktemp("pki")
    leaves = {
        "server": LeafCertificate(ca="ca", user="node-1", use=CertificateUse.SERVER, names=("node-1",)),
        "known": LeafCertificate(ca="ca", user="kube-apiserver-kubelet-client"),
        "stranger": LeafCertificate(ca="other-ca", user="kube-apiserver-kubelet-client"),
    }
    pki.ensure(folder, leaves, dt.datetime.now(dt.UTC))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.verify_mode = ssl.CERT_REQUIRED
    clients: list[ssl.SSLContext] = []
    for name in ("known", "stranger", ""):
        client = ssl.create_default_context(cafile=folder / "ca.crt")
        if name:
            client.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
        clients.append(client)
    yield Certificates(server, *clients)


# -- gates --------------------------------------------------------------------------------------


@asynccontextmanager
async def direct(path: Path, handler: Handler, limits: GateLimits | None = None) -> AsyncGenerator[Gate]:
    """Serve a gate whose only destination is a server with this handler."""
    async with listening(handler) as port:

        def decide(host: str, _: int) -> Destination:
            return Direct(address="127.0.0.1", port=port) if host == "web.shop.svc" else Refused(reason=f"not {host}")

        gate = Gate(path, decide, limits=limits)
        async with gate.serve():
            yield gate


@asynccontextmanager
async def nodes(path: Path, context: ssl.SSLContext, server: str = "") -> AsyncGenerator[Host]:
    """Serve a gate that plays kubelets, in front of a host."""
    host = Host()
    async with listening(host.serve) as port:
        connection = Connection(server=server or f"http://127.0.0.1:{port}", source="/secret/kubeconfig", token="outer")
        async with Transport(connection) as transport:
            translate = partial(kubeletpaths.translate, locate=lambda _, pod, __: ("acme", pod))
            inputs = KubeletInputs(tls=context, translate=translate, transport=transport)
            async with Gate(path, lambda host, _: Kubelet(node=host), kubelet=inputs).serve():
                yield host


@pytest.fixture(name="path")
def socket_path(tmp_path: Path) -> Path:
    """Return the path of a socket."""
    return tmp_path / "s"


WEB = "web.shop.svc:443"


async def test_only_the_user_may_connect(path: Path) -> None:
    async with direct(path, echo):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_the_socket_of_an_ended_gate_is_replaced(path: Path) -> None:
    async with direct(path, echo), direct(path, echo), connecting(path, WEB) as found:
        assert found.status == 200


async def test_a_file_in_the_place_of_the_socket_stays(path: Path) -> None:
    path.write_text("kept")
    with pytest.raises(OSError, match="in use"):
        async with Gate(path, lambda *_: Refused(reason="")).serve():
            raise AssertionError
    assert path.read_text() == "kept"


async def test_refused_destinations_get_the_reason(path: Path) -> None:
    async with direct(path, echo), connecting(path, "169.254.169.254:80") as found:
        assert found.head.startswith("HTTP/1.1 403 Forbidden: not 169.254.169.254\r\n")
        assert await found.rest() == b"not 169.254.169.254\n"


async def test_a_node_without_kubelet_inputs_is_refused(path: Path) -> None:
    async with Gate(path, lambda *_: Kubelet(node="n")).serve(), connecting(path, NODE) as found:
        assert found.status == 403


def test_destinations_are_addresses() -> None:
    """A name would be resolved after the decision."""
    with pytest.raises(ValueError, match="localhost"):
        Direct(address="localhost", port=80)


async def test_bytes_pass_both_ways_and_ends_pass_one_by_one(path: Path) -> None:
    async def summing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        digest = hashlib.sha256(await reader.read()).hexdigest()
        writer.write(digest.encode())
        writer.close()
        await writer.wait_closed()

    sent = bytes(range(256)) * 16384
    async with direct(path, summing) as gate:
        async with connecting(path, WEB) as found:
            assert found.head == "HTTP/1.1 200 Connection established\r\n\r\n"
            assert await found.reader.readexactly(5) == b"hello"
            found.writer.write(sent)
            found.writer.write_eof()
            assert (await found.rest()).decode() == hashlib.sha256(sent).hexdigest()
        await emptied(gate)


async def test_bytes_behind_the_request_pass(path: Path) -> None:
    request = f"CONNECT {WEB} HTTP/1.1\r\n\r\nearly".encode()
    async with direct(path, echo), asked(path, request) as found:
        assert await found.reader.readexactly(5) == b"early"


async def test_the_end_of_the_destination_ends_the_connection(path: Path) -> None:
    async def brief(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        await writer.drain()

    async with direct(path, brief) as gate, connecting(path, WEB) as found:
        assert await found.rest() == b"bye"
        found.writer.write_eof()
        await emptied(gate)


async def test_a_half_closed_connection_that_is_silent_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "HALF_CLOSED_SECONDS", 0.05)

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()
        await asyncio.Event().wait()

    async with direct(path, silent) as gate, connecting(path, WEB) as found:
        found.writer.write_eof()
        with suppress(ConnectionError):
            assert await found.rest() == b""
        await emptied(gate)


async def test_a_slow_reader_slows_the_sender(path: Path) -> None:
    """The gate holds a bounded number of bytes for each connection."""
    go = asyncio.Event()
    received: list[int] = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        received.append(len(await reader.read()))
        writer.write(b"done")
        await writer.drain()

    chunk, most = bytes(65536), 64 * 1024 * 1024
    async with direct(path, slow), connecting(path, WEB) as found:
        sent = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while sent < most:
                    found.writer.write(chunk)
                    sent += len(chunk)
                    await found.writer.drain()
        assert sent < most
        go.set()
        found.writer.write_eof()
        assert await found.rest() == b"done"
        assert received == [sent]


async def test_an_unreachable_destination_is_reported(path: Path) -> None:
    async with listening(echo) as port:
        pass
    gate = Gate(path, lambda *_: Direct(address="127.0.0.1", port=port))
    async with gate.serve(), connecting(path, WEB) as found:
        assert found.head.startswith("HTTP/1.1 502 Bad Gateway: the destination cannot be reached: Connection refused")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 405),
        (b"GET http://web.shop.svc/ HTTP/1.1\r\n\r\n", 405),
        (b"connect web.shop.svc:443 HTTP/1.1\r\n\r\n", 405),
        (b"CONNECT web.shop.svc HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT web.shop.svc:443\r\n\r\n", 400),
        (b"CONNECT web.shop.svc:443 HTTP/1.0\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"CONNECT web.shop.svc:443 HTTP/1.1\r\nX: " + b"y" * 9000, 431),
        (b"CONNECT web.shop.svc:443 HTTP/1.1\r\nX: " + b"y" * 9000 + b"\r\n\r\n", 431),
    ],
)
async def test_other_requests_are_refused(path: Path, request_bytes: bytes, status: int) -> None:
    async with direct(path, echo) as gate, asked(path, request_bytes) as found:
        assert found.status == status
        await emptied(gate)


async def test_a_late_request_is_refused(path: Path) -> None:
    limits = GateLimits(head_seconds=0.05)
    async with direct(path, echo, limits), asked(path, b"CONNECT ") as found:
        assert found.status == 408


async def test_a_client_that_leaves_early_leaves_nothing(path: Path) -> None:
    async with direct(path, echo) as gate:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"CONN")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await emptied(gate)


async def test_connections_above_the_limit_get_503(path: Path) -> None:
    async with (
        direct(path, echo, GateLimits(open_connections=2)) as gate,
        connecting(path, WEB) as first,
    ):
        async with connecting(path, WEB) as second, connecting(path, WEB) as third:
            assert (first.status, second.status) == (200, 200)
            assert third.head.startswith("HTTP/1.1 503 Service Unavailable: too many connections are open\r\n")
        await emptied(gate, 1)
        async with connecting(path, WEB) as fourth:
            assert fourth.status == 200


async def test_connections_above_the_rate_get_503(path: Path) -> None:
    async with direct(path, echo, GateLimits(connections_per_second=0)), connecting(path, WEB) as found:
        assert found.head.startswith("HTTP/1.1 503 Service Unavailable: too many connections in a short time\r\n")


def test_the_rate_is_a_token_bucket() -> None:
    bucket = gates._TokenBucket(50, 100.0)
    assert [bucket.take(100.0) for _ in range(51)] == [True] * 50 + [False]
    assert [bucket.take(100.125) for _ in range(7)] == [True] * 6 + [False]
    assert [bucket.take(1000.0) for _ in range(51)] == [True] * 50 + [False]


async def test_the_end_of_the_gate_ends_all_connections(path: Path) -> None:
    async with AsyncExitStack() as clients:
        async with direct(path, echo) as gate:
            tunnel_open = await clients.enter_async_context(connecting(path, WEB))
            reader, writer = await asyncio.open_unix_connection(str(path))
            clients.callback(writer.transport.abort)
            await emptied(gate, 2)
        assert gate.open_connections == 0
        for each in (tunnel_open.reader, reader):
            with suppress(ConnectionError):
                assert await each.read() == b""
        with pytest.raises(OSError, match=r"No such file|refused"):
            await asyncio.open_unix_connection(str(path))


async def test_a_rule_that_fails_ends_only_its_connection(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def decide(host: str, _: int) -> Destination:
        if host == "bug":
            raise KeyError(host)
        return Refused(reason="no")

    async with Gate(path, decide).serve():
        async with connecting(path, "bug:1") as found:
            assert found.status == 500
        async with connecting(path, "other:1") as found:
            assert found.status == 403
    assert "a connection failed" in caplog.text


# -- kubelets -----------------------------------------------------------------------------------


async def test_a_context_without_client_certificates_is_refused(tls: Certificates) -> None:
    async with Transport(Connection(server="http://127.0.0.1:1", source="test")) as transport:
        for mode in (ssl.CERT_NONE, ssl.CERT_OPTIONAL):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.verify_mode = mode
            with pytest.raises(ConfigError, match="must require client certificates"):
                KubeletInputs(tls=context, translate=lambda *_: None, transport=transport)
        assert KubeletInputs(tls=tls.server, translate=lambda *_: None, transport=transport)


@pytest.mark.parametrize("client", ["stranger", "none"])
async def test_clients_without_a_certificate_of_the_authority_are_refused(
    path: Path, tls: Certificates, client: str
) -> None:
    async with nodes(path, tls.server) as host:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with inside(path, getattr(tls, client), get("/containerLogs/shop/web/main")):
                raise AssertionError
        assert host.heads == []


async def test_requests_without_tls_are_refused(path: Path, tls: Certificates) -> None:
    async with nodes(path, tls.server) as host, connecting(path, NODE) as found:
        found.writer.write(get("/containerLogs/shop/web/main").encode())
        with suppress(ConnectionError):
            assert b"HTTP/1.1" not in await found.rest()
        assert host.heads == []


async def test_bytes_before_the_handshake_do_not_count_as_encrypted(path: Path, tls: Certificates) -> None:
    """The same mistake in STARTTLS of mail servers: CVE-2011-0411."""
    early = f"CONNECT {NODE} HTTP/1.1\r\n\r\n{get('/containerLogs/shop/early/main')}".encode()
    async with nodes(path, tls.server) as host, asked(path, early) as found:
        await found.writer.start_tls(tls.known, server_hostname="node-1")
        found.writer.write(get("/containerLogs/shop/late/main").encode())
        assert (await answer(found.reader, found.writer)).status == 404
        assert [head.split(" ")[1] for head in host.heads] == ["/api/v1/namespaces/acme/pods/late/log?container=main"]


async def test_logs_are_streamed_as_they_come(path: Path, tls: Certificates) -> None:
    async with (
        nodes(path, tls.server) as host,
        inside(path, tls.known, get("/containerLogs/shop/web/main?follow=true")) as found,
    ):
        assert found.status == 200
        assert "\r\nTransfer-Encoding: chunked\r\n" in found.head
        assert await found.reader.readexactly(11) == b"6\r\nline1\n\r\n"
        host.more.set()
        assert await found.rest() == b"6\r\nline2\n\r\n0\r\n\r\n"
        (head,) = host.heads
        assert head.startswith("GET /api/v1/namespaces/acme/pods/web/log?container=main&follow=true HTTP/1.1\r\n")
        assert "Bearer outer" in head
        assert "inner" not in head


async def test_a_client_that_leaves_ends_the_request_to_the_host(path: Path, tls: Certificates) -> None:
    async with nodes(path, tls.server) as host:
        async with inside(path, tls.known, get("/containerLogs/shop/web/main?follow=true")) as found:
            await found.reader.readexactly(11)
        await host.left.wait()


async def test_a_log_that_breaks_off_has_no_last_chunk(path: Path, tls: Certificates) -> None:
    async with nodes(path, tls.server), inside(path, tls.known, get("/containerLogs/shop/broken/main")) as found:
        rest = b""
        with suppress(ConnectionError):
            rest = await found.rest()
        assert rest in {b"", b"4\r\nhalf\r\n"}


async def test_exec_is_upgraded_and_carries_bytes_both_ways(path: Path, tls: Certificates) -> None:
    async with nodes(path, tls.server) as host:
        request = spdy("/exec/shop/web/main?command=ls&command=-l&output=1")
        async with inside(path, tls.known, request) as found:
            assert found.head == (
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nupgrade: SPDY/3.1\r\n"
                "x-stream-protocol-version: v5.channel.k8s.io\r\n\r\n"
            )
            assert await found.reader.readexactly(6) == b"first "
            sent = bytes(range(256)) * 4096
            found.writer.write(sent)
            assert await found.reader.readexactly(len(sent)) == sent
        await host.left.wait()
        (head,) = host.heads
        line, *headers = head.removesuffix("\r\n\r\n").split("\r\n")
        query = "container=main&command=ls&command=-l&stdout=true"
        assert line == f"POST /api/v1/namespaces/acme/pods/web/exec?{query} HTTP/1.1"
        names = [header.partition(":")[0].lower() for header in headers]
        assert names.count("x-stream-protocol-version") == 2
        assert "impersonate-user" not in names
        assert "inner" not in head


@pytest.mark.parametrize("subresource", ["attach", "portForward"])
async def test_other_streams_are_upgraded(path: Path, tls: Certificates, subresource: str) -> None:
    target = f"/{subresource}/shop/web" + ("/main" if subresource == "attach" else "")
    async with nodes(path, tls.server) as host, inside(path, tls.known, spdy(target)) as found:
        assert found.status == 101
        assert f"/pods/web/{subresource.lower()}" in host.heads[0]


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (get("/pods"), 404),
        (get("/exec/../shop/web/main"), 404),
        (get("/exec/shop/web/main?command=ls"), 400),
        (spdy("/containerLogs/shop/web/main"), 404),
        (spdy("/exec/shop/web/main").replace("Content-Length: 0", "Content-Length: 5"), 400),
        (get("/containerLogs/shop/web/main").replace("HTTP/1.1", "HTTP/1.0"), 505),
        (get(f"/containerLogs/shop/web/main?x={'y' * 70000}"), 431),
    ],
)
async def test_requests_that_are_not_admitted_do_not_reach_the_host(
    path: Path, tls: Certificates, request_text: str, status: int
) -> None:
    async with nodes(path, tls.server) as host, inside(path, tls.known, request_text) as found:
        assert found.status == status
        assert host.heads == []


@pytest.mark.parametrize("request_of", [get, spdy])
@pytest.mark.parametrize(
    ("pod", "status", "message"),
    [
        ("missing", 404, b"no such pod\n"),
        ("teapot", 429, b"slow down\n"),
        # A client would take 401 for its own credentials, and the text names a file of this machine.
        ("unknown", 502, b"the host's API server is not available\n"),
    ],
)
async def test_errors_of_the_host_are_passed_on(
    path: Path, tls: Certificates, request_of: Callable[[str], str], pod: str, status: int, message: bytes
) -> None:
    target = f"/{'exec' if request_of is spdy else 'containerLogs'}/shop/{pod}/main"
    async with nodes(path, tls.server), inside(path, tls.known, request_of(target)) as found:
        assert found.status == status
        assert await found.rest() == message


@pytest.mark.parametrize("request_of", [get, spdy])
async def test_a_host_that_is_away_is_reported_without_its_address(
    path: Path, tls: Certificates, request_of: Callable[[str], str]
) -> None:
    async with listening(echo) as port:
        pass
    target = f"/{'exec' if request_of is spdy else 'containerLogs'}/shop/web/main"
    async with (
        nodes(path, tls.server, f"http://127.0.0.1:{port}"),
        inside(path, tls.known, request_of(target)) as found,
    ):
        assert found.status == 502
        text = found.head + (await found.rest()).decode()
        assert "/secret" not in text
        assert "127.0.0.1" not in text


async def emptied(gate: Gate, count: int = 0) -> None:
    """Wait until the gate has this many connections."""
    while gate.open_connections != count:
        await asyncio.sleep(0.001)

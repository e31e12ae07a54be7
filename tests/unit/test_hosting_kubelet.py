"""The kubelet that the gate plays: TLS with client certificates in front, a host's API server behind it."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tenantry.api.errors import ConfigError
from tenantry.hosting import kubeletpaths
from tenantry.hosting.destinations import HostPath, Kubelet
from tenantry.hosting.gate import Gate
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.transport import Transport
from tenantry.local import pki
from tenantry.local.pki import CertificateUse, LeafCertificate
from testkit.egress import NODE, Answer, answer, asked, connecting, echo, listening

pytestmark = pytest.mark.timeout(60)


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


class Certificates(NamedTuple):
    """TLS contexts of the gate, and of clients with certificates of the same and another authority, and with none."""

    server: ssl.SSLContext
    known: ssl.SSLContext
    stranger: ssl.SSLContext
    none: ssl.SSLContext


@pytest.fixture(name="tls", scope="module")
def make_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
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
    return Certificates(server, *clients)


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


async def test_a_context_without_client_certificates_is_refused(tls: Certificates) -> None:
    async with Transport(Connection(server="http://127.0.0.1:1", source="test")) as transport:
        for mode in (ssl.CERT_NONE, ssl.CERT_OPTIONAL):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.verify_mode = mode
            with pytest.raises(ConfigError, match="must require client certificates"):
                KubeletInputs(tls=context, translate=nothing, transport=transport)
        assert KubeletInputs(tls=tls.server, translate=nothing, transport=transport)


def nothing(node: str, method: str, target: str) -> HostPath | None:
    """Admit no request."""
    del node, method, target


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


async def test_websockets_are_upgraded(path: Path, tls: Certificates) -> None:
    request = (
        f"GET /exec/shop/web/main?command=sh&input=1&tty=1 HTTP/1.1\r\nHost: {NODE}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Key: abc\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    )
    async with nodes(path, tls.server) as host, inside(path, tls.known, request) as found:
        assert found.status == 101
        (head,) = host.heads
        assert head.startswith(
            "GET /api/v1/namespaces/acme/pods/web/exec?container=main&command=sh&stdin=true&tty=true "
        )
        assert "\r\nsec-websocket-protocol: v5.channel.k8s.io\r\n" in head


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
    path: Path, tls: Certificates, *, request_of: Callable[[str], str], pod: str, status: int, message: bytes
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

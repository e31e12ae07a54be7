"""A kubelet port: TLS with client certificates on loopback, and an API server of aiohttp behind it."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from tenantry.api.errors import ConfigError
from tenantry.hosting import kubeletpaths
from tenantry.hosting.connections import ConnectionLimits
from tenantry.hosting.kubelet import KubeletInputs
from tenantry.hosting.kubeletserver import KubeletServer, serving_context
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.transport import Transport
from tenantry.local import pki
from tenantry.local.pki import CertificateUse, LeafCertificate
from testkit.egress import Answer, answer, echo, listening
from testkit.tunnels import flooded

pytestmark = pytest.mark.timeout(60)

API_SERVER = "kube-apiserver-kubelet-client"
LOG = "/containerLogs/shop/web/main?follow=true"
LOCATED = {("shop", "web", "edge"): ("acme", "web-1"), ("shop", "gone", "edge"): ("acme", "gone-1")}
NAMES = ("known", "other", "stranger")


class Certificates(NamedTuple):
    """The folder of certificates, and TLS contexts of clients by the name of their certificate; "" has none."""

    folder: Path
    clients: dict[str, ssl.SSLContext]

    def server(self, name: str = "server") -> ssl.SSLContext:
        """Return the context of a port."""
        return serving_context(*self.pair(name), (self.folder / "ca.crt").read_bytes())

    def pair(self, name: str) -> tuple[bytes, bytes]:
        """Return a certificate and its key."""
        return (self.folder / f"{name}.crt").read_bytes(), (self.folder / f"{name}.key").read_bytes()


@pytest.fixture(name="tls", scope="module")
def make_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Issue certificates of two authorities: "other" is another client of the right one."""
    folder = tmp_path_factory.mktemp("pki")
    leaves = {
        "server": LeafCertificate(ca="ca", user="system:node:edge", use=CertificateUse.SERVER, names=("127.0.0.1",)),
        "renewed": LeafCertificate(ca="ca", user="renewed", use=CertificateUse.SERVER, names=("127.0.0.1",)),
        "known": LeafCertificate(ca="ca", user=API_SERVER),
        "other": LeafCertificate(ca="ca", user="alice", group=API_SERVER),
        "stranger": LeafCertificate(ca="other-ca", user=API_SERVER),
    }
    pki.ensure(folder, leaves, dt.datetime.now(dt.UTC))
    clients: dict[str, ssl.SSLContext] = {}
    for name in (*NAMES, ""):
        clients[name] = ssl.create_default_context(cafile=folder / "ca.crt")
        if name:
            clients[name].load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return Certificates(folder, clients)


class Upstream:
    """The API server of the pods."""

    def __init__(self) -> None:
        self.targets: list[str] = []

    async def log(self, request: web.Request) -> web.StreamResponse:
        """Answer with a log."""
        self.targets.append(request.path_qs)
        if request.match_info["pod"] != "web-1":
            return web.json_response({"kind": "Status", "message": "no such pod", "code": 404}, status=404)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(f"as {request.headers['Authorization']}\n".encode())
        await response.write_eof()
        return response

    async def stream(self, request: web.Request) -> web.WebSocketResponse:
        """Return each message of a stream."""
        self.targets.append(f"{request.method} {request.path_qs}")
        sockets = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await sockets.prepare(request)
        async for message in sockets:
            await sockets.send_bytes(message.data)
        return sockets


@asynccontextmanager
async def upstream() -> AsyncGenerator[tuple[Upstream, str]]:
    """Serve the API server of the pods, and return its address."""
    found = Upstream()
    app = web.Application()
    pod = "/api/v1/namespaces/acme/pods/{pod}"
    app.router.add_get(f"{pod}/log", found.log)
    app.router.add_get(f"{pod}/{{subresource:exec|attach|portforward}}", found.stream)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield found, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Port(NamedTuple):
    """An open kubelet port."""

    server: KubeletServer
    number: int
    upstream: Upstream
    context: ssl.SSLContext


@asynccontextmanager
async def opened(tls: Certificates, limits: ConnectionLimits | None = None) -> AsyncGenerator[Port]:
    """Serve the kubelet port of the node "edge"."""
    async with AsyncExitStack() as stack:
        found, address = await stack.enter_async_context(upstream())
        connection = Connection(server=address, source="test", token="lower")
        transport = await stack.enter_async_context(Transport(connection))
        context = tls.server()
        server = KubeletServer("edge", inputs(context, transport), address="127.0.0.1", limits=limits)
        yield Port(server, await stack.enter_async_context(server.serve()), found, context)


def inputs(context: ssl.SSLContext, transport: Transport, *clients: str) -> KubeletInputs:
    """Return the inputs of a port that knows the pods of LOCATED."""

    def locate(namespace: str, pod: str, node: str) -> tuple[str, str] | None:
        return LOCATED.get((namespace, pod, node))

    translate = partial(kubeletpaths.translate, locate=locate)
    names = frozenset(clients or (API_SERVER,))
    return KubeletInputs(tls=context, translate=translate, transport=transport, clients=names)


@asynccontextmanager
async def asked(port: int, context: ssl.SSLContext, request: str) -> AsyncGenerator[Answer]:
    """Send a request to a port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(request.encode())
        yield await answer(reader, writer)
    finally:
        writer.transport.abort()


def get(target: str, headers: str = "") -> str:
    """Return a request."""
    return f"GET {target} HTTP/1.1\r\nHost: edge:10250\r\nAuthorization: Bearer upper\r\n{headers}\r\n"


def websocket(target: str) -> str:
    """Return a request for a stream."""
    return get(
        target,
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
    )


async def test_logs_of_a_pod_come_from_the_other_cluster(tls: Certificates) -> None:
    """E08: with the credentials for that cluster, and none of the request."""
    async with opened(tls) as port, asked(port.number, tls.clients["known"], get(LOG)) as found:
        assert found.status == 200
        assert b"as Bearer lower\n" in await found.rest()
        assert port.upstream.targets == ["/api/v1/namespaces/acme/pods/web-1/log?container=main&follow=true"]


@pytest.mark.parametrize(
    ("target", "lower"),
    [
        ("/exec/shop/web/main?command=sh&input=1&tty=1", "exec?container=main&command=sh&stdin=true&tty=true"),
        ("/attach/shop/web/main?output=1", "attach?container=main&stdout=true"),
        ("/portForward/shop/web?port=80", "portforward?ports=80"),
    ],
)
async def test_streams_carry_bytes_both_ways(tls: Certificates, target: str, lower: str) -> None:
    async with opened(tls) as port, asked(port.number, tls.clients["known"], websocket(target)) as found:
        assert found.status == 101
        # A masked frame of three bytes, whose mask is zero; the answer has no mask.
        found.writer.write(b"\x82\x83\x00\x00\x00\x00\x00hi")
        assert await found.reader.readexactly(5) == b"\x82\x03\x00hi"
        assert port.upstream.targets == [f"GET /api/v1/namespaces/acme/pods/web-1/{lower}"]


@pytest.mark.parametrize("client", ["stranger", ""])
async def test_clients_without_a_certificate_of_the_authority_fail_in_tls(tls: Certificates, client: str) -> None:
    async with opened(tls) as port:
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with asked(port.number, tls.clients[client], get(LOG)):
                raise AssertionError
        assert port.upstream.targets == []


async def test_other_clients_of_the_authority_are_refused(tls: Certificates) -> None:
    """The authority of a cluster signs for its users, too; a group does not count as a name."""
    streams = ("/exec/shop/web/main?command=sh", "/attach/shop/web/main?output=1", "/portForward/shop/web?port=80")
    for request in (get(LOG), *map(websocket, streams)):
        async with opened(tls) as port, asked(port.number, tls.clients["other"], request) as found:
            assert found.status == 403
            assert await found.rest() == b"a client certificate of the API server is needed here\n"
            assert port.upstream.targets == []


@pytest.mark.parametrize(
    "request_of",
    [
        *(partial(get, target) for target in ("/containerLogs/shop/unmapped/main", "/pods")),
        *(partial(get, f"/containerLogs/{each}/main") for each in ("other/web", "acme/web-1")),
        partial(websocket, "/exec/other/web/main?command=sh"),
        partial(websocket, "/attach/other/web/main?output=1"),
        partial(websocket, "/portForward/other/web?port=80"),
    ],
)
async def test_pods_that_do_not_run_there_are_not_found(tls: Certificates, request_of: Callable[[], str]) -> None:
    """L06: those of namespaces without a pair, too, and those that the other cluster has under this name."""
    async with opened(tls) as port, asked(port.number, tls.clients["known"], request_of()) as found:
        assert found.status == 404
        assert await found.rest() == b"node edge serves logs, exec, attach and port-forward of its pods only\n"
        assert port.upstream.targets == []


async def test_refusals_of_the_other_cluster_are_passed_on(tls: Certificates) -> None:
    async with (
        opened(tls) as port,
        asked(port.number, tls.clients["known"], get("/containerLogs/shop/gone/m")) as found,
    ):
        assert found.status == 404
        assert await found.rest() == b"no such pod\n"


async def test_a_port_names_its_clients(tls: Certificates) -> None:
    async with Transport(Connection(server="http://127.0.0.1:1", source="test")) as transport:
        any_client = KubeletInputs(tls=tls.server(), translate=lambda _, __, ___: None, transport=transport)
        with pytest.raises(ConfigError, match="common names"):
            KubeletServer("edge", any_client, address="127.0.0.1")


async def test_connections_above_the_limit_are_closed(tls: Certificates) -> None:
    """Those that only begin a handshake count."""
    async with opened(tls, ConnectionLimits(open_connections=1)) as port:
        _, silent = await asyncio.open_connection("127.0.0.1", port.number)
        while not port.server.open_connections:  # noqa: ASYNC110 - no event reports a connection
            await asyncio.sleep(0)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with asked(port.number, tls.clients["known"], get(LOG)):
                raise AssertionError
        silent.transport.abort()
        while port.server.open_connections:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        async with asked(port.number, tls.clients["known"], get(LOG)) as found:
            assert found.status == 200


async def test_a_client_without_a_certificate_that_floods_the_port_does_not_keep_the_api_server_out(
    tls: Certificates,
) -> None:
    async with opened(tls) as port, flooded(port.number) as flood:
        await flood.opened(1000)
        for _ in range(3):
            async with asked(port.number, tls.clients["known"], get(LOG)) as found:
                assert found.status == 200
            await flood.opened(100)


async def test_a_late_handshake_ends(tls: Certificates) -> None:
    async with opened(tls, ConnectionLimits(head_seconds=0.05)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.transport.abort()


async def test_a_late_head_is_refused(tls: Certificates) -> None:
    limits = ConnectionLimits(head_seconds=0.5)
    async with opened(tls, limits) as port, asked(port.number, tls.clients["known"], "GET ") as found:
        assert found.status == 408


async def test_the_end_of_the_port_ends_all_connections(tls: Certificates) -> None:
    async with opened(tls) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number, ssl=tls.clients["known"])
        number = port.number
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.transport.abort()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asyncio.open_connection("127.0.0.1", number)


async def test_a_renewed_certificate_serves_without_a_new_port_and_streams_go_on(tls: Certificates) -> None:
    stream_of = partial(asked, context=tls.clients["known"], request=websocket("/attach/shop/web/main?output=1"))
    async with opened(tls) as port, stream_of(port.number) as stream:
        port.server.use(tls.server("renewed"))
        async with asked(port.number, tls.clients["known"], get(LOG)) as found:
            certificate = found.writer.get_extra_info("peercert")
        assert certificate["subject"] == ((("commonName", "renewed"),),)
        stream.writer.write(b"\x82\x83\x00\x00\x00\x00\x00hi")
        assert await stream.reader.readexactly(5) == b"\x82\x03\x00hi"


def test_certificates_that_do_not_load_are_reported(tls: Certificates) -> None:
    certificate, _ = tls.pair("server")
    authority = (tls.folder / "ca.crt").read_bytes()
    with pytest.raises(ConfigError, match="serving certificate"):
        serving_context(certificate, b"", authority)
    with pytest.raises(ConfigError, match="authority of clients"):
        serving_context(*tls.pair("server"), b"no certificate")


async def test_an_api_server_that_is_away_is_reported_without_its_address(tls: Certificates) -> None:
    async with listening(echo) as closed:
        pass
    async with Transport(Connection(server=f"http://127.0.0.1:{closed}", source="/secret")) as transport:
        server = KubeletServer("edge", inputs(tls.server(), transport), address="127.0.0.1")
        async with server.serve() as number, asked(number, tls.clients["known"], get(LOG)) as found:
            assert found.status == 502
            assert await found.rest() == b"the host's API server is not available\n"

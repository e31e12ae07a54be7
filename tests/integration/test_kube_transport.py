"""The way to an API server: credentials that rotate, and connections that speak another protocol."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio
import yaml
from msgspec.structs import replace

from tenantry.api.errors import ApiError, ConfigError, NotFound, TooLarge, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.kube import kubeconfig, transport
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.watch import watch
from tenantry.local.light import LightCluster, light_clusters
from testkit.api import CONFIG_MAPS, SECONDS, Api

Json = dict[str, Any]


@pytest_asyncio.fixture(scope="module")
async def light() -> AsyncGenerator[LightCluster]:
    """An API server."""
    async with light_clusters("alpha") as clusters:
        yield clusters["alpha"]


@pytest.fixture
def config(light: LightCluster, tmp_path: Path) -> Path:
    """A kubeconfig that names the client certificate and its key as files."""
    whole: Json = yaml.safe_load(light.kubeconfig_path.read_text())
    user: Json = whole["users"][0]["user"]
    for name, key in (("client.crt", "client-certificate-data"), ("client.key", "client-key-data")):
        (tmp_path / name).write_bytes(base64.b64decode(user[key]))
    whole["users"][0]["user"] = {"client-certificate": "client.crt", "client-key": "client.key"}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(whole))
    return path


def _handshake() -> dict[str, str]:
    """Return the headers of a WebSocket (RFC 6455, section 4.1)."""
    return {
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Origin": "http://localhost",
    }


async def test_files_that_change_are_read_anew_and_a_half_written_pair_leaves_the_old_one(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ROTATION_SECONDS", 0.0)
    certificate = config.parent / "client.crt"
    good = certificate.read_bytes()
    async with Client(kubeconfig.load([config])) as client:
        assert await client.list(Namespace)
        first = client.transport.credentials
        certificate.write_bytes(b"half of a certif")
        assert await client.list(Namespace), "the old certificate is still good"
        assert client.transport.credentials is first
        certificate.write_bytes(good + b"\n")
        assert await client.list(Namespace)
        assert client.transport.credentials is not first


async def test_watches_leave_their_connections_to_requests(light: LightCluster) -> None:
    async with Client(light.connection, max_connections=1) as client, AsyncExitStack() as streams:
        for _ in range(3):
            await streams.enter_async_context(
                client.open(
                    "GET", "/api/v1/namespaces", query={"watch": "true"}, timeout=aiohttp.ClientTimeout(total=None)
                )
            )
        async with asyncio.timeout(SECONDS):
            assert await client.list(Namespace)


async def test_an_upgrade_keeps_the_path_of_the_servers_address(light: LightCluster) -> None:
    """A gateway to many clusters has each below a path of its own; here the API server answers below another one."""
    below = msgspec.structs.replace(light.connection, server=f"{light.connection.server}/api")
    async with Client(below) as client:
        upgraded = await client.transport.upgrade(
            "GET", "/v1/namespaces", query={"watch": "true"}, headers=_handshake()
        )
        upgraded.writer.close()
        assert upgraded.headers["upgrade"] == "websocket"


async def test_an_upgrade_through_a_proxy_is_refused_in_words(light: LightCluster) -> None:
    behind = msgspec.structs.replace(light.connection, proxy_url="http://proxy.example:3128")
    async with Client(behind) as client:
        with pytest.raises(ConfigError, match=r"names the proxy http://proxy\.example:3128"):
            await client.transport.upgrade("GET", "/api/v1/namespaces", headers=_handshake())


async def test_a_connection_is_upgraded_and_carries_bytes(light: LightCluster) -> None:
    async with Client(light.connection) as client:
        upgraded = await client.transport.upgrade(
            "GET", "/api/v1/namespaces", query={"watch": "true"}, headers=_handshake()
        )
        try:
            async with asyncio.timeout(SECONDS):
                frame = await upgraded.reader.readexactly(2)
        finally:
            upgraded.writer.close()
        assert upgraded.headers["upgrade"] == "websocket"
        assert frame[0] in {0x81, 0x82}, "the whole of a text or binary message (RFC 6455, section 5.2)"


async def test_an_upgrade_that_is_refused_raises_the_error_of_the_api_server(light: LightCluster) -> None:
    async with Client(light.connection) as client:
        with pytest.raises(NotFound, match='pods "web" not found'):
            await client.transport.upgrade("GET", "/api/v1/namespaces/none/pods/web/exec", headers=_handshake())


async def test_an_upgrade_without_a_server_names_the_address(light: LightCluster) -> None:
    async with Client(light.connection) as client:
        await light.kill()
        with pytest.raises(Unreachable, match=f"https://127.0.0.1:{light.port} .* cannot be reached"):
            await client.transport.upgrade("GET", "/", headers=_handshake())
        await light.start()


async def test_long_lists_come_in_small_pages_and_one_object_may_be_too_large(light: LightCluster) -> None:
    """VCP-58: a client that bounds responses reads everything that an honest API server has."""
    connection = kubeconfig.load([light.kubeconfig_path])
    names = {f"large-{number}" for number in range(9)}
    async with Client(connection) as client:
        api = Api(client)
        await api.create(Namespace.resource, {"metadata": {"name": "pages"}})
        for name in names:
            await api.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"a": "x" * 10_000}}, "pages")
    async with Client(replace(connection, max_bytes=25_000)) as bounded:
        pages = [page async for page in bounded.pages(CONFIG_MAPS, Json, namespace="pages")]
        assert {each["metadata"]["name"] for page in pages for each in page.items} >= names
        assert max(len(page.items) for page in pages) <= 2
    async with Client(replace(connection, max_bytes=5_000)) as bounded:
        with pytest.raises(TooLarge, match="/pages/configmaps/large-1 is longer than 5000 bytes"):
            await Api(bounded).get(CONFIG_MAPS, "large-1", "pages")
        with pytest.raises(TooLarge):
            [page async for page in bounded.pages(CONFIG_MAPS, Json, namespace="pages")]


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden"])
async def test_a_response_without_an_end_is_not_read_to_its_end(status: str) -> None:
    """VCP-58: an aggregated API of a tenant answers the operator for ever."""
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n".encode())
        with suppress(OSError):
            while True:
                writer.write(b"A" * 65_536)
                await writer.drain()
                sent += 65_536
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Client(Connection(server=url, source="a test", max_bytes=1_000_000)) as client:
        with pytest.raises(ApiError) as caught:
            await client.request("GET", "/api/v1/pods", attempts=1)
        assert isinstance(caught.value, TooLarge) == status.startswith("200")
        changes = watch(client, CONFIG_MAPS, resource_version="1")
        with pytest.raises(ApiError):
            await anext(changes)
    # What it sent beyond the limits is in buffers of the connections.
    assert sent < 64 * 2**20

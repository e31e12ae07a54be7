"""The ports of the operator's pages, which every pod of a cluster may reach."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import aiohttp
import pytest
from cryptography import x509

from tenantry.api.errors import InputError
from tenantry.hosting import operatorpages
from tenantry.hosting.connections import ConnectionLimits
from tenantry.hosting.selfsigned import self_signed
from tenantry.hosting.tlslistener import server_context
from tenantry.hosting.unauthenticated import UnauthenticatedLimits
from testkit.tunnels import flooded

_PAGE = b"tenantry_tenants 3\n"


class _Health:
    def __init__(self) -> None:
        self.is_ready = False


async def _get(url: str, **headers: str) -> tuple[int, bytes]:
    """Return the response to a request over a connection of its own, as a probe or a scraper sends it."""
    timeout = aiohttp.ClientTimeout(total=20)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), timeout=timeout) as client,
        client.get(url, headers=headers) as found,
    ):
        return found.status, await found.read()


@asynccontextmanager
async def _secured(limits: ConnectionLimits = operatorpages.LIMITS) -> AsyncGenerator[int]:
    async def verdict(authorization: str, source: str) -> HTTPStatus:
        assert source == "127.0.0.1"
        return {"": HTTPStatus.UNAUTHORIZED, "Bearer reader": HTTPStatus.OK}.get(authorization, HTTPStatus.FORBIDDEN)

    now, names = dt.datetime.now(dt.UTC), [x509.DNSName("localhost")]
    context = server_context(*self_signed("pages", names, now=now, life=dt.timedelta(hours=1)), "a certificate")
    async with operatorpages.serve_to_clients("127.0.0.1:0", context, lambda: _PAGE, verdict, limits) as port:
        yield port


async def test_the_open_page_reports_health() -> None:
    health = _Health()
    async with operatorpages.serve("127.0.0.1:0", lambda: _PAGE, lambda: health.is_ready) as port:
        url = f"http://127.0.0.1:{port}"
        assert await _get(f"{url}/metrics") == (200, _PAGE)
        assert await _get(f"{url}/healthz") == (200, b"ok")
        assert await _get(f"{url}/readyz") == (503, b"caches are not in step yet")
        health.is_ready = True
        assert await _get(f"{url}/readyz") == (200, b"ok")
        assert (await _get(f"{url}/secrets"))[0] == 404


async def test_the_page_of_tenants_needs_a_token() -> None:
    async with _secured() as port:
        url = f"https://127.0.0.1:{port}/metrics"
        assert await _get(url) == (401, b"")
        assert await _get(url, Authorization="Bearer other") == (403, b"")
        assert await _get(url, Authorization="Bearer reader") == (200, _PAGE)


async def test_a_flood_keeps_no_probe_and_no_scraper_away() -> None:
    """E14: a pod opens as many connections as it can and sends nothing; the process keeps files for its work."""
    async with operatorpages.serve("127.0.0.1:0", lambda: _PAGE, lambda: True) as port:
        # As kubelet's: from another address than that of the pod, and a connection for each probe.
        connector = aiohttp.TCPConnector(force_close=True)
        async with flooded(port) as flood, aiohttp.ClientSession(connector=connector) as kubelet:
            for _ in range(3):
                await flood.opened(300)
                async with kubelet.get(f"http://127.0.0.1:{port}/readyz") as found:
                    assert found.status == 200


async def test_a_connection_without_a_right_has_one_response() -> None:
    """So the rate of connections bounds how often the page is made, and how often tokens are reviewed."""
    asked = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    async with operatorpages.serve("127.0.0.1:0", lambda: _PAGE, lambda: True) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked * 30)
        async with asyncio.timeout(10):
            found = await reader.read()
        writer.close()
    assert found.count(b"HTTP/1.1 200") == 1
    async with _secured() as port:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(asked * 30)
        async with asyncio.timeout(10):
            found = await reader.read()
        writer.close()
    assert found.count(b"HTTP/1.1 401") == 1


async def test_a_silent_client_loses_its_place_and_a_reader_keeps_its_own() -> None:
    limits = ConnectionLimits(unauthenticated=UnauthenticatedLimits(per_source_per_second=50, most=2))
    connector = aiohttp.TCPConnector(ssl=False, limit=1)
    async with _secured(limits) as port, aiohttp.ClientSession(connector=connector) as reader:
        url, headers = f"https://127.0.0.1:{port}/metrics", {"Authorization": "Bearer reader"}
        async with reader.get(url, headers=headers) as found:
            assert await found.read() == _PAGE
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                assert await silent[0][0].read() == b""
        # Over the connection from before.
        async with reader.get(url, headers=headers) as found:
            assert await found.read() == _PAGE
        for _, writer in silent:
            writer.transport.abort()


@pytest.mark.parametrize("address", ["127.0.0.1", "8080", "127.0.0.1:port", "192.0.2.1:8080"])
async def test_an_address_that_cannot_be_listened_on_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"must be HOST:PORT|choose another --metrics-address"):
        async with operatorpages.serve(address, lambda: b"", lambda: True):
            raise AssertionError


async def test_an_error_of_the_work_inside_is_not_one_of_the_address() -> None:
    with pytest.raises(ConnectionResetError, match="of the work"):
        async with operatorpages.serve("[::1]:0", lambda: b"", lambda: True):
            raise ConnectionResetError("of the work")

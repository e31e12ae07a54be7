"""The port of the webhook under clients that are not the API server."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

import aiohttp
import pytest
from cryptography import x509

from tenantry.api.errors import InputError
from tenantry.hosting.connections import ConnectionLimits
from tenantry.hosting.reviews import LIMITS, MOST_BYTES, serve_reviews
from tenantry.hosting.selfsigned import self_signed
from tenantry.hosting.tlslistener import server_context
from tenantry.hosting.unauthenticated import UnauthenticatedLimits
from testkit.tunnels import flooded

KNOWN = "/secret/marks"


class Port(NamedTuple):
    """The port, and a client that trusts its certificate, as the API server does."""

    number: int
    client: aiohttp.ClientSession

    async def ask(self, path: str = KNOWN, body: bytes = b"question") -> tuple[int, bytes]:
        """Return the status and the body of the response."""
        async with self.client.post(f"https://localhost:{self.number}{path}", data=io.BytesIO(body)) as found:
            return found.status, await found.read()


async def _echo(path: str, body: bytes) -> tuple[HTTPStatus, bytes]:
    return HTTPStatus.OK, path.encode() + b" " + body


@asynccontextmanager
async def _opened(limits: ConnectionLimits = LIMITS) -> AsyncGenerator[Port]:
    now, names = dt.datetime.now(dt.UTC), [x509.DNSName("localhost")]
    certificate, key = self_signed("webhook", names, now=now, life=dt.timedelta(hours=1))
    context = server_context(certificate, key, "the certificate of the test")
    trusted = ssl.create_default_context(cadata=certificate.decode())
    connector = aiohttp.TCPConnector(ssl=trusted)
    async with (
        serve_reviews("127.0.0.1:0", context, lambda path: path == KNOWN, _echo, limits) as port,
        aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20)) as client,
    ):
        yield Port(port, client)


async def _is_ended(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            return await reader.read() == b""
        return True


async def test_only_paths_with_the_token_are_answered() -> None:
    async with _opened() as port:
        assert await port.ask() == (200, b"/secret/marks question")
        assert (await port.ask("/guess/marks"))[0] == 404
        assert (await port.ask(body=b"x" * (MOST_BYTES + 1)))[0] == 413


async def test_a_flood_keeps_the_api_server_neither_from_open_connections_nor_from_new_ones() -> None:
    """E14: a pod opens as many as it can and sends nothing."""
    async with _opened() as port:
        assert (await port.ask())[0] == 200
        async with flooded(port.number) as flood:
            for _ in range(3):
                await flood.opened(300)
                # Several at once: the first has the connection from before the flood, the others open new ones.
                assert await asyncio.gather(*(port.ask() for _ in range(4))) == [(200, b"/secret/marks question")] * 4


async def test_a_client_that_stays_silent_loses_its_place_to_the_next_one() -> None:
    limits = ConnectionLimits(unauthenticated=UnauthenticatedLimits(per_source_per_second=50, most=2))
    async with _opened(limits) as port:
        assert (await port.ask())[0] == 200  # has authenticated: takes no place of these
        silent = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(3)]
        assert await _is_ended(silent[0][0])
        assert (await port.ask())[0] == 200
        for _, writer in silent:
            writer.transport.abort()


async def test_a_late_handshake_ends() -> None:
    async with _opened(ConnectionLimits(head_seconds=0.05)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        assert await _is_ended(reader)
        writer.transport.abort()


async def test_the_end_of_the_port_ends_all_connections() -> None:
    async with _opened() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        number = port.number
    assert await _is_ended(reader)
    writer.transport.abort()
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asyncio.open_connection("127.0.0.1", number)


@pytest.mark.parametrize("address", ["127.0.0.1", "443", "127.0.0.1:port", "192.0.2.1:443"])
async def test_an_address_that_cannot_be_listened_on_is_refused(address: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(InputError, match=r"must be HOST:PORT|choose another --webhook-address"):
        async with serve_reviews(address, context, bool, _echo):
            raise AssertionError

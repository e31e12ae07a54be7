"""The entrance of tunnels: connections of this process pass, and those of others do not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tenantry.hosting.loopback import TunnelEntrance
from tenantry.hosting.tunnel import ByteStream

pytestmark = pytest.mark.timeout(30)


@asynccontextmanager
async def entrance() -> AsyncGenerator[tuple[TunnelEntrance, tuple[str, int]]]:
    """Open an entrance that answers with the name of the tunnel."""

    async def carry(name: str, stream: ByteStream) -> None:
        stream.writer.write(name.encode())
        stream.writer.close()

    found = TunnelEntrance(carry)
    async with found.serve():
        host, port = found.server.removeprefix("https://").split(":")
        yield found, (host, int(port))


async def said(made: socket.socket, place: tuple[str, int]) -> bytes:
    """Connect a socket, and return what it receives."""
    await asyncio.get_running_loop().sock_connect(made, place)
    reader, writer = await asyncio.open_connection(sock=made)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


async def test_a_socket_leads_into_the_tunnel_that_it_was_made_for() -> None:
    async with entrance() as (found, place):
        for name in ("berlin", "paris"):
            assert await said(found.socket_for(name), place) == name.encode()


async def test_a_socket_that_another_process_has_made_is_closed() -> None:
    async with entrance() as (found, place):
        ours = found.socket_for("berlin")
        other = socket.socket()
        other.setblocking(False)
        assert await said(other, place) == b""
        assert await said(ours, place) == b"berlin"

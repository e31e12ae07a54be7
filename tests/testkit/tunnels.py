"""Clients of a port for tunnels: those that ask for a tunnel, and those that only take up places."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from tenantry.api.errors import ApiError
from tenantry.api.peertunnel import TUNNEL_AUDIENCE, TUNNEL_PATH
from tenantry.engine.tasks import in_background
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.transport import Transport, Upgraded

SOCKET = {"Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}

FLOODER = "127.0.0.2"
"""The address of a client that floods a port; peers of the tests come from another one."""

_MOST_HELD = 500


@asynccontextmanager
async def opened(server: str, ca: str, token: str, path: str = TUNNEL_PATH) -> AsyncGenerator[Upgraded]:
    """Open a tunnel, whose end here is not served.

    Raises:
        ApiError: The home refuses it.
    """
    connection = Connection(
        server=server, source="a client", ca=ca.encode(), token=token, tls_server_name=TUNNEL_AUDIENCE
    )
    async with Transport(connection) as transport:
        upgraded = await transport.upgrade("GET", path, headers=SOCKET)
        try:
            yield upgraded
        finally:
            upgraded.writer.transport.abort()


async def knock(server: str, ca: str, token: str, path: str = TUNNEL_PATH) -> tuple[int, str]:
    """Ask a port for a tunnel; return status and text of the response, 101 for an open tunnel."""
    try:
        async with opened(server, ca, token, path):
            return 101, ""
    except ApiError as error:
        return error.status, str(error)


class Flood:
    """Connections without an end to one port, on which nothing is sent.

    Args:
        port: The port.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._held = deque[socket.socket]()
        self._opened = 0
        self._more = asyncio.Event()

    async def run(self) -> None:
        """Open connections until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                made.setblocking(False)
                made.bind((FLOODER, 0))
                self._held.append(made)
                with suppress(OSError):
                    await loop.sock_connect(made, ("127.0.0.1", self._port))
                # A process has so many files only; most are closed at the other end already.
                if len(self._held) > _MOST_HELD:
                    self._held.popleft().close()
                self._opened += 1
                self._more.set()
                await asyncio.sleep(0)
        finally:
            for each in self._held:
                each.close()

    async def opened(self, number: int) -> None:
        """Wait until so many more connections were opened."""
        wanted = self._opened + number
        while self._opened < wanted:
            self._more.clear()
            await self._more.wait()


@asynccontextmanager
async def flooded(port: int) -> AsyncGenerator[Flood]:
    """Flood a port while the context is open."""
    flood = Flood(port)
    async with in_background(flood.run()):
        yield flood

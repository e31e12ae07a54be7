"""Serves a web application over connections that are bounded, with TLS or without.

    socket ─► within the limits? ─► TLS ─► aiohttp, for as long as the connection lasts

aiohttp's own sites bound nothing: one pod could open connections until the process has no file left for its work.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from tenantry.api.errors import InputError
from tenantry.hosting.connections import ConnectionLimits, Connections
from tenantry.hosting.tlslistener import accepting
from tenantry.hosting.tunnel import CLOSING_SECONDS

KEEP_ALIVE_SECONDS = 60.0

log = logging.getLogger(__name__)
_NO_LOG = logging.getLogger(f"{__name__}.access")
_NO_LOG.disabled = True


class BoundedSite:
    """One listener of a web application.

    Args:
        address: `host:port`.
        flag: The flag with the address, for messages.
        limits: The limits of connections.
        context: With the serving certificate; None for no TLS.

    Raises:
        InputError: The address does not parse.
    """

    def __init__(self, address: str, flag: str, limits: ConnectionLimits, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._place = place_of(address)
        self._flag = flag
        self._limits = limits
        self._context = context
        self._connections = Connections(limits)

    @asynccontextmanager
    async def serving(self, app: web.Application) -> AsyncGenerator[int]:
        """Serve while the context is open, and return the port.

        Raises:
            InputError: The port is taken.
        """
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        server = runner.server
        assert server is not None  # noqa: S101 - it was set up above

        async def serve(accepted: socket.socket) -> None:
            await self._serve(accepted, server)

        async with AsyncExitStack() as stack:
            stack.push_async_callback(runner.cleanup)
            try:
                port = await stack.enter_async_context(accepting(self._place, self._connections, serve))
            except OSError as error:
                text = f"cannot listen on {self._address!r}: {error.strerror}; choose another {self._flag}"
                raise InputError(text) from error
            yield port

    def authenticated(self, asked: web.Request) -> None:
        """Take in that the client of a request has authenticated; see `unauthenticated.py`."""
        if isinstance(asked.protocol, _Connection):
            self._connections.authenticated(asked.protocol.task)

    async def _serve(self, accepted: socket.socket, server: web.Server) -> None:
        """Serve one socket to its end."""
        connection = _Connection(server)
        tls = self._limits.head_seconds if self._context is not None else None
        closing = CLOSING_SECONDS if self._context is not None else None
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=tls,
                ssl_shutdown_timeout=closing,
            )
        except OSError as error:
            log.debug("a connection has no TLS", extra={"address": self._address, "problem": str(error)})
            accepted.close()
            return
        except BaseException:
            accepted.close()
            raise
        try:
            await connection.has_ended.wait()
        finally:
            transport.abort()


class _Connection(web.RequestHandler):
    """One connection, with the task that serves it."""

    def __init__(self, server: web.Server) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, keepalive_timeout=KEEP_ALIVE_SECONDS, access_log=_NO_LOG)
        self.task = asyncio.current_task()
        self.has_ended = asyncio.Event()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.has_ended.set()


def place_of(address: str) -> tuple[str, int]:
    """Return the host and the port of an address to listen on.

    Raises:
        InputError: It does not parse.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"address {address!r} must be HOST:PORT, as in 127.0.0.1:8080")
    return host.strip("[]"), int(port)

"""Receives AdmissionReviews over HTTPS, with a certificate that can change meanwhile.

    connection ─► within the limits? ─► TLS ─► path with the token? ─► its client has authenticated ─► answer

Every pod that reaches the port may open connections. The API server authenticates by the paths that only its
configuration has; connections of other clients neither use up its places nor are many at one time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from tenantry.api.errors import InputError
from tenantry.engine.health import KEEP_ALIVE_SECONDS, place_of
from tenantry.hosting.connections import ConnectionLimits, Connections
from tenantry.hosting.tlslistener import accepting
from tenantry.hosting.tunnel import CLOSING_SECONDS
from tenantry.hosting.unauthenticated import UnauthenticatedLimits

MOST_BYTES = 8 * 2**20
"""The longest body that is read: an AdmissionReview has up to two objects, and etcd stores 1.5 MiB of each."""

LIMITS = ConnectionLimits(
    connections_per_second=1000,
    open_connections=600,
    head_seconds=5.0,
    unauthenticated=UnauthenticatedLimits(per_source_per_second=300, most=200),
)
"""An API server calls at most as many webhooks at one time as it serves writes: 200 (kube-apiserver,
--max-mutating-requests-inflight), each over a connection of its own at worst. Three may have one address, as behind a
proxy of the control plane."""

Answer = Callable[[str, bytes], Awaitable[tuple[HTTPStatus, bytes]]]
"""Returns the status and the body of the response to a path and a body."""

log = logging.getLogger(__name__)
_NO_LOG = logging.getLogger(f"{__name__}.access")
_NO_LOG.disabled = True  # the audit log of the API server has each request


@asynccontextmanager
async def serve_reviews(
    address: str,
    context: ssl.SSLContext,
    is_known: Callable[[str], bool],
    answer: Answer,
    limits: ConnectionLimits = LIMITS,
) -> AsyncGenerator[int]:
    """Serve while the context is open, and return the port.

    Args:
        address: `host:port`.
        context: With the serving certificate; a later one counts for new connections.
        is_known: Returns whether a path is served. The body of a request for another one is not read.
        answer: Answers the others.
        limits: The limits of connections.

    Raises:
        InputError: The address does not parse, or the port is taken.
    """
    connections = Connections(limits)

    async def review(asked: web.Request) -> web.Response:
        if not is_known(asked.path):
            return web.Response(status=HTTPStatus.NOT_FOUND)
        if isinstance(asked.protocol, _Connection):
            connections.authenticated(asked.protocol.task)
        status, body = await answer(asked.path, await asked.read())
        return web.Response(status=status, body=body, content_type="application/json")

    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_post("/{path:.*}", review)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    server = runner.server
    assert server is not None  # noqa: S101 - it was set up above

    async def serve(accepted: socket.socket) -> None:
        await _serve(accepted, server, context, limits)

    try:
        async with accepting(place_of(address), connections, serve) as port:
            yield port
    except OSError as error:
        raise InputError(f"cannot listen on {address!r}: {error.strerror}; choose another --webhook-address") from error
    finally:
        await runner.cleanup()


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


async def _serve(
    accepted: socket.socket, server: web.Server, context: ssl.SSLContext, limits: ConnectionLimits
) -> None:
    """Serve one socket to its end."""
    connection = _Connection(server)
    try:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=context,
            ssl_handshake_timeout=limits.head_seconds,
            ssl_shutdown_timeout=CLOSING_SECONDS,
        )
    except OSError as error:
        log.debug("a connection to the webhook has no TLS", extra={"problem": str(error)})
        accepted.close()
        return
    except BaseException:
        accepted.close()
        raise
    try:
        await connection.has_ended.wait()
    finally:
        transport.abort()

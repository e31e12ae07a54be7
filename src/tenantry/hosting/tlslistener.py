"""Accepts TCP connections for TLS, within limits that count a connection from its first byte on.

Anyone who reaches the port can take up places until the handshake is late, so rate and number of connections are
bounded, and a connection above a limit is closed at once: a response would need a handshake. Sockets are accepted here,
and not by a server of the event loop, which counts a connection only after its handshake.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tenantry.engine.tasks import in_background
from tenantry.hosting.connections import ConnectionLimits, Connections
from tenantry.hosting.kubelet import REQUEST_HEAD_BYTES
from tenantry.hosting.tunnel import CLOSING_SECONDS, ByteStream
from tenantry.kube.credentials import load_pair

_BACKLOG = 100
_PAUSE_SECONDS = 1.0

log = logging.getLogger(__name__)

ServeSocket = Callable[[socket.socket], Coroutine[Any, Any, None]]
"""Serves one accepted socket to its end; no error leaves it."""


def server_context(certificate: bytes, key: bytes, told: str) -> ssl.SSLContext:
    """Return a TLS context of a server that knows its clients by other means than certificates.

    Args:
        certificate: The serving certificate, PEM.
        key: Its key, PEM.
        told: Where they are from, for messages.

    Raises:
        ConfigError: They do not load.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    renew(context, certificate, key, told)
    return context


def renew(context: ssl.SSLContext, certificate: bytes, key: bytes, told: str) -> None:
    """Give a context another certificate, for the handshakes from now on; arguments and errors as `server_context`."""
    load_pair(context, certificate, key, told)


@asynccontextmanager
async def accepting(place: tuple[str, int], connections: Connections, serve: ServeSocket) -> AsyncGenerator[int]:
    """Listen while the context is open, and return the port; the end ends all connections at once.

    Args:
        place: The IP address to listen on, and the port; 0 for any.
        connections: Bounds them.
        serve: Serves one.

    Raises:
        OSError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    with socket.create_server(place, family=family, backlog=_BACKLOG) as listening:
        listening.setblocking(False)
        async with connections.running(), in_background(_accept(listening, connections, serve)):
            yield listening.getsockname()[1]


async def _accept(listening: socket.socket, connections: Connections, serve: ServeSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, address = await loop.sock_accept(listening)
        except OSError as error:
            # Too many open files, most likely: as asyncio's servers, it goes on when some are closed.
            log.warning("no connection is accepted", extra={"problem": str(error)})
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        if connections.begin(partial(serve, accepted), address[0]):
            accepted.close()


async def secured(accepted: socket.socket, tls: ssl.SSLContext, limits: ConnectionLimits) -> ByteStream:
    """Complete TLS as its server, and return the stream inside.

    Raises:
        OSError: The handshake failed, or was late; the socket is closed.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=REQUEST_HEAD_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            accepted,
            ssl=tls,
            ssl_handshake_timeout=limits.head_seconds,
            ssl_shutdown_timeout=CLOSING_SECONDS,
        )
    except BaseException:
        accepted.close()
        raise
    return ByteStream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

"""TLS connections whose last bytes arrive.

A slow reader pauses its connection. uvloop's TLS then keeps what it has read, and drops up to 256 KiB of it when the
server ends the connection (uvloop/sslproto.pyx, `eof_received` and `_do_read_into_void`). If the connection below
TLS is paused instead, TLS keeps nothing, and the end of the connection is read after all bytes before it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable


class _Below:
    """The flow control of the connection below TLS.

    Args:
        transport: The connection.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def pause_reading(self) -> None:
        """Read nothing from the connection; one that is closed has nothing to read."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the connection again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()


class _Reader(asyncio.StreamReader):
    """A reader inside TLS that pauses the connection below it."""

    def __init__(self, below: asyncio.Transport, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=limit, loop=loop)
        self._below = _Below(below)

    def set_transport(self, transport: object) -> None:  # noqa: ARG002 - the one inside TLS
        """Set what is paused; see `asyncio.StreamReaderProtocol.connection_made`."""
        super().set_transport(self._below)  # pyright: ignore[reportArgumentType] - all that a reader calls


async def connect(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    *,
    name: str,
    limit: int,
    make_socket: Callable[[], socket.socket] | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, with TLS if there is a context.

    Args:
        host: The address or name.
        port: The port.
        context: The TLS context; None for a connection without TLS.
        name: The name in the server's certificate.
        limit: See `asyncio.StreamReader`.
        make_socket: Makes the socket of a connection with TLS; None for an ordinary one.

    Raises:
        OSError: There is no connection, or TLS fails.
    """
    if context is None:
        return await asyncio.open_connection(host, port, limit=limit)
    loop = asyncio.get_running_loop()
    below = await _connected(host, port, make_socket)
    reader = _Reader(below, limit, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    try:
        transport = await loop.start_tls(below, protocol, context, server_hostname=name)
    except BaseException:
        below.abort()
        raise
    if transport is None:
        raise ConnectionResetError("the server left during the handshake")
    # start_tls does not call it.
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _connected(host: str, port: int, make_socket: Callable[[], socket.socket] | None) -> asyncio.Transport:
    """Return a connection without TLS.

    Raises:
        OSError: There is none.
    """
    loop = asyncio.get_running_loop()
    if make_socket is None:
        return (await loop.create_connection(asyncio.Protocol, host, port))[0]
    made = make_socket()
    try:
        await loop.sock_connect(made, (host, port))
        return (await loop.create_connection(asyncio.Protocol, sock=made))[0]
    except BaseException:
        made.close()
        raise

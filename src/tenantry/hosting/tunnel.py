"""Byte streams: heads, TLS, and forwarding between two of them.

    left.reader ──► right.writer        each direction waits until the other side has taken its bytes (drain)
    left.writer ◄── right.reader

The end of one direction is passed on as a half close, and the other direction goes on. asyncio has no half close for
TLS, so that the end of one direction ends both, as in kube-apiserver's proxy.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import NamedTuple

from tenantry.engine.tasks import all_of
from tenantry.hosting import heads
from tenantry.hosting.heads import HttpRefusal

CHUNK_BYTES = 64 * 1024
CLOSING_SECONDS = 5.0
"""The time in which a peer must take the last bytes of a stream that is closed."""

HALF_CLOSED_SECONDS = 60.0
"""How long a stream with one ended direction may be silent. A peer that never closes would keep its place for ever."""


class ByteStream(NamedTuple):
    """Both directions of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class HalfClosed:
    """Bounds how long a stream with one ended direction may be silent, by `HALF_CLOSED_SECONDS`.

    Args:
        deadline: Ends the stream; it has no time yet.
    """

    def __init__(self, deadline: asyncio.Timeout) -> None:
        self._deadline = deadline
        self._has_begun = False

    def begin(self) -> None:
        """Take in that one direction has ended."""
        self._has_begun = True
        self.carried()

    def carried(self) -> None:
        """Take in that bytes were carried."""
        if self._has_begun:
            self._deadline.reschedule(asyncio.get_running_loop().time() + HALF_CLOSED_SECONDS)


class _Over(Exception):
    """One direction has ended, and this cannot be passed on alone."""


async def read_head(stream: ByteStream, seconds: float) -> bytes:
    """Return the head of a request; the limit of the stream bounds its length.

    Raises:
        HttpRefusal: The head is too long, or late.
        asyncio.IncompleteReadError: The stream ended first.
        OSError: The connection broke.
    """
    try:
        async with asyncio.timeout(seconds):
            return await stream.reader.readuntil(heads.END)
    except TimeoutError:
        raise HttpRefusal(408, "the head of the request did not arrive in time") from None
    except asyncio.LimitOverrunError:
        raise HttpRefusal(431, "the head of the request is too long") from None


async def secured(stream: ByteStream, context: ssl.SSLContext, *, seconds: float, limit_bytes: int) -> ByteStream:
    """Complete TLS as its server, and return the stream inside.

    Bytes that the client sent before the handshake stay in the old reader. They must not become readable inside:
    they were not encrypted, and their sender was not authenticated.

    Raises:
        OSError: The handshake failed, or was late; the connection is closed.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit_bytes, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = await loop.start_tls(
        stream.writer.transport,
        protocol,
        context,
        server_side=True,
        ssl_handshake_timeout=seconds,
        ssl_shutdown_timeout=CLOSING_SECONDS,
    )
    if transport is None:
        raise ConnectionResetError("the client left during the handshake")
    # start_tls does not call it, and the reader needs the transport for its flow control.
    protocol.connection_made(transport)
    return ByteStream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def splice(left: ByteStream, right: ByteStream) -> None:
    """Forward bytes both ways until both directions have ended, and close both streams.

    Raises:
        OSError: A connection broke, or a half-closed one was silent for too long; both are closed.
    """

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence: HalfClosed) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
            silence.carried()
        if not writer.can_write_eof():
            raise _Over
        writer.write_eof()
        silence.begin()

    try:
        with suppress(_Over):
            async with asyncio.timeout(None) as deadline:
                silence = HalfClosed(deadline)
                await all_of([forward(left.reader, right.writer, silence), forward(right.reader, left.writer, silence)])
        await all_of([end(left), end(right)])
    finally:
        abort(left)
        abort(right)


async def end(stream: ByteStream) -> None:
    """Close a stream after its last bytes; a peer that does not take them in time loses them."""
    try:
        if not stream.writer.transport.is_closing():
            stream.writer.close()
            with suppress(OSError):
                async with asyncio.timeout(CLOSING_SECONDS):
                    await stream.writer.wait_closed()
    finally:
        abort(stream)


def abort(stream: ByteStream) -> None:
    """Close a stream at once; a closed one stays as it is."""
    stream.writer.transport.abort()

"""A TCP link to a server that can be cut, delayed, half-opened and reset, without a look into what it carries."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum

_BLOCK = 65536


class LinkState(StrEnum):
    """What the link does."""

    OPEN = "Open"
    DELAYED = "Delayed"
    """Every block takes a while."""
    HALF_OPEN = "HalfOpen"
    """Connections stay, and new ones are accepted; nothing is carried, and what is sent is lost."""
    CUT = "Cut"
    """Connections end, and new ones are closed at once."""


class TcpLink:
    """One link.

    Args:
        host: Of the server.
        port: Of the server.
        delay: How many seconds a block takes while the link is delayed.
    """

    def __init__(self, host: str, port: int, *, delay: float = 0.3) -> None:
        self._upstream = (host, port)
        self._delay = delay
        self._state = LinkState.OPEN
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def state(self) -> LinkState:
        """Return what the link does."""
        return self._state

    @property
    def is_used(self) -> bool:
        """Return whether there is a connection."""
        return bool(self._writers)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[TcpLink]:
        """Listen on a port of 127.0.0.1 while the context is open."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.reset()

    def become(self, state: LinkState) -> None:
        """Change what the link does. What a half-open connection lost does not come later: it ends with that state."""
        was, self._state = self._state, state
        if state is LinkState.CUT or was is LinkState.HALF_OPEN:
            self.reset()

    def reset(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            found = writer.get_extra_info("socket")
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state is LinkState.CUT:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, far_writer))
                group.create_task(self._carry(far_reader, writer))
        finally:
            self._writers -= both
            for each in both:
                each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while block := await reader.read(_BLOCK):
                if self._state is LinkState.DELAYED:
                    await asyncio.sleep(self._delay)
                if self._state is not LinkState.HALF_OPEN:
                    writer.write(block)
                    await writer.drain()
            writer.write_eof()

"""Clients and servers around an egress gate: kube-apiserver in front of it, a destination behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

NODE = "node-1:10250"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Answer(NamedTuple):
    """A response to a request."""

    status: int
    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        return await self.reader.read()


@asynccontextmanager
async def asked(path: Path, request: bytes) -> AsyncGenerator[Answer]:
    """Send bytes to the gate, and read the head of its response."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        with suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        yield await answer(reader, writer)
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
    """Read the head of a response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return Answer(int(head.split(" ")[1]), head, reader, writer)


def connecting(path: Path, target: str) -> AbstractAsyncContextManager[Answer]:
    """Ask the gate for a connection."""
    return asked(path, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())


# -- servers ------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(handler: Handler) -> AsyncGenerator[int]:
    """Serve on loopback, and return the port; connections end with the context."""
    open_now: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handler(reader, writer)
        finally:
            open_now.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        ending = [*open_now]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Return each chunk, and close with the client."""
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()
    # The other end may still have bytes to take.
    await writer.drain()
    writer.close()
    await writer.wait_closed()

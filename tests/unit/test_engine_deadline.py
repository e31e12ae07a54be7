"""The deadline of a writer's requests, with all attempts, at a server that is slow or asks for patience."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tenantry.api.errors import ServerError, TooManyRequests, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.engine.writer import Writer
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

DEADLINE = 0.3
BODY = {"metadata": {"labels": {"a": "b"}}}


class Server:
    """An HTTP server that gives every request the same response, or none."""

    def __init__(self, status: str = "", headers: str = "") -> None:
        self._status = status
        self._headers = headers
        self.requests = 0
        self.closed = asyncio.Event()
        """Set when a client has closed its connection."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Client]:
        """Serve while the context is open; yield a client."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            async with Client(Connection(server=f"http://127.0.0.1:{port}", source="a test")) as client:
                yield client
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = next(each for each in head.split("\r\n") if each.lower().startswith("content-length"))
                await reader.readexactly(int(length.partition(":")[2]))
                self.requests += 1
                if self._status:
                    text = f"HTTP/1.1 {self._status}\r\n{self._headers}Content-Length: 2\r\n\r\n{{}}"
                    writer.write(text.encode())
        except (asyncio.IncompleteReadError, OSError):
            self.closed.set()
        finally:
            writer.close()


async def test_a_write_that_gets_no_response_ends_with_its_deadline_and_leaves_no_connection() -> None:
    server = Server()
    async with server.running() as client:
        with pytest.raises(Unreachable, match="no answer in time"):
            await Writer(client, seconds=DEADLINE).patch(Namespace.resource, "", "a", BODY)
        # Nothing of it is sent later.
        await server.closed.wait()
    assert server.requests == 1


@pytest.mark.parametrize(
    ("status", "error"), [("429 Too Many Requests", TooManyRequests), ("503 Service Unavailable", ServerError)]
)
async def test_a_write_is_not_sent_again_after_its_deadline(status: str, error: type[Exception]) -> None:
    server = Server(status, "Retry-After: 1\r\n")
    async with server.running() as client:
        # Not `Unreachable`: it does not wait for a turn that comes too late.
        with pytest.raises(error):
            await Writer(client, seconds=DEADLINE).patch(Namespace.resource, "", "a", BODY)
    assert server.requests == 1


async def test_a_write_is_sent_again_before_its_deadline() -> None:
    server = Server("429 Too Many Requests", "Retry-After: 0\r\n")
    async with server.running() as client:
        with pytest.raises(TooManyRequests):
            await Writer(client, seconds=30.0).patch(Namespace.resource, "", "a", BODY)
    assert server.requests == 5

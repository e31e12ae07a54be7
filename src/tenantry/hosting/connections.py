"""The connections of one listener: their rate and number are bounded, and all of them end with it.

accept ─┬─ within the limits ─► serve(stream), as a task of its own
        ├─ above a limit ─────► reject(stream, reason), also a task, if there is a `reject`
        └─ too many rejected ─► closed at once

A listener that any client may reach has limits of clients that have not authenticated, too; see `unauthenticated.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from tenantry.engine.tasks import first_error
from tenantry.engine.tokenbucket import TokenBucket
from tenantry.hosting.tunnel import ByteStream, abort
from tenantry.hosting.unauthenticated import UnauthenticatedClients, UnauthenticatedLimits

MOST_REJECTIONS = 50
"""The number of rejected connections that a listener waits for at one time."""

Serve = Callable[[ByteStream], Coroutine[Any, Any, None]]
"""Serves one connection to its end; no error leaves it."""

Reject = Callable[[ByteStream, str], Coroutine[Any, Any, None]]
"""Rejects one connection for a reason; no error leaves it."""

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]
"""Called by a server for each connection."""

Listen = Callable[[Accept], Awaitable[asyncio.Server]]
"""Returns a server that calls the argument."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the connections of one listener.

    Args:
        connections_per_second: The sustained rate of new connections, which is also the largest burst.
        open_connections: The number of connections at one time.
        head_seconds: The time for the head of a request, and for a TLS handshake.
        unauthenticated: The limits of clients that have not authenticated, which then do not count as open connections;
            None for a listener that does not tell them from others.
    """

    connections_per_second: int = 50
    open_connections: int = 200
    head_seconds: float = 10.0
    unauthenticated: UnauthenticatedLimits | None = None


class Connections:
    """The connections of one listener.

    Args:
        limits: The limits.
        serve: See `Serve`; None for a listener that calls `begin` itself.
        reject: See `Reject`; None closes connections above a limit at once.
    """

    def __init__(self, limits: ConnectionLimits, serve: Serve | None = None, reject: Reject | None = None) -> None:
        self._limits = limits
        self._serve = serve
        self._reject = reject
        self._group: asyncio.TaskGroup | None = None
        self._bucket: TokenBucket | None = None
        self.open: set[asyncio.Task[None]] = set()
        self._rejected: set[asyncio.Task[None]] = set()
        known = limits.unauthenticated
        self._unauthenticated = UnauthenticatedClients[asyncio.Task[None]](known) if known is not None else None

    @asynccontextmanager
    async def accepted(self, listen: Listen) -> AsyncGenerator[asyncio.Server]:
        """Accept connections while the context is open; its end ends all of them at once.

        Raises:
            OSError: The listener cannot be made.
        """
        async with self.running():
            server = await listen(self._accept)
            try:
                yield server
            finally:
                server.close()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve connections that begin while the context is open; its end ends all of them at once."""
        self._bucket = TokenBucket.per_second(self._limits.connections_per_second)
        with first_error():
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    yield
                finally:
                    self._group = None
                    for task in self.open | self._rejected:
                        task.cancel()

    def begin(self, serve: Callable[[], Coroutine[Any, Any, None]], address: str = "") -> str:
        """Serve one more connection, as a task of its own.

        Args:
            serve: Serves it to its end; no error leaves it.
            address: The IP address of the client; it counts for a listener with limits of clients that have not
                authenticated.

        Returns:
            Why it is not served; "" if it is.
        """
        if self._group is None or self._bucket is None:
            return "the listener is closed"
        reason = self._excess(self._bucket, address)
        if reason:
            return reason
        task = self._group.create_task(serve())
        self._keep(self.open, task)
        if self._unauthenticated is not None:
            task.add_done_callback(self._unauthenticated.end)
            victim = self._unauthenticated.begin(task, address)
            if victim is not None:
                victim.cancel()
        return ""

    def authenticated(self, task: asyncio.Task[None] | None = None) -> None:
        """Take in that the client of a connection has authenticated.

        Args:
            task: The task that serves it; None for the current one.
        """
        task = task or asyncio.current_task()
        if self._unauthenticated is not None and task is not None:
            self._unauthenticated.end(task)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = ByteStream(reader, writer)
        reason = self.begin(partial(self._serve, stream)) if self._serve is not None else "nothing is served"
        if not reason:
            return
        # A closed listener: the kernel had accepted the connection before.
        if self._group is None or self._reject is None or len(self._rejected) >= MOST_REJECTIONS:
            abort(stream)
        else:
            self._keep(self._rejected, self._group.create_task(self._reject(stream, reason)))

    def _excess(self, bucket: TokenBucket, address: str) -> str:
        """Return which limit one more connection exceeds; "" for none."""
        now, unauthenticated = asyncio.get_running_loop().time(), self._unauthenticated
        # First: what one source opens must not use up what all may open.
        if unauthenticated is not None and not unauthenticated.take(address, now):
            return "too many connections of one address in a short time"
        others = len(unauthenticated) if unauthenticated is not None else 0
        if len(self.open) - others >= self._limits.open_connections:
            return "too many connections are open"
        if not bucket.try_take(now):
            return "too many connections in a short time"
        return ""

    @staticmethod
    def _keep(tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)

"""Leads connections of this process, and of no other one, into tunnels: HTTP clients connect sockets, not streams.

    Transport ─► socket that `socket_for("berlin")` has made, bound to 127.0.0.1:41234
              ─► 127.0.0.1:PORT ─► accepted from 127.0.0.1:41234 ─► carry("berlin", stream)

Any process on the machine can connect to the port. A connection whose source port this process has not bound itself
just before is closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tenantry.engine.tasks import cancelled_at_end
from tenantry.hosting.tunnel import ByteStream, abort

_HOST = "127.0.0.1"
_EXPECTED_SECONDS = 10.0
"""How long a socket that was made may take to connect."""

Carry = Callable[[str, ByteStream], Coroutine[Any, Any, None]]
"""Carries a connection to the end of a tunnel by the name of that; no error leaves it."""


class TunnelEntrance:
    """The port.

    Args:
        carry: See `Carry`.
    """

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._port = 0
        self._group: asyncio.TaskGroup | None = None
        # By the port of a socket: where it leads to, and until when it is expected.
        self._expected: dict[int, tuple[str, float]] = {}

    @property
    def server(self) -> str:
        """Return the URL of any API server behind it."""
        return f"https://{_HOST}:{self._port}"

    def socket_for(self, name: str) -> socket.socket:
        """Return a socket whose connection to the port leads into a tunnel.

        Raises:
            OSError: There are no more ports.
        """
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.bind((_HOST, 0))
            now = asyncio.get_running_loop().time()
            self._expected = {port: each for port, each in self._expected.items() if each[1] > now}
            self._expected[made.getsockname()[1]] = (name, now + _EXPECTED_SECONDS)
        except BaseException:
            made.close()
            raise
        return made

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[None]:
        """Listen while the context is open; its end ends all connections.

        Raises:
            OSError: There are no more ports.
        """
        async with cancelled_at_end() as group:
            self._group = group
            server = await asyncio.start_server(self._accept, _HOST, 0)
            self._port = server.sockets[0].getsockname()[1]
            try:
                yield
            finally:
                self._group = None
                server.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = ByteStream(reader, writer)
        host, port = writer.get_extra_info("peername")[:2]
        name, until = self._expected.pop(port, ("", 0.0)) if host == _HOST else ("", 0.0)
        if self._group is None or asyncio.get_running_loop().time() > until:
            abort(stream)
        else:
            self._group.create_task(self._carry(name, stream))

"""One connection to an endpoint proxy: a line of JSON for each question, and one for each answer, in any order.

    {"id": 1, "until": "told", "plane": {…}} ─► go/endpoint-proxy/control.go ─► {"id": 1}

Source: `message` and `outcome` there.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from contextlib import suppress

import msgspec

from tenantry.api.errors import LocalError
from tenantry.hosting.tunnel import ByteStream, abort
from tenantry.install import planeproxy

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_MOST_BYTES = 65536
# A node that is gone sends nothing: the connection ends after about half a minute.
_KEEP_ALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 4}


class ToldPlane(msgspec.Struct, frozen=True, kw_only=True):
    """What a proxy is told of a control plane.

    Args:
        uid: Of the control plane.
        name: What the log of the proxy calls it.
        port: Where its clients come in.
        nodes: Where machines come in, which wake no Pod; 0 for nowhere.
        phase: See `fronts.FrontPhase`.
        addresses: Of its API server in each Pod that is ready, as HOST:PORT.
        closed: Whether its tenant is suspended, or its objects move to the host.
        certificate: Of the API server, in PEM: the proxy answers in its place while it does not run, or is closed.
        key: The key of the certificate.
    """

    uid: str
    name: str
    port: int
    nodes: int = 0
    phase: str
    addresses: tuple[str, ...] = ()
    closed: bool = False
    certificate: str
    key: str


class _Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: int
    until: str
    uid: str = ""
    plane: ToldPlane | None = None


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    error: str = ""


class ProxySession:
    """A connection that is open.

    Args:
        stream: The connection.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self.is_told = False
        """Whether it has been told all that this operator knows."""

    @classmethod
    async def opened(cls, address: str, context: ssl.SSLContext) -> ProxySession:
        """Connect to the proxy of a Pod.

        Raises:
            OSError: It does not answer, or is another one.
            TimeoutError: As well.
        """
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                address,
                planeproxy.CONTROL_PORT,
                ssl=context,
                server_hostname=planeproxy.SERVER,
                limit=_MOST_BYTES,
            )
        found: socket.socket | None = writer.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE.items():
                found.setsockopt(socket.IPPROTO_TCP, option, value)
        return cls(ByteStream(reader, writer))

    async def run(self) -> None:
        """Receive answers until the connection ends.

        Raises:
            OSError: It broke.
            EOFError: The proxy has closed it.
        """
        try:
            while True:
                answer = msgspec.json.decode(await self._stream.reader.readuntil(b"\n"), type=_Answer)
                waiting = self._waiting.pop(answer.id, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer.error)
        except (msgspec.MsgspecError, asyncio.LimitOverrunError) as error:
            raise ConnectionResetError("the endpoint proxy is of another version of Tenantry") from error
        finally:
            self.close()

    def close(self) -> None:
        """End the connection, and all questions with it."""
        abort(self._stream)
        for each in self._waiting.values():
            if not each.done():
                each.set_exception(ConnectionResetError("the connection to the endpoint proxy ended"))
        self._waiting.clear()

    async def tell(self, plane: ToldPlane) -> None:
        """Report a control plane, and return when the proxy acts accordingly; see `_ask`."""
        await self._ask("told", plane=plane)

    async def forget(self, uid: str) -> None:
        """Have the proxy end a control plane that is deleted; see `_ask`."""
        await self._ask("gone", uid=uid)

    async def complete(self) -> None:
        """Report that all control planes have been reported; see `_ask`."""
        await self._ask("ready")

    async def knocked(self, uid: str) -> None:
        """Return when a client of a control plane is held because its Pod does not run; see `_ask`."""
        await self._ask("client", seconds=None, uid=uid)

    async def _ask(
        self, until: str, *, seconds: float | None = _ANSWER_SECONDS, uid: str = "", plane: ToldPlane | None = None
    ) -> None:
        """Return when the proxy has answered.

        Raises:
            LocalError: It refuses.
            OSError: The connection ended.
            TimeoutError: There is no answer in time; the connection is closed.
        """
        asked = _Question(id=next(self._ids), until=until, uid=uid, plane=plane)
        waiting = self._waiting[asked.id] = asyncio.get_running_loop().create_future()
        try:
            self._write(asked)
            async with asyncio.timeout(seconds):
                error = await waiting
        except TimeoutError:
            self.close()
            raise
        except asyncio.CancelledError:
            with suppress(OSError):
                self._write(_Question(id=asked.id, until="withdrawn"))
            raise
        finally:
            self._waiting.pop(asked.id, None)
        if error:
            raise LocalError(f"the endpoint proxy refuses: {error}")

    def _write(self, question: _Question) -> None:
        if self._stream.writer.is_closing():
            raise ConnectionResetError("the connection to the endpoint proxy ended")
        self._stream.writer.write(msgspec.json.encode(question) + b"\n")

"""A peer that lies: in front of a real API server, with TLS of its own, it changes the objects in its answers."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web
from cryptography import x509
from yarl import URL

from tenantry.api.model import Json
from tenantry.hosting.selfsigned import self_signed
from tenantry.kube.kubeconfig import Connection

Lie = Callable[[str, Json], None]
"""Changes an object in place that is on its way to the home; the text is the path of the request."""

_PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")
_LARGEST = 64 * 2**20


class LyingPeer:
    """One liar.

    Args:
        target: The API server of the real peer.
        folder: For its key.
    """

    def __init__(self, target: Connection, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._lies: tuple[Lie, ...] = ()
        self._open: set[asyncio.Transport] = set()
        self.ca = ""
        self.port = 0
        self.asked = 0
        """How many requests have come."""
        self.told = 0
        """How many objects these lies have changed."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[LyingPeer]:
        """Serve on a port of 127.0.0.1 while the context is open."""
        upstream = ssl.create_default_context(cadata=(self._target.ca or b"").decode())
        connector = aiohttp.TCPConnector(ssl=upstream, limit=0)
        application = web.Application(client_max_size=_LARGEST)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=_LARGEST) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._answer(session, request)

            application.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._context())
                await site.start()
                self.port = runner.addresses[0][1]
                yield self
            finally:
                await runner.cleanup()

    def tell(self, *lies: Lie) -> None:
        """Tell these lies from now on, none others; all connections end, so that the home asks again."""
        self._lies, self.told = lies, 0
        for each in self._open:
            each.abort()

    async def _answer(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        headers = {key: request.headers[key] for key in _PASSED_ON if key in request.headers}
        url, body = URL(self._target.server + request.raw_path, encoded=True), await request.read() or None
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._open.add(transport)
        try:
            async with session.request(request.method, url, data=body, headers=headers) as found:
                kind = found.headers.get("Content-Type", "")
                if request.query.get("watch") not in {"1", "true"}:
                    return web.Response(
                        status=found.status, body=self._changed(request.path, await found.read()), content_type=kind
                    )
                answer = web.StreamResponse(status=found.status, headers={"Content-Type": kind})
                await answer.prepare(request)
                with suppress(ConnectionError):
                    async for line in found.content:
                        await answer.write(self._changed(request.path, line) + b"\n")
                return answer
        finally:
            self._open.discard(transport)

    def _changed(self, path: str, data: bytes) -> bytes:
        """Return an answer, or a line of a watch, with the lies."""
        if not self._lies:
            return data.rstrip(b"\n")
        try:
            value: Json = msgspec.json.decode(data)
        except msgspec.DecodeError:
            return data.rstrip(b"\n")
        inner = value.get("object", value)
        for each in inner.get("items", [inner]):
            for lie in self._lies:
                before = msgspec.json.encode(each)
                lie(path, each)
                self.told += before != msgspec.json.encode(each)
        return msgspec.json.encode(value)

    def _context(self) -> ssl.SSLContext:
        hosts = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate, key = self_signed("a peer that lies", hosts, now=datetime.now(UTC), life=timedelta(days=1))
        self.ca = certificate.decode()
        path = self._folder / "liar.pem"
        path.write_bytes(key + certificate)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(path)
        return context

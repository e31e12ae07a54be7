"""A proxy before a real API server that injects faults: it refuses, delays, loses requests or answers, cuts watches.

It speaks plain HTTP on loopback to the code under test and, with the credentials of a kubeconfig, TLS to the server
behind it. What it does not fail goes through unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path

import aiohttp
import msgspec
import yaml
from aiohttp import web

from tenantry.kube import kubeconfig
from tenantry.kube.credentials import Credentials
from tenantry.local.cluster import LocalCluster
from testkit import versions
from testkit.operators import Operator, running

_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


class Fault(StrEnum):
    """The fault that a request meets."""

    REFUSE = "Refuse"
    """It is answered by the proxy and never reaches the server."""
    LOSE_REQUEST = "LoseRequest"
    """The connection closes before the request reaches the server."""
    LOSE_ANSWER = "LoseAnswer"
    """The server carries it out, then the connection closes."""
    DELAY = "Delay"
    """It takes longer, and then goes through."""


class Rule(msgspec.Struct, kw_only=True):
    """A rule that selects requests and their fault.

    Args:
        fault: The fault.
        method: A regular expression of the HTTP method, "" for any.
        path: A regular expression found in the path and query.
        times: How many requests fail; the rest goes through.
        status: Of the answer, for REFUSE.
        headers: Of the answer, for REFUSE.
        body: Of the answer, for REFUSE.
        seconds: For DELAY.
        hits: How many requests have failed so.
    """

    fault: Fault
    method: str = ""
    path: str = ""
    times: int = 1
    status: int = 503
    headers: dict[str, str] = {}
    body: bytes = b""
    seconds: float = 0.0
    hits: int = 0

    def takes(self, request: web.Request) -> bool:
        """Return whether a request is to fail, and count it."""
        if self.hits >= self.times or (self.method and not re.fullmatch(self.method, request.method)):
            return False
        if not re.search(self.path, request.path_qs):
            return False
        self.hits += 1
        return True


class FaultyProxy:
    """The proxy: `rules` can be changed at any time, the first that takes a request decides.

    Args:
        upstream: The kubeconfig of the server behind it.
    """

    def __init__(self, upstream: Path) -> None:
        self._connection = kubeconfig.load([upstream])
        self.rules: list[Rule] = []
        self.requests: list[tuple[str, str]] = []
        self.url = ""
        self._session: aiohttp.ClientSession | None = None
        # A client certificate would be preferred to the token that a request brings.
        self._bearers: aiohttp.ClientSession | None = None
        self._watches: dict[asyncio.Task[object], web.StreamResponse] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[FaultyProxy]:
        """Listen while the context is open."""
        tls = await Credentials(self._connection).tls()
        bare = await Credentials(msgspec.structs.replace(self._connection, certificate=None, key=None)).tls()
        timeout = aiohttp.ClientTimeout(total=None)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session,
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=bare, limit=0), timeout=timeout, auto_decompress=False
            ) as without,
        ):
            self._session, self._bearers = session, without
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                self.cut_watches()
                await runner.cleanup()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads to the proxy, and return its path."""
        config = {
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy"}}],
            "current-context": "proxy",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def fail(self, rule: Rule) -> Rule:
        """Add a rule and return it."""
        self.rules.append(rule)
        return rule

    def watches(self) -> int:
        """Return how many watches are open."""
        return len(self._watches)

    def cut_watches(self) -> int:
        """Break every open watch in the middle of an event; return their number."""
        cut = list(self._watches)
        for task in cut:
            task.cancel()
        return len(cut)

    async def expire_watches(self) -> int:
        """Report to every open watch that its resourceVersion is too old; return their number."""
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        line = msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"
        for response in list(self._watches.values()):
            with contextlib.suppress(ConnectionError):
                await response.write(line)
        return self.cut_watches()

    # -- one request ------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        rule = next((rule for rule in self.rules if rule.takes(request)), None)
        match rule.fault if rule else None:
            case Fault.REFUSE if rule:
                return web.Response(status=rule.status, body=rule.body, headers=rule.headers)
            case Fault.LOSE_REQUEST:
                return _hang_up(request)
            case Fault.LOSE_ANSWER:
                await self._forward(request, _swallow)
                return _hang_up(request)
            case Fault.DELAY if rule:
                await asyncio.sleep(rule.seconds)
            case _:
                pass
        found: list[web.StreamResponse] = []
        await self._forward(request, found.append)
        return found[0]

    async def _forward(self, request: web.Request, take: Callable[[web.StreamResponse], None]) -> None:
        session = self._bearers if "Authorization" in request.headers else self._session
        if session is None:
            raise RuntimeError("the proxy does not run")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        url = self._connection.server + request.path_qs
        async with session.request(request.method, url, data=await request.read() or None, headers=headers) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            if request.query.get("watch") != "true":
                take(web.Response(status=answer.status, body=await answer.read(), headers=kept))
                return
            response = web.StreamResponse(status=answer.status, headers=kept)
            take(response)
            if take is not _swallow:
                await self._stream(request, answer, response)

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        await response.prepare(request)
        pumping = asyncio.ensure_future(_pump(answer, response))
        self._watches[pumping] = response
        try:
            await pumping
        except (asyncio.CancelledError, ConnectionError, aiohttp.ClientError):
            pumping.cancel()
            _hang_up(request)
        finally:
            del self._watches[pumping]


@asynccontextmanager
async def operating(
    tenancy: LocalCluster, operator: Operator, folder: Path
) -> AsyncGenerator[tuple[FaultyProxy, Operator]]:
    """Run an operator behind a proxy, instead of the shared one.

    Args:
        tenancy: The cluster.
        operator: The shared one; it is stopped.
        folder: For the kubeconfig and the log.
    """
    await operator.stop()
    async with FaultyProxy(tenancy.paths.kubeconfig("operator")).running() as proxy:
        config = proxy.kubeconfig(folder / "operator")
        async with running(config, folder / "log", *versions.webhook_flags(tenancy)) as behind:
            await behind.leads()
            yield proxy, behind


async def _pump(answer: aiohttp.ClientResponse, response: web.StreamResponse) -> object:
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return None


def _swallow(_: web.StreamResponse) -> None:
    """Drop a response."""


def _hang_up(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()

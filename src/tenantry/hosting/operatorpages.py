"""/healthz, /readyz and /metrics over HTTP, and /metrics over HTTPS for clients with a token.

Every pod that reaches the ports may open connections; kubelet's probes and the scrapers of metrics open few.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from tenantry.hosting.boundedsite import BoundedSite
from tenantry.hosting.connections import ConnectionLimits
from tenantry.hosting.unauthenticated import UnauthenticatedLimits

LIMITS = ConnectionLimits(
    connections_per_second=1000,
    open_connections=50,
    head_seconds=5.0,
    unauthenticated=UnauthenticatedLimits(per_source_per_second=20, most=50),
)
"""Of each port. A probe or a scrape is one connection; of 50 others, the source with most of them loses the oldest."""

Verdict = Callable[[str, str], Awaitable[HTTPStatus]]
"""Returns the status of the response to a header Authorization, "" for none, and an IP address; OK for the page."""


@asynccontextmanager
async def serve(
    address: str, page: Callable[[], bytes], is_ready: Callable[[], bool], limits: ConnectionLimits = LIMITS
) -> AsyncGenerator[int]:
    """Serve without TLS while the context is open, and return the port.

    Args:
        address: `host:port`.
        page: Returns the text of /metrics.
        is_ready: Returns whether /readyz reports success.
        limits: The limits of connections.

    Raises:
        InputError: The address does not parse, or the port is taken.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        ready = is_ready()
        return web.Response(text="ok" if ready else "caches are not in step yet", status=200 if ready else 503)

    async def text(_: web.Request) -> web.Response:
        return _metrics(page())

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", text)
    async with BoundedSite(address, "--metrics-address", limits, None).serving(app) as port:
        yield port


@asynccontextmanager
async def serve_to_clients(
    address: str,
    context: ssl.SSLContext,
    page: Callable[[], bytes],
    verdict: Verdict,
    limits: ConnectionLimits = LIMITS,
) -> AsyncGenerator[int]:
    """Serve /metrics over TLS to clients that may read it, while the context is open, and return the port.

    Args:
        address: `host:port`.
        context: With the serving certificate.
        page: Returns the text of /metrics.
        verdict: Decides about each client.
        limits: The limits of connections.

    Raises:
        InputError: The address does not parse, or the port is taken.
    """
    site = BoundedSite(address, "--secure-metrics-address", limits, context)

    async def text(asked: web.Request) -> web.Response:
        status = await verdict(asked.headers.get("Authorization", ""), asked.remote or "")
        if status != HTTPStatus.OK:
            return web.Response(status=status, headers=_CHALLENGES.get(status))
        site.authenticated(asked)
        return _metrics(page())

    app = web.Application()
    app.router.add_get("/metrics", text)
    async with site.serving(app) as port:
        yield port


_CHALLENGES = {HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"}}


def _metrics(page: bytes) -> web.Response:
    return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

"""/healthz, /readyz and /metrics over HTTP, and /metrics over HTTPS for clients with a token.

Every pod that reaches the ports may open connections; kubelet's probes and the scrapers of metrics open few.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
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
    unauthenticated=UnauthenticatedLimits(per_source_per_second=10, most=50),
)
"""Of a port that pods reach. A probe or a scrape is one connection, which a response ends: so the rate of connections
also bounds that of pages and of reviews. Of 50 others, the source with most of them loses the oldest."""

LIMITS_OF_THIS_MACHINE = ConnectionLimits(connections_per_second=1000, open_connections=1000, head_seconds=5.0)
"""Of a port that only programs of this machine reach."""

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
        return _closing("ok")

    async def readyz(_: web.Request) -> web.Response:
        ready = is_ready()
        return _closing("ok") if ready else _closing("caches are not in step yet", HTTPStatus.SERVICE_UNAVAILABLE)

    async def text(_: web.Request) -> web.Response:
        return _closing(page())

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
            return _closing("", status, _CHALLENGES.get(status))
        site.authenticated(asked)
        return web.Response(body=page(), headers=_TEXT)

    app = web.Application()
    app.router.add_get("/metrics", text)
    async with site.serving(app) as port:
        yield port


_TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
_CHALLENGES = {HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"}}


def _closing(
    content: str | bytes, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a response that ends its connection, with a page of metrics as bytes."""
    body, text = (content, None) if isinstance(content, bytes) else (None, content)
    found = web.Response(body=body, text=text, status=status, headers=_TEXT if body is not None else headers)
    found.force_close()
    return found

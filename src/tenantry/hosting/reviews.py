"""Receives AdmissionReviews over HTTPS, with a certificate that can change meanwhile.

    connection ─► within the limits? ─► TLS ─► path with the token? ─► its client has authenticated ─► answer

Every pod that reaches the port may open connections. The API server authenticates by the paths that only its
configuration has; connections of other clients neither use up its places nor are many at one time.
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

MOST_BYTES = 8 * 2**20
"""The longest body that is read: an AdmissionReview has up to two objects, and etcd stores 1.5 MiB of each."""

LIMITS = ConnectionLimits(
    connections_per_second=1000,
    open_connections=600,
    head_seconds=5.0,
    unauthenticated=UnauthenticatedLimits(per_source_per_second=300, most=200),
)
"""An API server calls at most as many webhooks at one time as it serves writes: 200 (kube-apiserver,
--max-mutating-requests-inflight), each over a connection of its own at worst. Three may have one address, as behind a
proxy of the control plane."""

Answer = Callable[[str, bytes], Awaitable[tuple[HTTPStatus, bytes]]]
"""Returns the status and the body of the response to a path and a body."""


@asynccontextmanager
async def serve_reviews(
    address: str,
    context: ssl.SSLContext,
    is_known: Callable[[str], bool],
    answer: Answer,
    limits: ConnectionLimits = LIMITS,
) -> AsyncGenerator[int]:
    """Serve while the context is open, and return the port.

    Args:
        address: `host:port`.
        context: With the serving certificate; a later one counts for new connections.
        is_known: Returns whether a path is served. The body of a request for another one is not read.
        answer: Answers the others.
        limits: The limits of connections.

    Raises:
        InputError: The address does not parse, or the port is taken.
    """
    site = BoundedSite(address, "--webhook-address", limits, context)

    async def review(asked: web.Request) -> web.Response:
        if not is_known(asked.path):
            return web.Response(status=HTTPStatus.NOT_FOUND)
        site.authenticated(asked)
        status, body = await answer(asked.path, await asked.read())
        return web.Response(status=status, body=body, content_type="application/json")

    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_post("/{path:.*}", review)
    # The audit log of the API server has each request.
    async with site.serving(app) as port:
        yield port

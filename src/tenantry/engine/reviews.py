"""Receives AdmissionReviews over HTTPS, with a certificate that can change meanwhile."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from tenantry.engine.health import listening

MOST_BYTES = 8 * 2**20
"""The longest body that is read: an AdmissionReview has up to two objects, and etcd stores 1.5 MiB of each."""

Answer = Callable[[str, bytes], Awaitable[tuple[HTTPStatus, bytes]]]
"""Returns the status and the body of the response to a path and a body."""


@asynccontextmanager
async def serve_reviews(
    address: str, context: ssl.SSLContext, is_known: Callable[[str], bool], answer: Answer
) -> AsyncGenerator[None]:
    """Serve while the context is open.

    Args:
        address: `host:port`.
        context: With the serving certificate; a later one counts for new connections.
        is_known: Returns whether a path is served. The body of a request for another one is not read.
        answer: Answers the others.

    Raises:
        InputError: The address does not parse, or the port is taken.
    """

    async def review(asked: web.Request) -> web.Response:
        if not is_known(asked.path):
            return web.Response(status=HTTPStatus.NOT_FOUND)
        status, body = await answer(asked.path, await asked.read())
        return web.Response(status=status, body=body, content_type="application/json")

    app = web.Application(client_max_size=MOST_BYTES)
    app.router.add_post("/{path:.*}", review)
    async with listening(app, address, "--webhook-address", context):
        yield

"""/healthz, /readyz and /metrics over HTTP, and /metrics over HTTPS for clients with a token."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from tenantry.api.errors import InputError

KEEP_ALIVE_SECONDS = 60.0


Verdict = Callable[[str, str], Awaitable[HTTPStatus]]
"""Returns the status of the response to a header Authorization, "" for none, and an IP address; OK for the page."""


@asynccontextmanager
async def serve(address: str, page: Callable[[], bytes], is_ready: Callable[[], bool]) -> AsyncGenerator[None]:
    """Serve without TLS while the context is open.

    Args:
        address: `host:port`.
        page: Returns what /metrics says.
        is_ready: Returns whether /readyz reports that this replica is ready.

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
    async with listening(app, address, "--metrics-address", None):
        yield


@asynccontextmanager
async def serve_to_clients(
    address: str,
    context: ssl.SSLContext,
    page: Callable[[], bytes],
    verdict: Callable[[str, str], Awaitable[HTTPStatus]],
) -> AsyncGenerator[None]:
    """Serve /metrics over TLS to clients that may read it, while the context is open.

    Args:
        address: `host:port`.
        context: With the serving certificate.
        page: Returns what /metrics says.
        verdict: Decides about each client.

    Raises:
        InputError: The address does not parse, or the port is taken.
    """

    async def text(asked: web.Request) -> web.Response:
        status = await verdict(asked.headers.get("Authorization", ""), asked.remote or "")
        return (
            _metrics(page())
            if status == HTTPStatus.OK
            else web.Response(status=status, headers=_CHALLENGES.get(status))
        )

    app = web.Application()
    app.router.add_get("/metrics", text)
    async with listening(app, address, "--secure-metrics-address", context):
        yield


_CHALLENGES = {HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"}}


def _metrics(page: bytes) -> web.Response:
    return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


@asynccontextmanager
async def listening(
    app: web.Application, address: str, flag: str, context: ssl.SSLContext | None
) -> AsyncGenerator[None]:
    """Serve an application while the context is open.

    Args:
        app: The application.
        address: `host:port`.
        flag: That has the address, for messages.
        context: With the serving certificate; None for no TLS.

    Raises:
        InputError: The address does not parse, or the port is taken.
    """
    host, port = place_of(address)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, reuse_address=True, ssl_context=context).start()
        except OSError as error:
            raise InputError(f"cannot listen on {address!r}: {error.strerror}; choose another {flag}") from error
        yield
    finally:
        await runner.cleanup()


def place_of(address: str) -> tuple[str, int]:
    """Return the host and the port of an address to listen on.

    Raises:
        InputError: It does not parse.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"address {address!r} must be HOST:PORT, as in 127.0.0.1:8080")
    return host, int(port)

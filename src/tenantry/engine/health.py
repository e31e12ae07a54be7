"""/healthz, /readyz and /metrics over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from tenantry.api.errors import InputError
from tenantry.engine.metrics import Metrics


@asynccontextmanager
async def serve(
    address: str, metrics: Metrics, is_ready: Callable[[], bool], refresh: Callable[[], object]
) -> AsyncGenerator[None]:
    """Serve while the context is open.

    Args:
        address: `host:port`.
        metrics: What /metrics says.
        is_ready: What /readyz says.
        refresh: Called before each /metrics.

    Raises:
        InputError: The address does not parse, or the port is taken.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"address {address!r} must be HOST:PORT, as in 127.0.0.1:8080")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        ready = is_ready()
        return web.Response(text="ok" if ready else "caches are not in step yet", status=200 if ready else 503)

    async def text(_: web.Request) -> web.Response:
        refresh()
        return web.Response(body=metrics.text(), content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", text)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, int(port), reuse_address=True).start()
        except OSError as error:
            raise InputError(
                f"cannot listen on {address!r}: {error.strerror}; choose another --metrics-address"
            ) from error
        yield
    finally:
        await runner.cleanup()

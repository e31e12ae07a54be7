"""Opens a client for a target and runs one coroutine with it, as every verb about a cluster does.

aiohttp is imported here, just before the first request, so that help and errors about wrong input are fast.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tenantry.api.errors import ConfigError, Forbidden, Invalid, NotFound
from tenantry.cli import refusals
from tenantry.cli.target import Target

if TYPE_CHECKING:
    from types import FrameType

    from tenantry.kube.client import Client

T = TypeVar("T")

NOT_INSTALLED = (
    "this cluster does not have Tenantry's kinds; install them with `tenantry install`, or choose another cluster with"
    " --cluster, --kubeconfig or --context"
)
INSIDE = (
    "this is the API server of a virtual control plane, which does not have Tenantry's kinds: give the kubeconfig of"
    " its host with --kubeconfig, or a local cluster with --cluster"
)


def run(target: Target, work: Callable[[Client], Coroutine[Any, Any, T]], *, tables: bool = False) -> T:
    """Run work with a client of the target and return what it returns.

    Args:
        target: The cluster.
        work: The coroutine function.
        tables: Ask the server for Tables (`tenantry.kube.tables`).

    Raises:
        ConfigError: The credentials are wrong, the server is too old, or Tenantry is not installed there.
        ApiError: The server refuses or does not answer.
    """
    with _without_system_certificates():
        from tenantry.kube.client import Client
        from tenantry.kube.tables import TableClient
        from tenantry.kube.version import require_supported

    is_inside = False

    async def main() -> T:
        nonlocal is_inside
        kind = TableClient if tables else Client
        async with kind(target.connection()) as client:
            await require_supported(client)
            try:
                return await work(client)
            except NotFound as error:
                is_inside = refusals.lacks_kind(error) and await _is_inside(client)
                raise

    try:
        return asyncio.run(main())
    except NotFound as error:
        if refusals.lacks_kind(error):
            raise ConfigError(INSIDE if is_inside else NOT_INSTALLED) from error
        raise refusals.missing(error) from error
    except Invalid as error:
        raise refusals.explained(error) from error
    except Forbidden as error:
        raise refusals.denied(error) from error


async def _is_inside(client: Client) -> bool:
    from tenantry.views.inside import is_inside

    return await is_inside(client)


def interrupt_on_signals() -> None:
    """Let every signal that ends a command end it as Ctrl-C does: with what the command must still do or print."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    # Shells make their background jobs ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


@contextmanager
def _without_system_certificates() -> Generator[None]:
    """Keep aiohttp from loading the certificate authorities of the machine while it is imported.

    It loads them into a context of its own, which costs a tenth of the CPU of a short command. A connection to an API
    server has another context, which is created later.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

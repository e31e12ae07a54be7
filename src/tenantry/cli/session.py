"""Opens a client for a target and runs one piece of work with it: what every verb about a cluster does.

aiohttp is imported here and only when a request is about to be sent, so that help and wrong input answer at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tenantry.api.errors import ConfigError, Forbidden, Invalid, NotFound
from tenantry.cli import refusals
from tenantry.cli.target import Target

if TYPE_CHECKING:
    from tenantry.kube.client import Client

T = TypeVar("T")


def run(target: Target, work: Callable[[Client], Coroutine[Any, Any, T]], *, tables: bool = False) -> T:
    """Run work with a client of the target and return what it returns.

    Args:
        target: The cluster.
        work: What to do.
        tables: Ask the server for Tables (`tenantry.kube.tables`).

    Raises:
        ConfigError: The credentials are wrong, the server is too old, or Tenantry is not installed there.
        ApiError: The server refuses or does not answer.
    """
    from tenantry.kube.client import Client
    from tenantry.kube.tables import TableClient
    from tenantry.kube.version import require_supported

    async def main() -> T:
        kind = TableClient if tables else Client
        async with kind(target.connection()) as client:
            await require_supported(client)
            return await work(client)

    try:
        return asyncio.run(main())
    except NotFound as error:
        # The path itself is unknown, rather than an object: the server answers in plain text, or in these words.
        if "404 page not found" in str(error) or "could not find the requested resource" in str(error):
            raise ConfigError(
                "this cluster does not have Tenantry's kinds; install them with `tenantry install`, or choose another"
                " cluster with --name, --kubeconfig or --context"
            ) from error
        raise
    except Invalid as error:
        raise refusals.explained(error) from error
    except Forbidden as error:
        raise refusals.denied(error) from error

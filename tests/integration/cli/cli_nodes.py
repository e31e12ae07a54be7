"""Nodes of a test's own that live while a command runs."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from cli_command import SECONDS, Cli

from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from testkit.api import Api
from testkit.parts import SharedNodes


@contextmanager
def living(
    cli: Cli, make: Callable[[SharedNodes], Coroutine[Any, Any, list[str]]]
) -> Generator[tuple[SharedNodes, str]]:
    """Give nodes and the name of the first, in a pool that no other test has.

    A thread renews the nodes' leases every few seconds, because a command blocks the event loop of this thread.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    stack = AsyncExitStack()

    async def begin() -> tuple[SharedNodes, str]:
        client = await stack.enter_async_context(Client(kubeconfig.load([cli.admin_kubeconfig])))
        pool = SharedNodes(Api(client), f"n{uuid.uuid4().hex[:8]}")
        stack.push_async_callback(pool.end)
        return pool, (await make(pool))[0]

    def done(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever it returns
        return asyncio.run_coroutine_threadsafe(work, loop).result(SECONDS)

    try:
        yield done(begin())
    finally:
        done(stack.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

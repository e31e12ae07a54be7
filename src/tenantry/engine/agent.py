"""Run a program that works on its own node, without a lease: no other process does the same work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine

from tenantry.engine.tasks import first_error


async def until_told_to_stop(work: Coroutine[object, object, object]) -> None:
    """Run a coroutine until it ends, or until the process gets SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    with first_error():
        async with asyncio.TaskGroup() as group:
            running = group.create_task(work)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, running.cancel)

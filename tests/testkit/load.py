"""A client that reads all the time, to count what fails while a control plane is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from tenantry.api.errors import TenantryError
from tenantry.kube.client import Client
from testkit.api import CONFIG_MAPS, Api


class Load:
    """Reads through one client all the time, and tries each read once more.

    Args:
        client: The client.
    """

    def __init__(self, client: Client) -> None:
        self._inside = Api(client)
        self.failed: list[str] = []
        self.reads = 0

    @asynccontextmanager
    async def going_on(self) -> AsyncGenerator[None]:
        """Read while the context is open.

        Raises:
            AssertionError: Nothing was read.
        """
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        assert self.reads, "nothing was read"

    async def _run(self) -> None:
        while True:
            try:
                await self._read()
            except (TenantryError, OSError):
                with suppress(TenantryError, OSError):
                    await self._again()
            await asyncio.sleep(0.05)

    async def _read(self) -> None:
        await self._inside.list(CONFIG_MAPS, "default")
        self.reads += 1

    async def _again(self) -> None:
        try:
            await self._read()
        except (TenantryError, OSError) as error:
            self.failed.append(str(error))
            raise

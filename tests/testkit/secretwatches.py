"""Watches of Secrets that users of a namespace have opened before it is converted, and what these show."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import TenantryError
from tenantry.kube.client import Client
from tenantry.kube.watch import watch
from testkit.api import SECONDS, SECRETS, Api, until

Json = dict[str, Any]


class SecretWatch:
    """What one watch of the Secrets of a namespace has shown."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.kubeconfigs: list[str] = []
        """The names of Secrets that have shown a kubeconfig, under any key."""

    async def follow(self, client: Client, namespace: str, is_open: asyncio.Event) -> None:
        """Read the watch until the API server ends it."""
        with suppress(TenantryError, OSError):
            async for batch in watch(client, SECRETS, resource_version="", namespace=namespace):
                for event in batch:
                    self._note(msgspec.json.decode(event.object))
                is_open.set()

    def _note(self, found: Json) -> None:
        name = found.get("metadata", {}).get("name", "")
        self.names.append(name)
        data: dict[str, str] = found.get("data") or {}
        texts = [base64.b64decode(each) for each in data.values()]
        if any(b"client-key-data" in each for each in texts):
            self.kubeconfigs.append(name)

    async def reaches(self, host: Api, namespace: str, name: str) -> None:
        """Create a Secret, and wait until the watch shows it: then it has shown all that was written before."""
        await host.create(SECRETS, {"metadata": {"name": name}}, namespace)

        async def so() -> bool:
            return name in self.names

        await until(so, f"the watch shows the Secret {name!r}", seen=lambda: self.names)


@asynccontextmanager
async def watching_secrets(host: Api, user: str, namespace: str) -> AsyncGenerator[SecretWatch]:
    """A watch of the Secrets of a namespace that a user has opened; it stays open when the rights are gone."""
    found, is_open = SecretWatch(), asyncio.Event()
    # The API server sends something at once only if there is something.
    await host.create(SECRETS, {"metadata": {"name": f"first-{user}"}}, namespace)
    async with Client(replace(host.client.connection, impersonate=user)) as client:
        reading = asyncio.create_task(found.follow(client, namespace, is_open))
        try:
            async with asyncio.timeout(SECONDS):
                await is_open.wait()
            yield found
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

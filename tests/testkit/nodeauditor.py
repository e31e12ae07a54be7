"""Inspects nodes at every resourceVersion, independently of the code that changes them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import msgspec

from tenantry.api.errors import Unreachable
from tenantry.api.model import Resource
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch

Json = dict[str, Any]
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)


class NodeAuditor(ABC):
    """An auditor of all changes of nodes.

    Args:
        client: Reads as an administrator.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version = 0
        self.problems: list[str] = []

    @abstractmethod
    def note(self, node: Json) -> None:
        """Inspect one node at one version."""

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[Self]:
        """Inspect every change while the context is open.

        Raises:
            ApiError: It could not look at every version.
        """
        async for page in self._client.pages(NODES, msgspec.Raw):
            for raw in page.items:
                self.note(msgspec.json.decode(raw))
            self._version = int(page.metadata.resource_version)
        task = asyncio.create_task(self._follow())
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        while True:
            with suppress(Unreachable):
                async for events in watch(self._client, NODES, resource_version=str(self._version)):
                    for event in events:
                        value: Json = msgspec.json.decode(event.object)
                        self._version = int(value["metadata"]["resourceVersion"])
                        if event.type is not EventType.BOOKMARK:
                            self.note(value)

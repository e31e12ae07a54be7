"""Pods in the namespace of control planes are followed for as long as needed (H02)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec

from tenantry.hostedpods import following

POD = {"metadata": {"name": "hosted-a-0"}, "status": {"podIP": "192.0.2.1"}}


class PodWatchClient:
    """A client of an API server with one Pod, which is deleted.

    `open_watches` is how many watches are open.
    """

    def __init__(self) -> None:
        self.open_watches = 0

    async def request(self, method: str, path: str, *, query: object) -> bytes:  # noqa: ARG002 - it only lists
        """Answer a list."""
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": [POD]})

    @asynccontextmanager
    async def open(self, method: str, path: str, **_: object) -> AsyncGenerator[Any]:  # noqa: ARG002 - it only watches
        """Answer a watch."""
        self.open_watches += 1
        try:
            yield SimpleNamespace(content=SimpleNamespace(iter_any=self._events))
        finally:
            self.open_watches -= 1

    async def _events(self) -> AsyncIterator[bytes]:
        yield msgspec.json.encode({"type": "DELETED", "object": POD}) + b"\n"


async def test_a_watch_ends_with_what_waits_for_it() -> None:
    """H02: a watch that stays open keeps a connection of the operator."""
    client = PodWatchClient()
    await following.gone(client, "a=b", "hosted-a-0", 10.0)  # pyright: ignore[reportArgumentType] - it only reads
    assert client.open_watches == 0

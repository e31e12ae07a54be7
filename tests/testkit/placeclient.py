"""A client that may list and watch only in places, whose watches stay open and report what a test sends.

Lists come from a `World`; see `testkit.worldclient`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
import msgspec

from tenantry.api.errors import ApiError, Forbidden
from tenantry.kube.client import ATTEMPTS
from tenantry.kube.transport import JSON, TIMEOUT, Exchange
from testkit.model import Json, World
from testkit.worldclient import WorldClient

Event = tuple[str, Json] | Exception | None
"""What a watch sends: the type and the object of an event, the failure of its connection, or its end."""


class _OpenWatch:
    """The content of a response to a watch."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()

    @property
    def content(self) -> _OpenWatch:
        """Return what the response consists of."""
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the events until the end."""
        while (event := await self.events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield msgspec.json.encode({"type": event[0], "object": event[1]}) + b"\n"


class PlaceClient(WorldClient):
    """A client without the right to list a kind everywhere.

    Args:
        world: It answers lists.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world, lambda: "none")
        self.refused: dict[str, ApiError] = {"": Forbidden("it may be listed only in places", status=403)}
        """The responses to lists in a place; "" is everywhere."""
        self.lists: list[str] = []
        """The places of all lists, in order."""
        self.watches: dict[str, _OpenWatch] = {}
        """The open watches by their place."""

    def send(self, place: str, event: Event) -> None:
        """Send an event on the watch of a place."""
        self.watches[place].events.put_nowait(event)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
        seconds: float | None = None,
    ) -> bytes:
        """Answer a request; see `Client.request`."""
        place = self._place(path, query)
        self.lists.append(place)
        if place in self.refused:
            raise self.refused[place]
        return await super().request(
            method, path, query=query, body=body, content_type=content_type, attempts=attempts, seconds=seconds
        )

    def open(
        self,
        method: str,  # noqa: ARG002 - always GET
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,  # noqa: ARG002 - a watch has none
        content_type: str = JSON,  # noqa: ARG002 - a watch has none
        timeout: aiohttp.ClientTimeout = TIMEOUT,  # noqa: ARG002 - no time passes
    ) -> Exchange:
        """Begin a watch; see `Client.open`."""
        return cast("Exchange", self._stream(self._place(path, query)))

    @asynccontextmanager
    async def _stream(self, place: str) -> AsyncGenerator[_OpenWatch]:
        opened = self.watches[place] = _OpenWatch()
        try:
            yield opened
        finally:
            if self.watches.get(place) is opened:
                del self.watches[place]

    def _place(self, path: str, query: Mapping[str, str] | None) -> str:
        namespace = self._parse(path)[1]
        fields = (query or {}).get("fieldSelector", "").split(",")
        name = "".join(each.removeprefix("metadata.name=") for each in fields if each.startswith("metadata.name="))
        return "/".join(each for each in (namespace, name) if each)

"""Watching: a stream of changes, line by line, as batches of what arrived together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum

import aiohttp
import msgspec

from tenantry.api.errors import ApiError, TooLarge
from tenantry.api.model import Resource
from tenantry.kube import wire
from tenantry.kube.client import Client

WATCH_SECONDS = 290
"""After this the server ends a watch and we begin the next where it ended."""

SILENCE_SECONDS = 90.0
"""The server sends a bookmark each minute: a longer silence is a connection that broke without a word, or a kind of
which the server has seen no change since it started, for which it sends none."""


class EventType(StrEnum):
    """What happened (Kubernetes: "API concepts", efficient detection of changes)."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch; the object is not decoded yet."""

    type: EventType
    object: msgspec.Raw


_event_decoder = msgspec.json.Decoder(WatchEvent)


LINE_BYTES = 16 * 2**20
"""The longest line of a watch that is read: an object has at most 2 MiB."""


class LineBuffer:
    """Bytes in, whole lines out.

    Args:
        limit: The longest line in bytes.
    """

    def __init__(self, limit: int = LINE_BYTES) -> None:
        self._limit = limit
        # Joined once when the line ends: what arrives is not copied again and again.
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are whole with this data, without their ends.

        Raises:
            TooLarge: A line is too long.
        """
        first, *others = data.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > self._limit or any(len(each) > self._limit for each in others):
            raise TooLarge(f"a line of the watch is longer than {self._limit} bytes")
        if not others:
            return []
        lines = [b"".join(self._parts), *others]
        rest = lines.pop()
        self._parts, self._size = [rest], len(rest)
        return [line for line in lines if line]


async def watch(
    client: Client,
    resource: Resource,
    *,
    resource_version: str,
    selectors: Mapping[str, str] | None = None,
    namespace: str = "",
) -> AsyncIterator[list[WatchEvent]]:
    """Yield what changes after a resourceVersion, until the server ends the watch, or falls silent: watch again then.

    Raises:
        Gone: The resourceVersion is too old: list again.
        Unreachable: The connection broke: watch again from the last resourceVersion seen.
        TooLarge: A line has no end.
        ApiError: The server refuses.
    """
    query = {
        **(selectors or {}),
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(WATCH_SECONDS),
    }
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=SILENCE_SECONDS)
    buffer = LineBuffer()
    async with client.open("GET", wire.path(resource, namespace), query=query, timeout=timeout) as response:
        chunks = response.content.iter_any()
        while True:
            try:
                chunk = await anext(chunks)
            except (StopAsyncIteration, aiohttp.SocketTimeoutError):
                return
            events = [_decode(line) for line in buffer.feed(chunk)]
            if events:
                yield events


def _decode(line: bytes) -> WatchEvent:
    try:
        event = _event_decoder.decode(line)
    except wire.UNREADABLE as error:
        raise ApiError(f"a line of the watch does not decode: {error}") from error
    if event.type is EventType.ERROR:
        status = msgspec.json.decode(event.object, type=wire.Status)
        raise wire.error_from(status.code or 500, bytes(event.object), "watch")
    return event

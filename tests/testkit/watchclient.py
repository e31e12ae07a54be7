"""A client whose watches a test answers, beside the requests that a World answers; see `testkit.worldclient`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import aiohttp
import msgspec

from tenantry.kube.transport import JSON, TIMEOUT, Exchange
from testkit.model import Json, World
from testkit.worldclient import WorldClient

Script = list[tuple[str, Json] | Exception]
"""What one watch sends: types and objects of events, or the failure of its connection."""


class Ended(BaseException):
    """All watches of a test have been answered."""


class _Content:
    def __init__(self, script: Script) -> None:
        self._script = script

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield the events; the server ends the watch after the last one."""
        for each in self._script:
            if isinstance(each, Exception):
                raise each
            yield msgspec.json.encode({"type": each[0], "object": each[1]}) + b"\n"


class _Response:
    def __init__(self, script: Script) -> None:
        self.content = _Content(script)


class WatchClient(WorldClient):
    """A client with a script for each watch; `Ended` is raised instead of a further one.

    Args:
        world: It answers lists.
        scripts: In the order of the watches.
    """

    def __init__(self, world: World, *scripts: Script) -> None:
        super().__init__(world, lambda: "none")
        self._scripts = list(scripts)
        self.versions: list[str] = []

    def open(
        self,
        method: str,  # noqa: ARG002 - always GET
        path: str,  # noqa: ARG002 - a test watches one kind
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,  # noqa: ARG002 - a watch has none
        content_type: str = JSON,  # noqa: ARG002 - a watch has none
        timeout: aiohttp.ClientTimeout = TIMEOUT,  # noqa: ARG002 - no time passes
    ) -> Exchange:
        """Begin a watch; see `Client.open`."""
        if not self._scripts:
            raise Ended
        self.versions.append((query or {})["resourceVersion"])
        return cast("Exchange", _stream(self._scripts.pop(0)))


@asynccontextmanager
async def _stream(script: Script) -> AsyncGenerator[_Response]:
    yield _Response(script)

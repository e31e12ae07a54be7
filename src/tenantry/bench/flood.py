"""A process that floods an API server: its own process, so that only the server is slowed down.

flooding(Flood) ─► process ─► RunningFlood.end ─► FloodResult

stdin:  one line of JSON, a `Flood`; the flood ends with stdin, which also ends when the parent process does
stdout: "begun", and at the end one line of JSON, a `FloodResult`
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import uvloop

from tenantry.api.errors import ApiError, RetryableError, TooManyRequests
from tenantry.api.model import Json
from tenantry.bench.load import deadline
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

WRITERS = 4
"""If there are readers, one in so many connections writes, and the others list."""

FLOODING = "flood-"
"""What the names of all objects of a flood begin with."""

PROCESS_SECONDS = 30.0
"""How long the flooding process may take to start, and to end."""


class FloodKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of which a flood creates and deletes objects.

    Args:
        path: The path of the collection.
        value: The object; its name is set for each.
    """

    path: str
    value: Json


class Flood(msgspec.Struct, frozen=True, kw_only=True):
    """The flood to produce.

    Args:
        connection: The user and the API server.
        kinds: What is created and deleted; the first of them is listed.
        connections: How many requests are under way at once.
        depth: How many objects of each kind a connection creates before it deletes them.
        reads: Whether most connections list.
    """

    connection: Connection
    kinds: tuple[FloodKind, ...]
    connections: int
    depth: int = 1
    reads: bool = True


class FloodResult(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a flood.

    Args:
        seconds: How long the flood lasted.
        answered: How many requests succeeded.
        refused: How many the server rejected with 429.
        failed: How many failed otherwise.
    """

    seconds: float
    answered: int
    refused: int
    failed: int


class _Flooder:
    def __init__(self, client: Client, flood: Flood) -> None:
        self._client = client
        self._flood = flood
        self._counts = {"answered": 0, "refused": 0, "failed": 0}

    async def until_stdin_ends(self) -> FloodResult:
        """Flood until stdin ends."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._write(number) if self._writes(number) else self._list())
                for number in range(self._flood.connections)
            ]
            sys.stdout.write("begun\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.readline)
            seconds = time.perf_counter() - began
            for task in tasks:
                task.cancel()
        return FloodResult(seconds=round(seconds, 3), **self._counts)

    def _writes(self, number: int) -> bool:
        return not self._flood.reads or number % WRITERS == WRITERS - 1

    async def _list(self) -> None:
        while True:
            await self._ask("GET", self._flood.kinds[0].path)

    async def _write(self, number: int) -> None:
        names = [f"{FLOODING}{number}-{each}" for each in range(self._flood.depth)]
        made = [(kind.path, name, _body(kind, name)) for name in names for kind in self._flood.kinds]
        while True:
            for path, _, body in made:
                await self._ask("POST", path, body)
            for path, name, _ in made:
                await self._ask("DELETE", f"{path}/{name}")

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> None:
        """Send a request once: a flood ignores Retry-After."""
        try:
            async with self._client.open(method, path, body=body) as answer:
                await answer.read()
        except TooManyRequests:
            self._counts["refused"] += 1
        except ApiError:
            self._counts["failed"] += 1
        else:
            self._counts["answered"] += 1


def _body(kind: FloodKind, name: str) -> bytes:
    return msgspec.json.encode({**kind.value, "metadata": {**kind.value.get("metadata", {}), "name": name}})


class RunningFlood:
    """A flood, seen from the process that started it.

    Args:
        process: The process that floods.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    async def end(self) -> FloodResult:
        """End the flood.

        Raises:
            RetryableError: The process does not end in time.
        """
        async with deadline(PROCESS_SECONDS, "the process that floods has not ended"):
            output, _ = await self._process.communicate(b"")  # with None, Python 3.11 leaves stdin open
        return msgspec.json.decode(output, type=FloodResult)


@asynccontextmanager
async def flooding(flood: Flood) -> AsyncGenerator[RunningFlood]:
    """Flood while the context is open.

    Raises:
        RetryableError: The process does not begin, or end, in time.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tenantry.bench.flood", stdin=PIPE, stdout=PIPE
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        process.stdin.write(msgspec.json.encode(flood) + b"\n")
        async with deadline(PROCESS_SECONDS, "the process that floods has not begun"):
            if not await process.stdout.readline():
                raise RetryableError("the process that floods ended at once; its error is printed above")
        yield RunningFlood(process)
    finally:
        if process.returncode is None:
            process.kill()
        async with deadline(PROCESS_SECONDS, "the process that floods has not ended"):
            await process.wait()


async def _main(flood: Flood) -> None:
    # Compressed answers, as client-go asks for them, cost the server more and this process less.
    async with Client(flood.connection, max_connections=flood.connections, compressed=True) as client:
        flooded = await _Flooder(client, flood).until_stdin_ends()
    sys.stdout.write(f"{msgspec.json.encode(flooded).decode()}\n")


if __name__ == "__main__":
    uvloop.run(_main(msgspec.json.decode(sys.stdin.readline(), type=Flood)))

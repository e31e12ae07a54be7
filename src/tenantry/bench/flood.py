"""A process that floods the API server: its own process, so that only the server is slowed down.

stdin:  one line of JSON, a `Flood`; the flood ends with stdin, which also ends when the parent process does
stdout: "begun", and at the end one line of JSON, a `FloodResult`
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import uvloop

from tenantry.api.errors import ApiError, TooManyRequests
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

WRITERS = 4
"""One in so many connections writes, the others list."""


class Flood(msgspec.Struct, frozen=True, kw_only=True):
    """The flood to produce.

    Args:
        connection: The user and the API server.
        namespace: The namespace whose ConfigMaps are listed, created and deleted.
        connections: How many requests are under way at once.
    """

    connection: Connection
    namespace: str
    connections: int


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
        self._path = f"/api/v1/namespaces/{flood.namespace}/configmaps"
        self._connections = flood.connections
        self._counts = {"answered": 0, "refused": 0, "failed": 0}

    async def until_stdin_ends(self) -> FloodResult:
        """Flood until stdin ends."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._write(number) if number % WRITERS == WRITERS - 1 else self._list())
                for number in range(self._connections)
            ]
            sys.stdout.write("begun\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.readline)
            seconds = time.perf_counter() - began
            for task in tasks:
                task.cancel()
        return FloodResult(seconds=round(seconds, 3), **self._counts)

    async def _list(self) -> None:
        while True:
            await self._ask("GET", self._path)

    async def _write(self, number: int) -> None:
        name = f"flood-{number}"
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        while True:
            await self._ask("POST", self._path, body)
            await self._ask("DELETE", f"{self._path}/{name}")

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


async def _main(flood: Flood) -> None:
    # Compressed answers, as client-go asks for them, cost the server more and this process less.
    async with Client(flood.connection, max_connections=flood.connections, compressed=True) as client:
        flooded = await _Flooder(client, flood).until_stdin_ends()
    sys.stdout.write(f"{msgspec.json.encode(flooded).decode()}\n")


if __name__ == "__main__":
    uvloop.run(_main(msgspec.json.decode(sys.stdin.readline(), type=Flood)))

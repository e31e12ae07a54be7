"""The status of a NamespaceMap is written by one request at a time, which takes later changes along."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tenantry.api.errors import NotFound, ServerError
from tenantry.api.model import Json
from tenantry.controllers.peering.link.mapstatus import MapStatusWriter
from tenantry.engine.cluster import Cluster


class SlowServer:
    """Answers a PATCH when it is told to, or fails."""

    def __init__(self) -> None:
        self.entries: Json = {}
        self.requests: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.failure: Exception | None = None

    @property
    def writer(self) -> SlowServer:
        return self

    async def patch(self, _resource: object, _namespace: str, _name: str, body: Json, **_: Any) -> None:  # noqa: ANN401
        current: Json = body["status"]["current"]
        self.requests.append(sorted(current))
        await self.may_answer.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.entries |= current


def written_by(server: SlowServer) -> MapStatusWriter:
    return MapStatusWriter(cast("Cluster", server), "berlin")


async def test_changes_during_a_request_are_one_request_more() -> None:
    server = SlowServer()
    writer = written_by(server)
    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c", "d"):
            group.create_task(writer.write("uid", {name: {"phase": "Accepted"}}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        server.may_answer.set()
    assert sum(map(len, server.requests)) == 4
    assert len(server.requests) <= 2
    assert sorted(server.entries) == ["a", "b", "c", "d"]


async def test_the_later_of_two_changes_of_a_namespace_is_what_stays() -> None:
    server = SlowServer()
    writer = written_by(server)
    async with asyncio.TaskGroup() as group:
        for phase in ("Creating", "Accepted"):
            group.create_task(writer.write("uid", {"a": {"phase": phase}}))
        await asyncio.sleep(0)
        server.may_answer.set()
    assert server.entries == {"a": {"phase": "Accepted"}}


async def test_what_a_failed_request_took_along_is_written_by_another_one() -> None:
    server = SlowServer()
    server.failure = ServerError("busy", status=500)
    server.may_answer.set()
    writer = written_by(server)
    results = await asyncio.gather(
        *(writer.write("uid", {name: {}}) for name in ("a", "b", "c")), return_exceptions=True
    )
    assert [type(each) for each in results if each is not None] == [ServerError]
    assert sorted(server.entries) == ["a", "b", "c"]


async def test_a_map_that_is_gone_needs_no_status() -> None:
    server = SlowServer()
    server.failure = NotFound("gone", status=404)
    server.may_answer.set()
    await written_by(server).write("uid", {"a": {}})
    assert server.entries == {}


async def test_entries_of_a_map_with_another_uid_are_not_mixed() -> None:
    """A map that was deleted and made again has another uid: what belonged to the first one is not written to it."""
    server = SlowServer()
    server.may_answer.set()
    writer = written_by(server)
    await asyncio.gather(writer.write("first", {"a": {}}), writer.write("second", {"b": {}}))
    assert server.requests == [["a"], ["b"]]

"""What a hosted control plane is asked about its clients (H01)."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tenantry.api.errors import LocalError
from tenantry.hosting import activity
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.reports import Activity


@asynccontextmanager
async def process(folder: Path, answer: bytes) -> AsyncGenerator[tuple[Path, list[bytes]]]:
    """A process that gives one answer, and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(answer)
        writer.close()

    server = await asyncio.start_unix_server(serve, folder / "s")
    async with server:
        yield folder / "s", asked


async def test_the_answer_names_clients_and_the_next_event(tmp_path: Path) -> None:
    """H01: the question says how long no client must have been active, or that the answer must not wait."""
    line = b'{"openRequests": 2, "idleSeconds": 0, "nextEvent": "2026-01-02T03:04:05Z"}\n'
    async with process(tmp_path, line) as (path, asked):
        found = await activity.ask(path, 600)
        assert await activity.ask(path, None) == found
    next_event = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert found == Activity(open_requests=2, idle_seconds=0, next_event=next_event)
    assert [msgspec.json.decode(each) for each in asked] == [{"idleSeconds": 600}, {}]


@pytest.mark.parametrize("answer", [b"", b"{}\n", b"[]\n", b'{"openRequests"', b"x" * 10_000 + b"\n"])
async def test_a_process_that_ends_has_not_answered(tmp_path: Path, answer: bytes) -> None:
    """H01: no answer is no report that no client is active."""
    async with process(tmp_path, answer) as (path, _):
        with pytest.raises(LocalError, match="does not report"):
            await activity.ask(path, 0)
    (tmp_path / "s").unlink(missing_ok=True)
    with pytest.raises(LocalError, match="does not report"):
        await activity.ask(tmp_path / "s", 0)


def test_only_the_identity_of_the_operator_is_no_client() -> None:
    """H01: its name is that of its certificate; users of the control plane count."""
    plane = HostedPlane(uid="u", name="n", issuer="https://i.example", owner="owner:u")
    found = msgspec.json.decode(hosting.settings(plane, 20000, "/openapi"))["activity"]
    assert found == {"socket": hosting.ACTIVITY, "ignoredUsers": [hosting.leaves(plane)[hosting.OPERATOR].user]}

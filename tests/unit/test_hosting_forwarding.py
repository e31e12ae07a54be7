"""The reads of an API group, on a real Unix socket (H02)."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import NotFound, Unreachable
from tenantry.api.model import Json
from tenantry.hosting import plane
from tenantry.hosting.forwarding import ForwardedRead, ForwardingLimits, ForwardingServer, read_of
from tenantry.hosting.plane import ForwardedGroup, ForwardedResource, HostedPlane

pytestmark = pytest.mark.timeout(60)

GROUP = ForwardedGroup(
    group="things.example.com",
    version="v1",
    resources=(
        ForwardedResource(name="nodes", kind="NodeThing"),
        ForwardedResource(name="pods", kind="PodThing", namespaced=True),
    ),
)
ROOT = "/apis/things.example.com/v1"


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("/pods", ForwardedRead(resource="pods")),
        ("/namespaces/shop/pods", ForwardedRead(resource="pods", namespace="shop")),
        ("/namespaces/shop/pods/web", ForwardedRead(resource="pods", namespace="shop", name="web")),
        ("/namespaces/a%2Fb/pods/x%3Fy", ForwardedRead(resource="pods", namespace="a/b", name="x?y")),
        ("/nodes/n", ForwardedRead(resource="nodes", name="n")),
        ("/nodes?labelSelector=a%3Db%2Cc&limit=5", ForwardedRead(resource="nodes", label_selector="a=b,c")),
        ("/pods?fieldSelector=metadata.name%3Dx", ForwardedRead(resource="pods", field_selector="metadata.name=x")),
        ("/namespaces/shop/nodes", None),
        ("/pods/web", None),
        ("/others", None),
        ("/nodes/", None),
        ("/nodes/n/status", None),
        ("/namespaces//pods/web", None),
        ("/namespaces/shop", None),
        ("/", None),
        ("/pods?labelSelector=" + "a" * 5000, None),
    ],
)
def test_reads_are_those_of_the_group(target: str, wanted: ForwardedRead | None) -> None:
    assert read_of(GROUP, ROOT + target) == wanted
    assert read_of(GROUP, f"/apis/others.example.com/v1{target}") is None


async def asked(path: Path, target: str = "/nodes", method: str = "GET") -> tuple[int, Any]:
    """Return the HTTP status and the body that the API server gets."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(f"{method} {ROOT}{target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.transport.abort()
    return int(head.split(b" ")[1]), msgspec.json.decode(rest) if rest else None


async def test_answers_errors_and_bugs_become_responses(tmp_path: Path) -> None:
    outcomes: list[Json | Exception] = [
        {"kind": "List"},
        NotFound("there is none", status=404, reason="NotFound"),
        Unreachable("the host does not answer"),
        ValueError("a bug at /secret"),
    ]
    seen: list[ForwardedRead] = []

    async def answer(read: ForwardedRead) -> Json:
        seen.append(read)
        found = outcomes[len(seen) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    path = tmp_path / "s"
    async with ForwardingServer(path, GROUP, answer).serve():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await asked(path) == (200, {"kind": "List"})
        status, body = await asked(path)
        assert (status, body["kind"], body["reason"], body["message"]) == (404, "Status", "NotFound", "there is none")
        status, body = await asked(path)
        assert (status, body["code"]) == (503, 503)
        status, body = await asked(path)
        assert status == 500
        assert "secret" not in body["message"]
        assert (await asked(path, "/others"))[0] == 404
        assert (await asked(path, method="POST"))[0] == 405
    assert seen == [ForwardedRead(resource="nodes")] * len(outcomes)
    assert not path.exists()


async def test_rate_and_time_are_bounded(tmp_path: Path) -> None:
    async def never(_: ForwardedRead) -> Json:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    limits = ForwardingLimits(reads_per_second=1, answer_seconds=0.05)
    async with ForwardingServer(tmp_path / "s", GROUP, never, limits).serve():
        assert (await asked(tmp_path / "s"))[0] == 503
        status, body = await asked(tmp_path / "s")
        assert (status, body["details"]) == (429, {"retryAfterSeconds": 1})


def test_the_process_gets_the_group_and_its_socket() -> None:
    """H02: as internal/settings reads it, which refuses unknown fields."""
    found = HostedPlane(uid="a", name="a", issuer="https://a", owner="o", forwarded=GROUP)
    (group,) = msgspec.json.decode(plane.settings(found, 20000, "/openapi"))["forwarded"]
    assert group.pop("resources") == [
        {"name": "nodes", "kind": "NodeThing", "namespaced": False},
        {"name": "pods", "kind": "PodThing", "namespaced": True},
    ]
    assert group == {"socket": plane.FORWARDED, "group": "things.example.com", "version": "v1"}
    without = msgspec.structs.replace(found, forwarded=None)
    assert "forwarded" not in msgspec.json.decode(plane.settings(without, 20000, "/openapi"))

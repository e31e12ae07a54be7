"""The admission step, on a real Unix socket (H02)."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import ApiError, Forbidden, TooManyRequests, Unauthorized, Unreachable
from tenantry.api.model import Json
from tenantry.hosting import admission, plane
from tenantry.hosting.admission import (
    AdmissionAdvice,
    AdmissionAnswer,
    AdmissionLimits,
    AdmissionRefusal,
    AdmissionRequest,
    AdmissionServer,
    AnswerAdmission,
)
from tenantry.hosting.plane import AdmissionOperation, AdmissionRule, HostedPlane

pytestmark = pytest.mark.timeout(60)

OBJECT: Json = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}}
AWAY = (503, "ServiceUnavailable", "does not answer")
REQUEST: Json = {
    "operation": "UPDATE",
    "group": "",
    "version": "v1",
    "resource": "services",
    "namespace": "shop",
    "name": "web",
    "user": "ann",
    "dryRun": True,
    "object": OBJECT,
    "oldObject": {"metadata": {}},
}


async def stored(request: AdmissionRequest) -> AdmissionAnswer:
    """Admit the object as it is."""
    return AdmissionAnswer(object=request.object)


@asynccontextmanager
async def serving(path: Path, answer: AnswerAdmission, limits: AdmissionLimits | None = None) -> AsyncGenerator[None]:
    """Serve a step."""
    async with AdmissionServer(path, answer, limits).serve():
        yield


async def asked(path: Path, body: bytes | None = None, *headers: str) -> tuple[int, Any]:
    """Return the HTTP status and the body that the API server gets; 0 if the connection breaks."""
    body = msgspec.json.encode(REQUEST) if body is None else body
    reader, writer = await asyncio.open_unix_connection(str(path))
    fields = ("Host: admission", "Connection: close", f"Content-Length: {len(body)}", *headers)
    try:
        writer.write("\r\n".join(("POST / HTTP/1.1", *fields, "", "")).encode() + body)
        await writer.drain()
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    except ConnectionError:
        return 0, None
    finally:
        writer.transport.abort()
    if not head:
        return 0, None
    status = int(head.split(b" ")[1])
    return status, msgspec.json.decode(rest) if status == 200 else None


def mode(path: Path) -> int | None:
    """Return the permissions of a path; None if it does not exist."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


@pytest.fixture(name="path")
def socket_path(tmp_path: Path) -> Path:
    """Return the path of a socket."""
    return tmp_path / "s"


async def test_the_request_is_the_api_servers_and_the_object_goes_back(path: Path) -> None:
    got: list[AdmissionRequest] = []

    async def answer(request: AdmissionRequest) -> AdmissionAnswer:
        got.append(request)
        return AdmissionAnswer(object={"kind": "Service"})

    async with serving(path, answer):
        assert mode(path) == 0o600
        assert await asked(path) == (200, {"object": {"kind": "Service"}})
    assert mode(path) is None
    assert got == [
        AdmissionRequest(
            operation=AdmissionOperation.UPDATE,
            group="",
            version="v1",
            resource="services",
            namespace="shop",
            name="web",
            user="ann",
            is_dry_run=True,
            object=OBJECT,
            old={"metadata": {}},
        )
    ]


@pytest.mark.parametrize(
    ("error", "expected", "details"),
    [
        (Forbidden("no room", status=403, reason="Forbidden"), (403, "Forbidden", "no room"), None),
        (
            TooManyRequests("slow", status=429, reason="TooManyRequests", retry_after_seconds=1.5),
            (429, "TooManyRequests", "slow"),
            {"retryAfterSeconds": 2},
        ),
        (Unreachable("no"), AWAY, {"retryAfterSeconds": 2}),
        # The credentials that are wrong are not those of the client, which would log in again.
        (Unauthorized("who", status=401), AWAY, {"retryAfterSeconds": 2}),
        (ApiError("odd", status=302), AWAY, {"retryAfterSeconds": 2}),
        (TimeoutError(), AWAY, {"retryAfterSeconds": 2}),
        (RuntimeError("secret"), (500, "InternalError", "has failed"), None),
    ],
)
async def test_errors_refuse(
    path: Path, error: Exception, expected: tuple[int, str, str], details: Json | None
) -> None:
    async def answer(_: AdmissionRequest) -> AdmissionAnswer:
        raise error

    async with serving(path, answer):
        status, body = await asked(path)
        found = body["status"]
        code, reason, message = expected
        assert (status, found["code"], found["reason"], found.get("details")) == (200, code, reason, details)
        assert message in found["message"]
        assert "secret" not in found["message"]
        # The step serves on.
        assert (await asked(path))[0] == 200


async def test_a_refusal_is_a_status(path: Path) -> None:
    refusal = AdmissionRefusal(code=422, reason="Invalid", message="no")

    async def answer(_: AdmissionRequest) -> AdmissionAnswer:
        return AdmissionAnswer(refusal=refusal)

    async with serving(path, answer):
        expected = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        expected |= {"code": 422, "reason": "Invalid", "message": "no"}  # pyright: ignore[reportAssignmentType]
        assert await asked(path) == (200, {"status": expected})


async def test_a_late_answer_is_a_refusal(path: Path) -> None:
    async def answer(request: AdmissionRequest) -> AdmissionAnswer:
        await asyncio.get_running_loop().create_future()
        return await stored(request)

    async with serving(path, answer, AdmissionLimits(answer_seconds=0.05)):
        _, body = await asked(path)
        assert body["status"]["code"] == 503


@pytest.mark.parametrize(
    ("body", "header", "status"),
    [
        (b"{}", "X: 1", 400),
        (b"[", "X: 1", 400),
        (msgspec.json.encode(REQUEST | {"operation": "DELETE"}), "X: 1", 400),
        # A body that unpacks to any size.
        (msgspec.json.encode(REQUEST), "Content-Encoding: deflate", 400),
        (b" " * (admission.BODY_BYTES + 1), "X: 1", 413),
    ],
)
async def test_what_is_no_request_is_rejected(path: Path, body: bytes, header: str, status: int) -> None:
    async with serving(path, stored):
        assert await asked(path, body, header) == (status, None)


async def test_connections_above_the_limit_are_closed(path: Path) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: AdmissionRequest) -> AdmissionAnswer:
        entered.set()
        await go_on.wait()
        return await stored(request)

    async with serving(path, answer, AdmissionLimits(open_connections=1)), asyncio.TaskGroup() as group:
        first = group.create_task(asked(path))
        await entered.wait()
        assert await asked(path) == (0, None)
        go_on.set()
        assert (await first)[0] == 200


async def test_a_client_that_ends_in_the_middle_of_a_request_is_not_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """VCP-8: a client that sends parts of requests would fill the log with tracebacks."""
    body = msgspec.json.encode(REQUEST)
    head = f"POST / HTTP/1.1\r\nHost: admission\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with serving(path, stored):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(head + body + head + body[:10])
        # The server reads the second request once it has answered the first.
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        writer.transport.abort()
        # The step goes on.
        assert (await asked(path))[0] == 200
    assert [each.getMessage() for each in caplog.records] == []


async def test_the_end_ends_requests(path: Path) -> None:
    entered = asyncio.Event()
    ended: list[bool] = []

    async def answer(request: AdmissionRequest) -> AdmissionAnswer:
        entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)
        return await stored(request)

    async with asyncio.TaskGroup() as group:
        async with serving(path, answer):
            request = group.create_task(asked(path))
            await entered.wait()
        assert await request == (0, None)
    assert ended == [True]


async def test_a_later_step_takes_the_socket_over(path: Path) -> None:
    async def refuse(_: AdmissionRequest) -> AdmissionAnswer:
        return AdmissionAnswer(refusal=AdmissionRefusal(code=403, reason="Forbidden", message="former"))

    async with serving(path, stored):
        async with serving(path, refuse):
            assert "status" in (await asked(path))[1]
        assert mode(path) is None
    async with serving(path, refuse):
        first = AdmissionServer(path, stored).serve()
        await first.__aenter__()
        async with serving(path, refuse):
            await first.__aexit__(None, None, None)
            assert "status" in (await asked(path))[1]


def test_an_answer_is_one_of_both() -> None:
    refusal = AdmissionRefusal(code=403, reason="Forbidden", message="")
    with pytest.raises(ValueError, match="an object or a refusal"):
        AdmissionAnswer()
    with pytest.raises(ValueError, match="an object or a refusal"):
        AdmissionAnswer(object=OBJECT, refusal=refusal)


def test_the_settings_name_the_rules() -> None:
    """H02: without a rule, the API server asks for no leave."""
    given = HostedPlane(uid="a", name="a", issuer="https://a.example", owner="o")
    assert "admission" not in msgspec.json.decode(plane.settings(given, 1, "/openapi"))
    rules = (AdmissionRule(resource="services"), AdmissionRule(group="apps", resource="deployments", is_advice=True))
    given = msgspec.structs.replace(given, admission=rules)
    assert msgspec.json.decode(plane.settings(given, 1, "/openapi"))["admission"] == {
        "socket": plane.ADMISSION,
        "rules": [{"group": "", "resource": "services", "operations": ["CREATE", "UPDATE"]}],
        "advice": [{"group": "apps", "resource": "deployments", "operations": ["CREATE", "UPDATE"]}],
    }


async def test_advice_is_warnings(path: Path) -> None:
    """H02: and none is no error."""
    for given in ((), ("the host refuses it", "twice")):

        async def advise(_: AdmissionRequest, warnings: tuple[str, ...] = given) -> AdmissionAdvice:
            return AdmissionAdvice(warnings=warnings)

        async with serving(path, advise):
            assert (await asked(path))[1] == {"warnings": list(given)}

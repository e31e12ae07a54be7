"""The egress gate, on real sockets: a Unix socket in front, loopback behind it."""

from __future__ import annotations

import asyncio
import hashlib
import stat
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from tenantry.engine.sockets import short_path
from tenantry.engine.tokenbucket import TokenBucket
from tenantry.hosting import connections, tunnel
from tenantry.hosting.destinations import Destination, Direct, Kubelet, Refused
from tenantry.hosting.gate import Gate, GateLimits
from testkit.egress import NODE, Handler, asked, connecting, echo, listening

pytestmark = pytest.mark.timeout(60)
WEB = "web.shop.svc:443"


@asynccontextmanager
async def direct(path: Path, handler: Handler, limits: GateLimits | None = None) -> AsyncGenerator[Gate]:
    """Serve a gate whose only destination is a server with this handler."""
    async with listening(handler) as port:

        def decide(host: str, _: int) -> Destination:
            return Direct(address="127.0.0.1", port=port) if host == "web.shop.svc" else Refused(reason=f"not {host}")

        gate = Gate(path, decide, limits=limits)
        async with gate.serve():
            yield gate


async def emptied(gate: Gate, count: int = 0) -> None:
    """Wait until the gate has this many connections."""
    while gate.open_connections > count:
        tasks = gate._connections.open  # pyright: ignore[reportPrivateUsage] - no event reports the end of a connection
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # The callback that counts runs after the one that ends the wait.
        await asyncio.sleep(0)


@pytest.fixture(name="path")
def socket_path(tmp_path: Path) -> Path:
    """Return the path of a socket."""
    return tmp_path / "s"


def mode(path: Path) -> int | None:
    """Return the permissions of a path; None if it does not exist."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


async def test_only_the_user_may_connect(path: Path) -> None:
    async with direct(path, echo):
        assert mode(path) == 0o600
    assert mode(path) is None


async def test_a_folder_of_any_length_has_a_gate(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    # Its API server dials it from inside the folder, so that no address of a socket is too long.
    async with direct(folder / "s", echo):
        with short_path(folder / "s") as address:
            reader, writer = await asyncio.open_unix_connection(address)
        writer.write(f"CONNECT {WEB} HTTP/1.1\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_connection_waits_until_destinations_are_known(path: Path) -> None:
    """A gate that has just begun would refuse for good what it does not know yet."""
    settled, known = asyncio.Event(), set[str]()
    async with listening(echo) as port:

        def decide(host: str, _: int) -> Destination:
            return Direct(address="127.0.0.1", port=port) if host in known else Refused(reason=f"not {host}")

        gate = Gate(path, decide, settled=settled)
        async with gate.serve():
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(_status(path))
                while not gate.open_connections:  # noqa: ASYNC110 - no event reports a connection
                    await asyncio.sleep(0)
                known.add("web.shop.svc")
                settled.set()
            assert asking.result() == (200, "")


async def test_destinations_that_stay_unknown_are_not_refused_for_good(path: Path) -> None:
    gate = Gate(path, lambda _, __: Refused(reason="no"), limits=GateLimits(settle_seconds=0), settled=asyncio.Event())
    async with gate.serve():
        status, reason = await _status(path)
    assert status == 503
    assert "not known yet: try again" in reason


async def test_a_destination_that_is_not_admitted_any_more_loses_its_connections(path: Path) -> None:
    """H04: a machine that has left its control plane is the host's, or the next tenant's."""
    hosts = {"leaves.svc", "stays.svc"}
    async with listening(echo) as port:

        def decide(host: str, _: int) -> Destination:
            return Direct(address="127.0.0.1", port=port) if host in hosts else Refused(reason=f"not {host}")

        gate = Gate(path, decide)
        async with (
            gate.serve(),
            connecting(path, "leaves.svc:443") as ended,
            connecting(path, "stays.svc:443") as kept,
        ):
            assert (ended.status, kept.status) == (200, 200)
            hosts.discard("leaves.svc")
            gate.recheck()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await ended.reader.readexactly(1)
            kept.writer.write(b"still")
            assert await kept.reader.readexactly(5) == b"still"


async def _status(path: Path) -> tuple[int, str]:
    async with connecting(path, WEB) as found:
        return found.status, (await found.rest()).decode() if found.status != 200 else ""


async def test_the_socket_of_an_ended_gate_is_replaced(path: Path) -> None:
    async with direct(path, echo), direct(path, echo), connecting(path, WEB) as found:
        assert found.status == 200


async def test_a_gate_that_ends_leaves_the_socket_of_a_later_one(path: Path) -> None:
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await first.enter_async_context(direct(path, echo))
        await second.enter_async_context(direct(path, echo))
        await first.aclose()
        async with connecting(path, WEB) as found:
            assert found.status == 200


def test_a_file_in_the_place_of_the_socket_stays(path: Path) -> None:
    path.write_text("kept")
    with pytest.raises(OSError, match="in use"):
        asyncio.run(Gate(path, lambda _, __: Refused(reason="")).run())
    assert path.read_text() == "kept"


async def test_refused_destinations_get_the_reason(path: Path) -> None:
    async with direct(path, echo), connecting(path, "169.254.169.254:80") as found:
        assert found.head.startswith("HTTP/1.1 403 Forbidden: not 169.254.169.254\r\n")
        assert await found.rest() == b"not 169.254.169.254\n"


async def test_a_node_without_kubelet_inputs_is_refused(path: Path) -> None:
    async with Gate(path, lambda _, __: Kubelet(node="n")).serve(), connecting(path, NODE) as found:
        assert found.status == 403


def test_destinations_are_addresses() -> None:
    """A name would be resolved after the decision."""
    with pytest.raises(ValueError, match="localhost"):
        Direct(address="localhost", port=80)


async def test_bytes_pass_both_ways_and_ends_pass_one_by_one(path: Path) -> None:
    async def summing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        digest = hashlib.sha256(await reader.read()).hexdigest()
        writer.write(digest.encode())
        writer.close()
        await writer.wait_closed()

    sent = bytes(range(256)) * 16384
    async with direct(path, summing) as gate:
        async with connecting(path, WEB) as found:
            assert found.head == "HTTP/1.1 200 Connection established\r\n\r\n"
            assert await found.reader.readexactly(5) == b"hello"
            found.writer.write(sent)
            found.writer.write_eof()
            assert (await found.rest()).decode() == hashlib.sha256(sent).hexdigest()
        await emptied(gate)


async def test_bytes_behind_the_request_pass(path: Path) -> None:
    request = f"CONNECT {WEB} HTTP/1.1\r\n\r\nearly".encode()
    async with direct(path, echo), asked(path, request) as found:
        assert await found.reader.readexactly(5) == b"early"


async def test_the_end_of_the_destination_ends_the_connection(path: Path) -> None:
    async def brief(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        await writer.drain()

    async with direct(path, brief) as gate, connecting(path, WEB) as found:
        assert await found.rest() == b"bye"
        found.writer.write_eof()
        await emptied(gate)


async def test_a_half_closed_connection_that_is_silent_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "HALF_CLOSED_SECONDS", 0.05)

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()
        await asyncio.Event().wait()

    async with direct(path, silent) as gate, connecting(path, WEB) as found:
        found.writer.write_eof()
        with suppress(ConnectionError):
            assert await found.rest() == b""
        await emptied(gate)


async def test_a_slow_reader_slows_the_sender(path: Path) -> None:
    """The gate holds a bounded number of bytes for each connection."""
    go = asyncio.Event()
    received: list[int] = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        received.append(len(await reader.read()))
        writer.write(b"done")
        await writer.drain()

    chunk, most = bytes(65536), 64 * 1024 * 1024
    async with direct(path, slow), connecting(path, WEB) as found:
        sent = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while sent < most:
                    found.writer.write(chunk)
                    sent += len(chunk)
                    await found.writer.drain()
        assert sent < most
        go.set()
        found.writer.write_eof()
        assert await found.rest() == b"done"
        assert received == [sent]


async def test_an_unreachable_destination_is_reported(path: Path) -> None:
    async with listening(echo) as port:
        pass
    gate = Gate(path, lambda _, __: Direct(address="127.0.0.1", port=port))
    async with gate.serve(), connecting(path, WEB) as found:
        assert found.head.startswith("HTTP/1.1 502 Bad Gateway: the destination cannot be reached: Connection refused")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 405),
        (b"GET http://web.shop.svc/ HTTP/1.1\r\n\r\n", 405),
        (b"connect web.shop.svc:443 HTTP/1.1\r\n\r\n", 405),
        (b"CONNECT web.shop.svc HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT web.shop.svc:443\r\n\r\n", 400),
        (b"CONNECT web.shop.svc:443 HTTP/1.0\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"CONNECT web.shop.svc:443 HTTP/1.1\r\nX: " + b"y" * 9000, 431),
        (b"CONNECT web.shop.svc:443 HTTP/1.1\r\nX: " + b"y" * 9000 + b"\r\n\r\n", 431),
    ],
)
async def test_other_requests_are_refused(path: Path, request_bytes: bytes, status: int) -> None:
    async with direct(path, echo) as gate, asked(path, request_bytes) as found:
        assert found.status == status
        await emptied(gate)


async def test_a_late_request_is_refused(path: Path) -> None:
    limits = GateLimits(head_seconds=0.05)
    async with direct(path, echo, limits), asked(path, b"CONNECT ") as found:
        assert found.status == 408


async def test_a_client_that_leaves_early_leaves_nothing(path: Path) -> None:
    async with direct(path, echo) as gate:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"CONN")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await emptied(gate)


async def test_connections_above_the_limit_get_503(path: Path) -> None:
    async with (
        direct(path, echo, GateLimits(open_connections=2)) as gate,
        connecting(path, WEB) as first,
    ):
        async with connecting(path, WEB) as second, connecting(path, WEB) as third:
            assert (first.status, second.status) == (200, 200)
            assert third.head.startswith("HTTP/1.1 503 Service Unavailable: too many connections are open\r\n")
        await emptied(gate, 1)
        async with connecting(path, WEB) as fourth:
            assert fourth.status == 200


async def test_connections_above_the_rate_get_503(path: Path) -> None:
    async with direct(path, echo, GateLimits(connections_per_second=0)), connecting(path, WEB) as found:
        assert found.head.startswith("HTTP/1.1 503 Service Unavailable: too many connections in a short time\r\n")


async def test_a_flood_of_rejected_connections_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_REJECTIONS", 1)
    async with direct(path, echo, GateLimits(connections_per_second=0)), AsyncExitStack() as clients:
        slow = await clients.enter_async_context(asked(path, b"CONN"))
        assert slow.status == 503
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await clients.enter_async_context(connecting(path, WEB))


def test_the_rate_is_a_token_bucket() -> None:
    bucket = TokenBucket.per_second(50)
    assert [bucket.try_take(100.0) for _ in range(51)] == [True] * 50 + [False]
    assert [bucket.try_take(100.125) for _ in range(7)] == [True] * 6 + [False]
    assert [bucket.try_take(1000.0) for _ in range(51)] == [True] * 50 + [False]


async def test_the_end_of_the_gate_ends_all_connections(path: Path) -> None:
    async with AsyncExitStack() as clients:
        async with direct(path, echo) as gate:
            reader, writer = await asyncio.open_unix_connection(str(path))
            clients.callback(writer.transport.abort)
            tunnel_open = await clients.enter_async_context(connecting(path, WEB))
            assert gate.open_connections == 2
        assert gate.open_connections == 0
        for each in (tunnel_open.reader, reader):
            with suppress(ConnectionError):
                assert await each.read() == b""
        with pytest.raises(OSError, match=r"No such file|refused"):
            await asyncio.open_unix_connection(str(path))


async def test_a_rule_that_fails_ends_only_its_connection(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def decide(host: str, _: int) -> Destination:
        if host == "bug":
            raise KeyError(host)
        return Refused(reason="no")

    async with Gate(path, decide).serve():
        async with connecting(path, "bug:1") as found:
            assert found.status == 500
        async with connecting(path, "other:1") as found:
            assert found.status == 403
    assert "a connection failed" in caplog.text

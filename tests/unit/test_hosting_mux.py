"""Streams in one connection: bytes arrive as they were sent, slow streams hold up no others, and floods are bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenantry.engine.tasks import cancelled_at_end
from tenantry.hosting import frames, mux
from tenantry.hosting.frames import FrameError, MessageKind, Opcode, TunnelMessage
from tenantry.hosting.mux import WINDOW_BYTES, StreamMux
from tenantry.hosting.tunnel import ByteStream
from testkit.egress import Handler, echo, listening

pytestmark = pytest.mark.timeout(60)

MASK = b"\x01\x02\x03\x04"
MIB = 2**20


async def pair() -> tuple[ByteStream, ByteStream]:
    """Return both ends of a connection."""
    ends = socket.socketpair()
    return ByteStream(*await asyncio.open_connection(sock=ends[0])), ByteStream(
        *await asyncio.open_connection(sock=ends[1])
    )


class Tunnel(NamedTuple):
    """Both ends of a tunnel, and what the acceptor heard."""

    home: StreamMux
    peer: StreamMux
    heard: list[str]

    @asynccontextmanager
    async def stream(self) -> AsyncGenerator[ByteStream]:
        """Open a stream, and return the end of it that a client of the home has."""
        client, local = await pair()
        async with cancelled_at_end() as group:
            group.create_task(self.carried(local))
            try:
                yield client
            finally:
                client.writer.transport.abort()

    async def carried(self, local: ByteStream) -> None:
        """Carry a stream until it ends."""
        with suppress(OSError):
            await self.home.carry(local)


async def ran(end: StreamMux) -> None:
    """Run an end until the tunnel ends."""
    with suppress(FrameError, EOFError, OSError):
        await end.run()


@asynccontextmanager
async def tunnel(handler: Handler) -> AsyncGenerator[Tunnel]:
    """Open a tunnel to a server."""
    heard: list[str] = []
    ours, theirs = await pair()
    async with listening(handler) as port, cancelled_at_end() as group:

        async def connect() -> ByteStream:
            return ByteStream(*await asyncio.open_connection("127.0.0.1", port))

        found = Tunnel(
            StreamMux(ours, is_client=False),
            StreamMux(theirs, is_client=True, connect=connect, heard=heard.append),
            heard,
        )
        for each in (found.home, found.peer):
            group.create_task(ran(each))
        assert await found.home.answers(10)
        yield found


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read nothing."""
    del writer
    await asyncio.get_running_loop().create_future()
    await reader.read()


async def becomes(condition: Callable[[], bool]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0.01)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.integers(1, 60_000), min_size=1, max_size=4), min_size=1, max_size=4))
async def test_every_stream_gets_back_what_it_has_sent(sizes: list[list[int]]) -> None:
    async def exchange(found: Tunnel, number: int, parts: list[int]) -> None:
        data = b"".join(bytes([number + place]) * part for place, part in enumerate(parts))
        async with found.stream() as client:
            client.writer.write(data)
            client.writer.write_eof()
            assert await client.reader.read(-1) == data

    async with tunnel(echo) as found:
        async with asyncio.TaskGroup() as group:
            for number, parts in enumerate(sizes):
                group.create_task(exchange(found, number, parts))
        await becomes(lambda: not found.home.open_streams and not found.peer.open_streams)


async def test_a_stream_that_no_server_reads_is_held_at_its_window_and_others_go_on() -> None:
    first = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        was, first = first, False
        await (silent if was else echo)(reader, writer)

    async with tunnel(serve) as found, found.stream() as slow:
        await becomes(lambda: found.peer.open_streams == 1)
        slow.writer.write(b"x" * 64 * MIB)
        async with found.stream() as fast:
            for _ in range(50):
                fast.writer.write(b"y" * 10_000)
                assert await fast.reader.readexactly(10_000) == b"y" * 10_000
        # Buffers of the kernel and the windows take some; the rest waits at the client.
        assert slow.writer.transport.get_write_buffer_size() > 32 * MIB


async def test_a_server_that_refuses_ends_only_its_stream() -> None:
    ours, theirs = await pair()

    async def connect() -> ByteStream:
        raise ConnectionRefusedError

    home, peer = StreamMux(ours, is_client=False), StreamMux(theirs, is_client=True, connect=connect)
    async with cancelled_at_end() as group:
        for each in (home, peer):
            group.create_task(each.run())
        assert await home.answers(10)
        found = Tunnel(home, peer, [])
        async with found.stream() as client:
            assert await client.reader.read() == b""
        assert await home.answers(10)
        assert not home.open_streams


async def test_streams_above_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mux, "MOST_STREAMS", 2)
    async with tunnel(echo) as found, found.stream() as one, found.stream() as two, found.stream() as three:
        for client in (one, two):
            client.writer.write(b"x")
            assert await client.reader.readexactly(1) == b"x"
        assert await three.reader.read() == b""


async def test_the_end_of_a_tunnel_ends_its_streams() -> None:
    async with tunnel(echo) as found, found.stream() as client:
        client.writer.write(b"x")
        assert await client.reader.readexactly(1) == b"x"
        await found.home.tell("x" * 100)
        await becomes(lambda: found.heard == ["x" * 100])
        # The home takes no texts.
        await found.peer.tell("a text")
        assert await client.reader.read() == b""
        await becomes(lambda: not found.home.is_open and not found.peer.is_open)
        assert not await found.home.answers(1)


async def flooded(*messages: TunnelMessage, opener: bool = True) -> BaseException | None:
    """Return how an end of a tunnel ends that gets these messages from a client."""
    ours, theirs = await pair()
    client, local = await pair()
    found = StreamMux(ours, is_client=False)
    async with cancelled_at_end() as group:
        running = asyncio.ensure_future(found.run())
        await asyncio.sleep(0)
        if opener:
            group.create_task(Tunnel(found, found, []).carried(local))
            await becomes(lambda: found.open_streams == 1)
        for each in messages:
            theirs.writer.write(frames.encode(Opcode.BINARY, frames.pack(each), MASK))
        await asyncio.wait({running}, timeout=20)
        theirs.writer.transport.abort()
        client.writer.transport.abort()
        return running.exception() if running.done() else None


@pytest.mark.parametrize(
    "message",
    [
        # The home opens streams, and no other end.
        TunnelMessage(MessageKind.OPEN, 9),
        TunnelMessage(MessageKind.CREDIT, 1, b"\x7f\xff\xff\xff"),
        TunnelMessage(MessageKind.CREDIT, 1, b"\x01"),
        # It would keep the reader busy for nothing.
        TunnelMessage(MessageKind.CREDIT, 1, b"\x00\x00\x00\x00"),
        # There is no such stream.
        TunnelMessage(MessageKind.DATA, 9, b"x"),
        TunnelMessage(MessageKind.CREDIT, 9, b"\x00\x00\x00\x01"),
        TunnelMessage(MessageKind.END, 9),
    ],
)
async def test_a_peer_that_lies_ends_its_tunnel(message: TunnelMessage) -> None:
    assert isinstance(await flooded(message), FrameError)


async def test_a_peer_that_sends_more_than_the_window_ends_its_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing is read: the client of the stream takes a little, and then none.
    data = b"x" * frames.MOST_DATA
    many = (TunnelMessage(MessageKind.DATA, 1, data),) * (64 * MIB // len(data))
    monkeypatch.setattr(mux, "_MOST_UNSENT", 64 * MIB)
    assert isinstance(await flooded(*many), FrameError)
    assert WINDOW_BYTES < MIB


async def test_an_end_that_pings_without_end_ends_the_tunnel() -> None:
    """Each ping is answered: a peer must not keep the home busy with them."""
    ours, theirs = await pair()
    running = asyncio.ensure_future(StreamMux(ours, is_client=False).run())
    for _ in range(mux.MOST_PINGS + 1):
        theirs.writer.write(frames.encode(Opcode.PING, b"", MASK))
    with pytest.raises(FrameError, match="pings"):
        await running
    theirs.writer.transport.abort()


async def test_an_end_that_answers_what_was_not_asked_ends_the_tunnel() -> None:
    """H04: else, answers without end keep the home busy."""
    ours, theirs = await pair()
    end = StreamMux(ours, is_client=False)
    running = asyncio.ensure_future(end.run())
    asked = asyncio.ensure_future(end.answers(20))
    await theirs.reader.readexactly(6)
    theirs.writer.write(frames.encode(Opcode.PONG, b"", MASK))
    assert await asked
    theirs.writer.write(frames.encode(Opcode.PONG, b"", MASK))
    with pytest.raises(FrameError, match="a ping that it did not get"):
        await running
    theirs.writer.transport.abort()


def hasten(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let an end that pauses go on at once; return the seconds of its pauses."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def paused(seconds: float) -> None:
        if 0.05 < seconds < 1:  # not those of `becomes`
            pauses.append(seconds)
        await sleep(0 if seconds < 1 else seconds)

    monkeypatch.setattr(mux.asyncio, "sleep", paused)
    return pauses


async def test_messages_about_streams_that_have_ended_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """H04: a peer sends them without end, each of which means nothing."""
    hasten(monkeypatch)
    monkeypatch.setattr(mux, "MOST_STRAY_MESSAGES", 50)
    monkeypatch.setattr(mux, "_STRAY_SECONDS", 1000.0)
    few = [TunnelMessage(MessageKind.RESET, 9)] * 50
    ours, theirs = await pair()
    end = StreamMux(ours, is_client=False)
    running = asyncio.ensure_future(end.run())
    theirs.writer.write(b"".join(frames.encode(Opcode.BINARY, frames.pack(each), MASK) for each in few))
    asked = asyncio.ensure_future(end.answers(20))
    await theirs.reader.readexactly(6)
    theirs.writer.write(frames.encode(Opcode.PONG, b"", MASK))
    assert await asked
    theirs.writer.write(frames.encode(Opcode.BINARY, frames.pack(few[0]), MASK))
    with pytest.raises(FrameError, match="streams that have ended"):
        await running
    theirs.writer.transport.abort()


async def read_all(data: bytes) -> None:
    """Let one end of a tunnel, which has opened stream 1, read bytes and then the end of the connection."""
    ours, theirs = await pair()
    client, local = await pair()
    end = StreamMux(ours, is_client=False)
    async with cancelled_at_end() as group:
        running = asyncio.ensure_future(end.run())
        await asyncio.sleep(0)
        group.create_task(Tunnel(end, end, []).carried(local))
        await becomes(lambda: end.open_streams == 1)
        theirs.writer.write(data)
        theirs.writer.write_eof()
        with pytest.raises(EOFError):
            await running
        theirs.writer.transport.abort()
        client.writer.transport.abort()


async def test_frames_that_carry_little_are_read_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """H04: the reader pauses; frames of streams that carry much do not make it pause."""
    monkeypatch.setattr(mux, "MOST_FRAMES", 100)
    monkeypatch.setattr(mux, "_MOST_FRAMES_AT_ONCE", 100)
    monkeypatch.setattr(mux, "WINDOW_BYTES", 64 * MIB)
    pauses = hasten(monkeypatch)
    large = frames.encode(Opcode.BINARY, frames.pack(TunnelMessage(MessageKind.DATA, 1, b"x" * 1000)), MASK)
    await read_all(large * 5000)
    assert not pauses
    small = frames.encode(Opcode.BINARY, frames.pack(TunnelMessage(MessageKind.DATA, 1, b"x")), MASK)
    await read_all(small * 5000)
    assert len(pauses) > 1000


async def test_frames_that_have_arrived_leave_other_work_its_turn() -> None:
    ours, theirs = await pair()
    end = StreamMux(ours, is_client=False)
    # Messages about a stream that has ended mean nothing, and are taken without a pause.
    stale = frames.encode(Opcode.BINARY, frames.pack(TunnelMessage(MessageKind.RESET, 9)), MASK)
    ours.reader.feed_data(stale * 2000)
    running = asyncio.ensure_future(end.run())
    turns = 0
    async with asyncio.timeout(20):
        while len(ours.reader._buffer):  # type: ignore[attr-defined]
            turns += 1
            await asyncio.sleep(0)
    assert turns > 10
    running.cancel()
    await asyncio.wait({running})
    theirs.writer.transport.abort()


async def test_an_end_that_hears_nothing_ends_the_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mux, "PING_SECONDS", 0.02)
    monkeypatch.setattr(mux, "SILENT_SECONDS", 0.05)
    ours, theirs = await pair()
    with pytest.raises(TimeoutError):
        await StreamMux(ours, is_client=False).run()
    theirs.writer.transport.abort()

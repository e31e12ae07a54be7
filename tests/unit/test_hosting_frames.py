"""Frames of WebSocket: an independent implementation reads them, and what no end of a tunnel sends is refused."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantry.hosting import frames, heads
from tenantry.hosting.frames import MOST_DATA, FrameError, MessageKind, Opcode, TunnelMessage
from tenantry.hosting.mux import StreamMux
from tenantry.hosting.tunnel import ByteStream, read_head
from testkit.egress import listening

MASK = b"\x01\x80\xff\x10"


def test_the_key_of_the_specification_is_answered_with_its_value() -> None:
    """RFC 6455, section 1.3."""
    assert frames.accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(payload=st.binary(max_size=MOST_DATA + 5), mask=st.one_of(st.just(b""), st.binary(min_size=4, max_size=4)))
async def test_a_frame_is_read_as_it_was_written(payload: bytes, mask: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(frames.encode(Opcode.BINARY, payload, mask))
    first, second = await reader.readexactly(2)
    head = frames.parse_head(first, second, from_client=bool(mask))
    length = head.length
    if head.length_bytes:
        length = frames.checked_length(int.from_bytes(await reader.readexactly(head.length_bytes), "big"))
    key = await reader.readexactly(4) if head.is_masked else b""
    found = await reader.readexactly(length)
    assert (frames.masked(found, key) if key else found) == payload
    reader.feed_eof()
    assert await reader.read() == b""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (0x02, 0x80),  # a fragment
        (0x80, 0x80),  # the rest of one
        (0xC2, 0x80),  # compressed
        (0x83, 0x80),  # an opcode that is not used
        (0x82, 0x05),  # without a mask
        (0x82, 0xFF),  # a length of eight bytes
        (0x89, 0xFE),  # a long ping
    ],
)
def test_other_frames_of_a_client_are_refused(first: int, second: int) -> None:
    with pytest.raises(FrameError):
        frames.parse_head(first, second, from_client=True)


@pytest.mark.parametrize("length", [0, 125, MOST_DATA + 6, 65535])
def test_other_lengths_are_refused(length: int) -> None:
    with pytest.raises(FrameError):
        frames.checked_length(length)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x02\x00\x00\x00",
        b"\x00\x00\x00\x00\x01",
        b"\x09\x00\x00\x00\x01",
        frames.pack(TunnelMessage(MessageKind.OPEN, 1, b"x")),
        # A stream of empty messages would fill a list.
        frames.pack(TunnelMessage(MessageKind.DATA, 1)),
    ],
)
def test_other_messages_are_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        frames.unpack(payload)


async def test_a_client_of_another_implementation_speaks_with_a_tunnel() -> None:
    """Of aiohttp."""
    told: list[str] = []
    ended: list[str] = []

    async def ran(mux: StreamMux) -> str:
        try:
            await mux.run()
        except (FrameError, EOFError) as error:
            return type(error).__name__
        return ""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = ByteStream(reader, writer)
        head = heads.parse(await read_head(stream, 5.0))
        (key,) = head.values("sec-websocket-key")
        accepted = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
        accepted.append(("Sec-WebSocket-Accept", frames.accept_key(key)))
        writer.write(heads.response_head(101, "Switching Protocols", accepted))
        mux = StreamMux(stream, is_client=False, heard=told.append)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(ran(mux))
            await asyncio.sleep(0)
            await mux.tell("a token")
        ended.append(running.result())

    async with (
        listening(serve) as port,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/tunnel", max_msg_size=MOST_DATA + 5) as socket,
    ):
        assert await socket.receive_str(timeout=10) == "a token"
        await socket.send_str("heard")
        await socket.ping(b"1234")
        # A stream that was never opened ends the tunnel.
        await socket.send_bytes(frames.pack(TunnelMessage(MessageKind.DATA, 7, b"x" * MOST_DATA)))
        await socket.close()
    assert ended == ["FrameError"]
    assert told == ["heard"]

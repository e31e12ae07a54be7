"""Many byte streams in one WebSocket, with back-pressure for each: a tunnel between two processes.

    opener   open(local) ─► OPEN 7 ─────────────────► accept() ─► a connection of its own     acceptor
    local ─► DATA 7 … ─────────────────────────────► connection
          ◄───────────── CREDIT 7, once it has taken them
    local ◄───────────── DATA 7 …

Only one end opens streams. Each direction of a stream may have WINDOW_BYTES that the other end's connection has not
taken yet; an end that sends more breaks the tunnel. So a slow stream holds up no other one, and the memory that the
other end can fill is MOST_STREAMS times the window. The reader of frames never waits for a write: two ends that wait
for each other would never go on.

Each frame takes a token of the tunnel, and bytes that streams carry or have taken give tokens back. Without a token,
the reader pauses, and with it the other end: small frames that mean nothing do not keep this process busy.

The end that hears nothing for SILENT_SECONDS ends the tunnel. Streams may be silent for as long as they like.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from tenantry.engine.tasks import all_of, first_error
from tenantry.engine.tokenbucket import TokenBucket
from tenantry.hosting import frames
from tenantry.hosting.frames import MOST_DATA, FrameError, MessageKind, Opcode, TunnelMessage
from tenantry.hosting.tunnel import ByteStream, HalfClosed, abort, end

MOST_STREAMS = 1024
WINDOW_BYTES = 128 * 1024

PING_SECONDS = 10.0
SILENT_SECONDS = 30.0

CONNECT_SECONDS = 10.0
"""How long the acceptor may take to connect a stream."""

MOST_PINGS = 100
"""How many pings the other end may send in PING_SECONDS: it needs one, and one more for each that wants its place."""

MOST_FRAMES = 1000
"""How many frames a second are read of a tunnel that carries nothing: about a hundredth of what a core can read."""

_MOST_FRAMES_AT_ONCE = 4 * MOST_FRAMES

_BYTES_OF_FRAME = 256
"""Frames about so many bytes of streams are not limited: they cost less than what the bytes cost."""

MOST_STRAY_MESSAGES = 8 * MOST_STREAMS
"""How many messages about streams that have ended here may come at once: all streams may end at one moment, and of
each, an end, a reset and the credit of a window may be under way."""

_STRAY_SECONDS = 0.001
"""After so long, there may be one more."""

_FRAMES_IN_TURN = 64
"""After so many frames, other work of this process has its turn: what has arrived already is read without a pause."""

_MOST_UNSENT = 4 * 2**20
"""More unsent answers than so many bytes: the other end floods this one, and reads nothing."""

Connect = Callable[[], Awaitable[ByteStream]]
"""Connects a stream that the other end has opened.

Raises:
    OSError: There is no connection.
"""

Dial = Callable[[str, int], Awaitable[ByteStream]]
"""Connects a stream to the IP address and the port that the other end has named, if they are admitted.

Raises:
    OSError: There is no connection, or the destination is not admitted.
"""


class _Muxed:
    """One stream, as one end knows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.incoming = bytearray()
        self.unread = 0
        """Bytes that have arrived, and for which no credit was given back."""
        self.has_ended = False
        self.is_reset = False
        self.arrived = asyncio.Event()
        self.credit = WINDOW_BYTES
        self.may_send = asyncio.Event()
        self.ended: Callable[[], None] | None = None
        """Called when the other end has ended it."""

    async def room(self) -> int:
        """Wait until bytes may be sent; return how many.

        Raises:
            ConnectionResetError: The other end has ended the stream.
        """
        while not self.credit and not self.is_reset:
            self.may_send.clear()
            await self.may_send.wait()
        if self.is_reset:
            raise ConnectionResetError("the stream has ended at the other end of the tunnel")
        return self.credit

    async def next_chunk(self) -> bytes:
        """Return the next bytes that have arrived; nothing if the other end sends no more.

        Raises:
            ConnectionResetError: The other end has ended the stream.
        """
        while not (self.incoming or self.has_ended or self.is_reset):
            self.arrived.clear()
            await self.arrived.wait()
        if self.is_reset:
            raise ConnectionResetError("the stream has ended at the other end of the tunnel")
        chunk = bytes(self.incoming[:MOST_DATA])
        del self.incoming[:MOST_DATA]
        return chunk

    def take(self, message: TunnelMessage) -> None:
        """Take in a message about it.

        Raises:
            FrameError: The other end exceeds the window.
        """
        match message.kind:
            case MessageKind.DATA:
                self.unread += len(message.data)
                if self.unread > WINDOW_BYTES or self.has_ended:
                    raise FrameError("a stream has more bytes than it may have")
                self.incoming += message.data
                self.arrived.set()
            case MessageKind.CREDIT:
                self.credit += frames.credited(message)
                if self.credit > WINDOW_BYTES:
                    raise FrameError("a stream has more credit than its window")
                self.may_send.set()
            case MessageKind.END:
                self.has_ended = True
                self.arrived.set()
            case _:
                self.is_reset = True
                self.arrived.set()
                self.may_send.set()
                if self.ended is not None:
                    self.ended()


class _Pings:
    """Bounds how many pings the other end sends, each of which is answered."""

    def __init__(self) -> None:
        self._began = 0.0
        self._number = 0

    def take(self, now: float) -> None:
        """Take in a ping.

        Raises:
            FrameError: There were too many.
        """
        if now - self._began >= PING_SECONDS:
            self._began, self._number = now, 0
        self._number += 1
        if self._number > MOST_PINGS:
            raise FrameError("the other end sends too many pings")


class StreamMux:
    """One end of a tunnel.

    Args:
        stream: The connection, on which frames begin now.
        is_client: Whether this end has opened the WebSocket; clients mask their frames.
        connect: Connects streams of the other end that name no destination; None refuses those.
        dial: Connects streams of the other end that name one; None refuses those.
        heard: Called with each text that arrives; None refuses texts.
    """

    def __init__(
        self,
        stream: ByteStream,
        *,
        is_client: bool,
        connect: Connect | None = None,
        dial: Dial | None = None,
        heard: Callable[[str], None] | None = None,
    ) -> None:
        self._stream = stream
        self._is_client = is_client
        self._connect = connect
        self._dial = dial
        self._heard = heard
        self._streams: dict[int, _Muxed] = {}
        self._next = 1
        self._writing = asyncio.Lock()
        self._group: asyncio.TaskGroup | None = None
        self._last = 0.0
        self._answered = asyncio.Event()
        self._pings = _Pings()
        self._unanswered = 0
        """Pings of this end."""
        self._frames = TokenBucket(1 / MOST_FRAMES, burst=_MOST_FRAMES_AT_ONCE)
        self._strays = TokenBucket(_STRAY_SECONDS, burst=MOST_STRAY_MESSAGES)

    @property
    def is_open(self) -> bool:
        """Return whether streams can be opened."""
        return self._group is not None

    @property
    def open_streams(self) -> int:
        """Return the number of streams."""
        return len(self._streams)

    async def run(self) -> None:
        """Carry streams until the tunnel ends, or this is cancelled; all streams end with it.

        Raises:
            FrameError: The other end does not keep to the protocol.
            OSError: The connection broke, or the other end is silent.
            EOFError: The other end has closed it.
        """
        self._last = asyncio.get_running_loop().time()
        try:
            with first_error():
                async with asyncio.TaskGroup() as group:
                    self._group = group
                    group.create_task(self._keep_alive())
                    await self._read()
        finally:
            self._group = None
            for each in self._streams.values():
                each.take(TunnelMessage(MessageKind.RESET, each.number))
            abort(self._stream)

    async def carry(self, local: ByteStream, to: tuple[str, int] | None = None) -> None:
        """Open a stream at the other end, and forward bytes both ways until both directions have ended.

        Args:
            local: The stream at this end, which is closed.
            to: The IP address and the port that the other end connects to; None for the only one that it knows.

        Raises:
            OSError: The tunnel is closed or full, or the stream broke.
        """
        try:
            muxed = self._begin()
        except OSError:
            abort(local)
            raise
        try:
            first = TunnelMessage(MessageKind.OPEN, muxed.number) if to is None else frames.dial(muxed.number, *to)
            await self._send(first)
            await self._splice(muxed, local)
        finally:
            self._forget(muxed)
            abort(local)

    def _begin(self) -> _Muxed:
        if self._group is None:
            raise ConnectionResetError("the tunnel is closed")
        if len(self._streams) >= MOST_STREAMS:
            raise ConnectionRefusedError("the tunnel has too many streams")
        muxed = self._streams[self._next] = _Muxed(self._next)
        self._next += 1
        return muxed

    async def tell(self, text: str) -> None:
        """Send a text to the other end.

        Raises:
            OSError: The connection broke.
        """
        await self._write(Opcode.TEXT, text.encode())

    async def answers(self, seconds: float) -> bool:
        """Return whether the other end answers a ping in time."""
        self._answered.clear()
        try:
            async with asyncio.timeout(seconds):
                self._unanswered += 1
                await self._write(Opcode.PING, secrets.token_bytes(4))
                await self._answered.wait()
        except (OSError, TimeoutError):
            return False
        return self.is_open

    # -- frames -----------------------------------------------------------------------------------

    async def _read(self) -> None:
        reader = self._stream.reader
        for number in itertools.count(1):
            if number % _FRAMES_IN_TURN == 0:
                await asyncio.sleep(0)
            try:
                opcode, payload = await self._frame(reader)
            except asyncio.IncompleteReadError:
                raise EOFError("the other end has closed the tunnel") from None
            await self._count_frame()
            match opcode:
                case Opcode.BINARY:
                    self._take(frames.unpack(payload))
                case Opcode.PING:
                    self._pings.take(self._last)
                    self._answer(Opcode.PONG, payload)
                case Opcode.PONG:
                    self._take_answer()
                case Opcode.TEXT:
                    if self._heard is None:
                        raise FrameError("only the home sends texts")
                    self._heard(payload.decode("utf-8", "replace"))
                case Opcode.CLOSE:
                    raise EOFError("the other end has closed the tunnel")

    async def _count_frame(self) -> None:
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if not self._frames.try_take(self._last):
            # The bytes that arrive meanwhile wait in the kernel, and then at the other end.
            await asyncio.sleep(_FRAMES_IN_TURN / MOST_FRAMES)
            self._last = loop.time()
            self._frames.take(self._last)

    def _take_answer(self) -> None:
        if not self._unanswered:
            raise FrameError("the other end answers a ping that it did not get")
        self._unanswered -= 1
        self._answered.set()

    async def _frame(self, reader: asyncio.StreamReader) -> tuple[Opcode, bytes]:
        first, second = await reader.readexactly(2)
        head = frames.parse_head(first, second, from_client=not self._is_client)
        length = head.length
        if head.length_bytes:
            length = frames.checked_length(int.from_bytes(await reader.readexactly(head.length_bytes), "big"))
        mask = await reader.readexactly(4) if head.is_masked else b""
        payload = await reader.readexactly(length)
        return head.opcode, frames.masked(payload, mask) if mask else payload

    def _take(self, message: TunnelMessage) -> None:
        known = self._streams.get(message.stream)
        if message.kind is MessageKind.OPEN:
            self._accept(message.stream, self._connect)
        elif message.kind is MessageKind.DIAL:
            to = frames.dialled(message)
            self._accept(message.stream, partial(self._dial, *to) if self._dial is not None else None)
        elif known is not None:
            known.take(message)
            carried = frames.credited(message) if message.kind is MessageKind.CREDIT else len(message.data)
            if carried:
                self._frames.give(self._last, carried / _BYTES_OF_FRAME)
        else:
            self._take_stray(message)

    def _take_stray(self, message: TunnelMessage) -> None:
        """Take in a message that was under way when its stream ended here, and means nothing any more.

        Raises:
            FrameError: There was no such stream, or there are too many of these messages.
        """
        # An end that gave up a stream before it could open it resets it only.
        if message.stream >= self._next and message.kind is not MessageKind.RESET:
            raise FrameError("a message is about a stream that was never opened")
        # Bytes may come in many small messages; their number is limited as that of all frames.
        if message.kind is not MessageKind.DATA and not self._strays.try_take(self._last):
            raise FrameError("the other end sends too many messages about streams that have ended")

    def _accept(self, number: int, connect: Connect | None) -> None:
        if connect is None or self._group is None or number < self._next:
            raise FrameError("the other end may not open this stream")
        self._next = number + 1
        if len(self._streams) >= MOST_STREAMS:
            self._answer(Opcode.BINARY, frames.pack(TunnelMessage(MessageKind.RESET, number)))
            return
        muxed = self._streams[number] = _Muxed(number)
        self._group.create_task(self._serve(muxed, connect))

    async def _serve(self, muxed: _Muxed, connect: Connect) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                local = await connect()
        except (OSError, TimeoutError):
            self._forget(muxed)
            return
        try:
            with suppress(OSError):
                await self._splice(muxed, local)
        finally:
            self._forget(muxed)
            abort(local)

    def _forget(self, muxed: _Muxed) -> None:
        """End a stream at the other end, too, unless it has ended there."""
        self._streams.pop(muxed.number, None)
        if not muxed.is_reset and self._group is not None:
            self._answer(Opcode.BINARY, frames.pack(TunnelMessage(MessageKind.RESET, muxed.number)))

    def _answer(self, opcode: Opcode, payload: bytes) -> None:
        """Send without waiting."""
        writer = self._stream.writer
        if writer.transport.get_write_buffer_size() > _MOST_UNSENT:
            raise FrameError("the other end reads no answers")
        if not writer.transport.is_closing():
            writer.write(self._encoded(opcode, payload))

    async def _send(self, message: TunnelMessage) -> None:
        await self._write(Opcode.BINARY, frames.pack(message))

    async def _write(self, opcode: Opcode, payload: bytes) -> None:
        # In turn: each write waits until the connection takes more.
        async with self._writing:
            self._stream.writer.write(self._encoded(opcode, payload))
            await self._stream.writer.drain()

    def _encoded(self, opcode: Opcode, payload: bytes) -> bytes:
        return frames.encode(opcode, payload, secrets.token_bytes(4) if self._is_client else b"")

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PING_SECONDS)
            if loop.time() - self._last > SILENT_SECONDS:
                raise TimeoutError("the other end of the tunnel is silent")
            self._unanswered += 1
            self._answer(Opcode.PING, secrets.token_bytes(4))

    # -- streams ----------------------------------------------------------------------------------

    async def _splice(self, muxed: _Muxed, local: ByteStream) -> None:
        """Forward bytes between a stream and a connection until both directions have ended."""
        muxed.ended = partial(abort, local)
        async with asyncio.timeout(None) as deadline:
            silence = HalfClosed(deadline)
            await all_of([self._outgoing(muxed, local.reader, silence), self._incoming(muxed, local.writer, silence)])
        # Both directions have ended at both ends.
        muxed.is_reset = True
        await end(local)

    async def _outgoing(self, muxed: _Muxed, reader: asyncio.StreamReader, silence: HalfClosed) -> None:
        while chunk := await reader.read(min(MOST_DATA, await muxed.room())):
            muxed.credit -= len(chunk)
            await self._send(TunnelMessage(MessageKind.DATA, muxed.number, chunk))
            silence.carried()
        await self._send(TunnelMessage(MessageKind.END, muxed.number))
        silence.begin()

    async def _incoming(self, muxed: _Muxed, writer: asyncio.StreamWriter, silence: HalfClosed) -> None:
        taken = 0
        while chunk := await muxed.next_chunk():
            writer.write(chunk)
            await writer.drain()
            taken += len(chunk)
            if taken >= WINDOW_BYTES // 4:
                muxed.unread -= taken
                await self._send(frames.credit(muxed.number, taken))
                taken = 0
            silence.carried()
        writer.write_eof()
        silence.begin()

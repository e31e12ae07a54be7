"""Frames of WebSocket, and the messages of a tunnel inside them: pure.

    binary frame   kind (1 byte) | stream (4 bytes) | bytes       a message about one stream
    text frame     a token                                        from home to peer only
    ping, pong     4 bytes                                        whether the other end still answers

The reader is strict: no fragments, no extensions, no long frames, and masks exactly as the role of the sender demands.
A program in between that divides frames would break the tunnel; proxies of TLS connections do not see frames.

Source: RFC 6455, sections 4 and 5.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import ipaddress
import re
import struct
from typing import NamedTuple

from tenantry.api.errors import TenantryError
from tenantry.hosting import heads
from tenantry.hosting.heads import HttpRefusal, RequestHead

MOST_DATA = 16 * 1024
"""The most bytes of a stream in one message."""

_MOST_PAYLOAD = MOST_DATA + 5
_MOST_CONTROL = 125
_LONG = 126
_LONGEST = 127
_FINAL = 0x80
_MASKED = 0x80
_RESERVED = 0x70
_MESSAGE = struct.Struct(">BI")
_CREDIT = struct.Struct(">I")
_DIALLED = re.compile(rb"\[([0-9a-f.:]{2,45})\]:([1-9][0-9]{0,4})")
_MOST_DIALLED = 64
_LAST_PORT = 65535
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16


class FrameError(TenantryError):
    """The other end does not keep to the protocol of tunnels."""


class Opcode(enum.IntEnum):
    """The kind of a frame."""

    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


_CONTROL = frozenset({Opcode.CLOSE, Opcode.PING, Opcode.PONG})


class MessageKind(enum.IntEnum):
    """What a message says about its stream."""

    OPEN = 1
    """The home begins a stream; the peer connects it to its API server."""
    DATA = 2
    CREDIT = 3
    """So many more bytes may be sent (4 bytes)."""
    END = 4
    """The sender sends no more bytes."""
    RESET = 5
    """The stream is over in both directions."""
    DIAL = 6
    """As OPEN, with the address and the port to connect to, which the acceptor checks: as in 10.200.1.7:8443."""


_WITH_BYTES = frozenset({MessageKind.DATA, MessageKind.CREDIT, MessageKind.DIAL})


class TunnelMessage(NamedTuple):
    """One message about a stream."""

    kind: MessageKind
    stream: int
    data: bytes = b""


class FrameHead(NamedTuple):
    """The head of a frame: its opcode, and the lengths of what follows it."""

    opcode: Opcode
    length_bytes: int
    length: int
    is_masked: bool


def accept_key(key: str) -> str:
    """Return the value of Sec-WebSocket-Accept for a Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


def switched(key: str) -> bytes:
    """Return the head of the response by which a WebSocket begins, to a request with this key."""
    own = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Accept", accept_key(key))]
    return heads.response_head(101, "Switching Protocols", own)


def websocket_key(head: RequestHead) -> str:
    """Return the key of the WebSocket that a request opens.

    Raises:
        HttpRefusal: It opens none.
    """
    keys = [value for name, value in head.headers if name == "sec-websocket-key"]
    names = [each.lower() for each in head.values("upgrade")]
    if not head.upgrade_headers() or names != ["websocket"] or head.values("sec-websocket-version") != ["13"]:
        raise HttpRefusal(400, "the request must be an upgrade to websocket, version 13")
    if len(keys) != 1 or not is_key(keys[0]):
        raise HttpRefusal(400, "the request must have one Sec-WebSocket-Key of 16 bytes")
    return keys[0]


def is_key(key: str) -> bool:
    """Return whether a Sec-WebSocket-Key is one."""
    try:
        return len(base64.b64decode(key, validate=True)) == _KEY_BYTES
    except (ValueError, binascii.Error):
        return False


def encode(opcode: Opcode, payload: bytes, mask: bytes = b"") -> bytes:
    """Return a frame.

    Args:
        opcode: Its kind.
        payload: Its content.
        mask: 4 random bytes, for a frame of the client; none for one of the server.
    """
    bit = _MASKED if mask else 0
    if len(payload) <= _MOST_CONTROL:
        head = bytes((_FINAL | opcode, bit | len(payload)))
    else:
        head = bytes((_FINAL | opcode, bit | _LONG)) + len(payload).to_bytes(2, "big")
    return head + mask + (masked(payload, mask) if mask else payload)


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return a payload with or without its mask: the operation is its own inverse."""
    size = len(payload)
    key = (mask * (size // len(mask) + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


def parse_head(first: int, second: int, *, from_client: bool) -> FrameHead:
    """Return what the first two bytes of a frame say.

    Args:
        first: The first byte.
        second: The second byte.
        from_client: Whether the client has sent it, which masks its frames.

    Raises:
        FrameError: No end of a tunnel sends such a frame.
    """
    try:
        opcode = Opcode(first & 0x0F)
    except ValueError:
        raise FrameError("a frame has an unknown opcode") from None
    is_masked, length = bool(second & _MASKED), second & ~_MASKED
    if first & _RESERVED or not first & _FINAL:
        raise FrameError("a frame is a fragment, or uses an extension")
    if is_masked is not from_client:
        raise FrameError("a frame must have a mask exactly if the client has sent it")
    if length == _LONGEST or (opcode in _CONTROL and length > _MOST_CONTROL):
        raise FrameError("a frame is too long")
    return FrameHead(opcode, 2 if length == _LONG else 0, length if length < _LONG else 0, is_masked)


def checked_length(length: int) -> int:
    """Return the length of a frame that gives it in two bytes.

    Raises:
        FrameError: It is too long, or would have fitted into less.
    """
    if not _MOST_CONTROL < length <= _MOST_PAYLOAD:
        raise FrameError("a frame is too long, or has a length of another form")
    return length


def pack(message: TunnelMessage) -> bytes:
    """Return the payload of a message."""
    return _MESSAGE.pack(message.kind, message.stream) + message.data


def credit(stream: int, size: int) -> TunnelMessage:
    """Return the message that lets the other end send more bytes."""
    return TunnelMessage(MessageKind.CREDIT, stream, _CREDIT.pack(size))


def credited(message: TunnelMessage) -> int:
    """Return how many more bytes a message lets this end send.

    Raises:
        FrameError: It does not say.
    """
    if len(message.data) != _CREDIT.size:
        raise FrameError("a credit has no amount")
    size: int = _CREDIT.unpack(message.data)[0]
    if not size:
        raise FrameError("a credit has no bytes")
    return size


def dial(stream: int, address: str, port: int) -> TunnelMessage:
    """Return the message that begins a stream to a port of an IP address."""
    return TunnelMessage(MessageKind.DIAL, stream, f"[{address}]:{port}".encode())


def dialled(message: TunnelMessage) -> tuple[str, int]:
    """Return the IP address, in its shortest form, and the port that a stream is to be connected to.

    Raises:
        FrameError: It names none.
    """
    found = _DIALLED.fullmatch(message.data[: _MOST_DIALLED + 1])
    try:
        address = ipaddress.ip_address(found[1].decode()) if found is not None else None
    except ValueError:
        address = None
    if found is None or address is None or not 0 < int(found[2]) <= _LAST_PORT:
        raise FrameError("a stream is to be connected to no address and port")
    return str(address), int(found[2])


def unpack(payload: bytes) -> TunnelMessage:
    """Return the message of a payload.

    Raises:
        FrameError: It is none.
    """
    if len(payload) < _MESSAGE.size:
        raise FrameError("a message is too short")
    kind, stream = _MESSAGE.unpack_from(payload)
    try:
        found = MessageKind(kind)
    except ValueError:
        raise FrameError("a message has an unknown kind") from None
    data = payload[_MESSAGE.size :]
    if bool(data) is not (found in _WITH_BYTES):
        raise FrameError("a message has bytes that it may not have, or lacks those that it must have")
    return TunnelMessage(found, stream, data)

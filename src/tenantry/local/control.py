"""Requests to a supervisor and its replies: one JSON object per line, on a socket that only the owner can open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from tenantry.api.errors import LocalError
from tenantry.engine.sockets import short_path
from tenantry.local.state import ClusterState

Verb = Literal["watch", "start", "stop", "restart", "reload", "shutdown"]
_LINE_LIMIT = 2**20


class SupervisorRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request; `component` is set for verbs that concern one."""

    verb: Verb
    component: str = ""


class SupervisorReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state after a request, or why it failed. A watch is answered with one reply for each change."""

    state: ClusterState | None = None
    error: str = ""


def decode_order(line: bytes) -> SupervisorRequest:
    """Decode a request.

    Raises:
        ConnectionError: The line is not a request.
    """
    try:
        return msgspec.json.decode(line, type=SupervisorRequest)
    except msgspec.MsgspecError as error:
        raise ConnectionError(str(error)) from error


def encode_reply(reply: SupervisorReply) -> bytes:
    """Encode a reply as a line."""
    return msgspec.json.encode(reply) + b"\n"


@asynccontextmanager
async def _connected(path: Path) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        with short_path(path) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=_LINE_LIMIT)
    except OSError as error:
        raise LocalError(f'the supervisor does not answer at "{path}": {error.strerror}') from error
    try:
        yield reader, writer
    except (OSError, ValueError) as error:
        # It has ended, or the line is too long.
        raise LocalError(f'the supervisor at "{path}" ended the connection: {error}') from error
    finally:
        writer.close()


async def order(path: Path, what: SupervisorRequest, timeout_seconds: float) -> ClusterState:
    """Send a request and return the state after it.

    Raises:
        LocalError: The supervisor is gone or rejects the request.
        TimeoutError: It did not answer in time.
    """
    async with asyncio.timeout(timeout_seconds), _connected(path) as (reader, writer):
        writer.write(msgspec.json.encode(what) + b"\n")
        reply = _decode(await reader.readline(), path)
    if reply.error or reply.state is None:
        raise LocalError(reply.error or "the supervisor sent an empty reply")
    return reply.state


async def watch(path: Path) -> AsyncGenerator[ClusterState]:
    """Yield the state now, and after each change; the caller sets the deadline.

    Raises:
        LocalError: The supervisor is gone.
    """
    async with _connected(path) as (reader, writer):
        writer.write(msgspec.json.encode(SupervisorRequest(verb="watch")) + b"\n")
        while True:
            # Each line is the whole state, so a slow reader misses intermediate states but never the last one.
            state = _decode(await reader.readline(), path).state
            if state is not None:
                yield state


def current(path: Path, timeout_seconds: float) -> ClusterState | None:
    """Return the supervisor's state now; None if it does not answer in time, as while it stops."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, short_path(path) as address:
            connection.settimeout(timeout_seconds)
            connection.connect(address)
            connection.sendall(msgspec.json.encode(SupervisorRequest(verb="watch")) + b"\n")
            with connection.makefile("rb") as answer:
                return _decode(answer.readline(_LINE_LIMIT), path).state
    except (OSError, LocalError):
        return None


def _decode(line: bytes, path: Path) -> SupervisorReply:
    if not line:
        raise LocalError(f'the supervisor at "{path}" ended')
    try:
        return msgspec.json.decode(line, type=SupervisorReply)
    except msgspec.MsgspecError as error:
        raise LocalError(f'the supervisor at "{path}" is of another version of Tenantry: stop it first') from error

"""Asks a hosted control plane when its clients were active last. The answer comes once they have not been for a time.

    ask(socket, 600) ──Unix socket──► go/hosted/internal/activity ─► Activity

Clients are all users but Tenantry's own identity and the controllers of the process itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec

from tenantry.api.errors import LocalError
from tenantry.engine.sockets import short_path
from tenantry.hosting.reports import Activity

ANSWER_SECONDS = 40.0
"""The limit of an answer that waits for nothing; the process lists its CronJobs for 30 seconds at most."""

_MOST_BYTES = 64 * 2**10
"""Of an answer: a hundred user names, of 253 characters each at most."""


async def ask(socket: Path, idle_seconds: int | None) -> Activity:
    """Return what a hosted control plane reports.

    Args:
        socket: Its socket.
        idle_seconds: How long no client must have been active before it answers; None for an answer at once.

    Raises:
        LocalError: It does not answer: it ends, or has ended.
    """
    question = msgspec.json.encode({} if idle_seconds is None else {"idleSeconds": idle_seconds}) + b"\n"
    try:
        async with asyncio.timeout(ANSWER_SECONDS if idle_seconds is None else None):
            with short_path(socket) as address:
                reader, writer = await asyncio.open_unix_connection(address, limit=_MOST_BYTES)
            with contextlib.closing(writer):
                writer.write(question)
                return msgspec.json.decode(await reader.readuntil(b"\n"), type=Activity)
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, msgspec.MsgspecError) as error:
        raise LocalError(f"the hosted control plane does not report its activity: {error}") from error

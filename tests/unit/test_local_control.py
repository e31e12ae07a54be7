"""Requests to a supervisor that fails."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tenantry.api.errors import LocalError
from tenantry.local import control


@pytest.mark.parametrize("line", [b"", b"x" * 2**21], ids=["a connection that is reset", "a line that is too long"])
async def test_a_watch_that_the_supervisor_ends_is_an_error_of_ours(tmp_path: Path, line: bytes) -> None:
    """It ends the connections of slow readers, and callers catch no other error."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        # What the client has sent is not read: that resets the connection.
        writer.transport.abort()

    async with await asyncio.start_unix_server(serve, tmp_path / "s"):
        with pytest.raises(LocalError, match="ended"):
            await anext(control.watch(tmp_path / "s"))

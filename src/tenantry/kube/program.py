"""Runs another program to its end: exec plugins of kubeconfigs, and the tools of a node's agents."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class ProgramResult(NamedTuple):
    """The result of a program that has ended: its exit code, stdout and stderr."""

    code: int
    out: bytes
    err: bytes


async def run(
    command: Sequence[str | Path],
    *,
    timeout_seconds: float,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> ProgramResult:
    """Run a program, and kill it if it takes too long.

    Args:
        command: The program and its arguments.
        timeout_seconds: The time limit.
        stdin: All of its input.
        environment: All of its environment; None for the one of this process.

    Raises:
        OSError: The program cannot be started.
        TimeoutError: It did not end in time.
    """
    # A file, not a pipe: writing to a pipe fails if the program ends without reading.
    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=file, stdout=pipe, stderr=pipe, env=environment)
    try:
        async with asyncio.timeout(timeout_seconds):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            # The program may have ended already, before asyncio noticed.
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return ProgramResult(process.returncode or 0, out, err)

"""Starts the supervisor of a cluster, a daemon that outlives the process that starts it."""

from __future__ import annotations

import asyncio
import os
import sys

from tenantry.api.errors import LocalError
from tenantry.local import locks
from tenantry.local.paths import ClusterPaths

_SECONDS = 60.0


async def start_supervisor(paths: ClusterPaths, name: str) -> None:
    """Start the supervisor; it accepts requests when this returns.

    Args:
        paths: The cluster's.
        name: The cluster's, for errors.

    Raises:
        LocalError: One runs already, or it does not start.
        TimeoutError: It takes too long.
    """
    lock = locks.FileLock(paths.supervisor_lock)
    if not lock.try_acquire():
        raise LocalError(f'a supervisor of "{name}" runs already')
    try:
        # The supervisor inherits the held lock: at no moment could a second one start.
        os.set_inheritable(lock.descriptor, True)
        launcher = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenantry.local.supervisor", str(paths.folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(lock.descriptor,),
            start_new_session=True,
            cwd="/",
        )
    finally:
        # From here on only the supervisor holds it.
        lock.release()
    if launcher.stdout is None:
        raise LocalError("the supervisor was started without a pipe")
    async with asyncio.timeout(_SECONDS):
        said = await launcher.stdout.read()
        await launcher.wait()
    if said != b"listening\n":
        raise LocalError(f"the supervisor did not start:\n{said.decode(errors='replace').strip()}")

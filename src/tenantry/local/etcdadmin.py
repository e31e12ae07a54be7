"""Administers the etcds of hosted control planes on this machine, and keeps a copy of each.

supervisor ─► keep ─► `hosted etcd root.json save backup.db`, every six hours

`backup.db` is a snapshot as `etcdctl snapshot save` writes it: `etcdutl snapshot restore` makes a data folder of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.local import etcds
from tenantry.local.paths import ClusterPaths

ACCESS = "root.json"
"""The file with the way of the administrator to the etcd."""

BACKUP = "backup.db"
EVERY_SECONDS = 6 * 3600.0
_CHECK_SECONDS = 600.0
_SAVE_SECONDS = 660.0

_LOG = logging.getLogger(__name__)


async def administer(program: Path, at: Path, *arguments: str, seconds: float) -> None:
    """Administer an etcd.

    Args:
        program: The path of the program of hosted control planes.
        at: The folder of the etcd.
        arguments: What to do, see go/hosted/internal/etcd.
        seconds: How long it may take.

    Raises:
        LocalError: It failed, with its last words.
    """
    process = await asyncio.create_subprocess_exec(
        *(program, "etcd", at / ACCESS, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            _, told = await process.communicate()
    except TimeoutError:
        told = f"it did not end within {seconds:.0f} s".encode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = told.decode(errors="replace").strip().splitlines()[-3:]
        raise LocalError(f'the etcd in "{at}" does not "{arguments[0]}": {" ".join(lines)}')


async def keep(paths: ClusterPaths) -> None:
    """Save a copy of each etcd whenever it is due, until cancelled.

    Args:
        paths: The cluster's.
    """
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        await save_due(paths, time.time())


async def save_due(paths: ClusterPaths, now: float) -> None:
    """Save a copy of each etcd whose last one is too old; one that does not answer is tried again later.

    Args:
        paths: The cluster's.
        now: Seconds since the epoch, as the times of files.
    """
    for process, at in await asyncio.to_thread(etcds.processes, paths):
        try:
            if await asyncio.to_thread(_is_due, at / BACKUP, now):
                await administer(Path(process.administrator), at, "save", BACKUP, seconds=_SAVE_SECONDS)
        except (LocalError, OSError) as error:
            _LOG.warning("an etcd is not saved", extra={"component": process.name, "error": str(error)})


def _is_due(file: Path, now: float) -> bool:
    try:
        return now - file.stat().st_mtime > EVERY_SECONDS
    except FileNotFoundError:
        return True

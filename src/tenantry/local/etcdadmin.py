"""Administers the etcds of hosted control planes on this machine, makes room in them, and keeps a copy of each.

supervisor ─► keep ─► `hosted etcd root.json save backup.db`, every six hours
                   ─► `hosted etcd root.json relieve`, every ten minutes, and every ten seconds with a large file

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
ROUTINE_SECONDS = 24 * 3600.0
"""How often the file of an etcd is rewritten if half of it is room; it does not answer meanwhile."""

_CHECK_SECONDS = 600.0
_LOOK_SECONDS = 10.0
_ROUTINE = "routine"
"""The time of this file is that of the last routine."""

_SAVE_SECONDS = 660.0

_LOG = logging.getLogger(__name__)


async def administer(program: Path, at: Path, *arguments: str, seconds: float) -> str:
    """Administer an etcd, and return what it reports.

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
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out = b""
    try:
        async with asyncio.timeout(seconds):
            out, told = await process.communicate()
    except TimeoutError:
        told = f"it did not end within {seconds:.0f} s".encode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = told.decode(errors="replace").strip().splitlines()[-3:]
        raise LocalError(f'the etcd in "{at}" does not "{arguments[0]}": {" ".join(lines)}')
    return out.decode(errors="replace").strip()


async def keep(paths: ClusterPaths) -> None:
    """Save a copy of each etcd, and make room in it, whenever that is due, until cancelled.

    Args:
        paths: The cluster's.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(_keep_saved(paths))
        group.create_task(_keep_relieved(paths))


async def _keep_saved(paths: ClusterPaths) -> None:
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        await save_due(paths, time.time())


async def _keep_relieved(paths: ClusterPaths) -> None:
    # An alarm may be older than this supervisor.
    looked = 0.0
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = time.time()
        is_check = now - looked >= _CHECK_SECONDS
        await relieve_due(paths, now, also_small=is_check)
        if is_check:
            looked = now


async def relieve_due(paths: ClusterPaths, now: float, *, also_small: bool) -> None:
    """Make room in each etcd that may need it: remove former values, rewrite its file, limit its control planes.

    Without this, an etcd whose file reaches its quota refuses all writes until an administrator acts.

    Args:
        paths: The cluster's.
        now: Seconds since the epoch, as the times of files.
        also_small: Whether those are asked, too, whose file has less than half of the quota.
    """
    for process, at in await asyncio.to_thread(etcds.processes, paths):
        try:
            is_routine = also_small and await asyncio.to_thread(_is_due, at / _ROUTINE, now, ROUTINE_SECONDS)
            if not also_small and not await asyncio.to_thread(_is_large, at, process.quota):
                continue
            told = await administer(
                Path(process.administrator), at, "relieve", *(("routine",) if is_routine else ()), seconds=_SAVE_SECONDS
            )
            if told:
                _LOG.warning("room was made in an etcd", extra={"component": process.name, "done": told})
            if is_routine:
                await asyncio.to_thread((at / _ROUTINE).touch)
        except (LocalError, OSError) as error:
            _LOG.warning("no room is made in an etcd", extra={"component": process.name, "error": str(error)})


async def save_due(paths: ClusterPaths, now: float) -> None:
    """Save a copy of each etcd whose last one is too old; one that does not answer is tried again later.

    Args:
        paths: The cluster's.
        now: Seconds since the epoch, as the times of files.
    """
    for process, at in await asyncio.to_thread(etcds.processes, paths):
        try:
            if await asyncio.to_thread(_is_due, at / BACKUP, now, EVERY_SECONDS):
                await administer(Path(process.administrator), at, "save", BACKUP, seconds=_SAVE_SECONDS)
        except (LocalError, OSError) as error:
            _LOG.warning("an etcd is not saved", extra={"component": process.name, "error": str(error)})


def _is_due(file: Path, now: float, every: float) -> bool:
    try:
        return now - file.stat().st_mtime > every
    except FileNotFoundError:
        return True


def _is_large(at: Path, quota: int) -> bool:
    try:
        return etcds.database(at).stat().st_size > quota // 2
    except FileNotFoundError:
        return False  # it has not started yet

"""Snapshots of the hosted control planes of this machine: files of the operator, one folder for each control plane.

CLUSTER/hosted-snapshots/UID/  TIME-REVISION.snapshot   taken; of this control plane
                               given-….snapshot         put there by an administrator, for one restore

The folders have mode 0700 and the files 0600, because a snapshot has all Secrets. No request names a path.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError
from tenantry.hosting import plane as hosting
from tenantry.hosting import snapshots
from tenantry.hosting.snapshots import KeptSnapshot
from tenantry.local import control
from tenantry.local.control import SupervisorRequest
from tenantry.local.files import explain, make_private_folder
from tenantry.local.paths import ClusterPaths

FOLDER = "hosted-snapshots"
PAUSED = "process.json.paused"
"""The name of the file of a process while its datastore is replaced: it is no component, and its port is kept."""

_TAKE_SECONDS = 300.0
_RESTORE_SECONDS = 600.0
_ORDER_SECONDS = 30.0
_PROCESS = "process.json"


class _Header(msgspec.Struct, frozen=True):
    revision: int
    time: dt.datetime


class _Program(msgspec.Struct, frozen=True):
    program: str


class LocalSnapshots:
    """Takes and keeps snapshots of hosted control planes of a local cluster; see `hosting.snapshots.SnapshotStore`.

    Args:
        paths: The cluster's.
    """

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths

    def folder(self, uid: str) -> Path:
        """Return the folder of the snapshots of one control plane."""
        return self._paths.folder / FOLDER / _checked(uid)

    async def take(self, uid: str) -> KeptSnapshot:
        """See `SnapshotStore.take`."""
        own = self.folder(uid)
        await asyncio.to_thread(make_private_folder, own)
        unfinished = own / ".unfinished"
        found = await self._run(uid, _TAKE_SECONDS, "snapshot", str(self._settings(uid)), str(unfinished))
        kept = own / snapshots.name(found.time, found.revision)
        unfinished.replace(kept)
        return KeptSnapshot(name=kept.name, time=found.time, revision=found.revision, size=kept.stat().st_size)

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """See `SnapshotStore.kept`."""
        return await asyncio.to_thread(_kept, self.folder(uid))

    async def discard(self, uid: str, name: str) -> None:
        """See `SnapshotStore.discard`."""
        (self.folder(uid) / snapshots.check_name(name)).unlink(missing_ok=True)

    async def restore(self, uid: str, name: str) -> None:
        """See `SnapshotStore.restore`."""
        file = self.folder(uid) / snapshots.check_name(name)
        if not file.is_file():
            raise InputError(f"there is no snapshot {name!r} of this control plane: status.snapshots lists them")
        # Most of what is wrong with a file shows before the process ends.
        await self._run(uid, _TAKE_SECONDS, "verify", str(file))
        process = self._paths.folder / "hosted" / _checked(uid) / _PROCESS
        if process.exists():
            process.replace(process.with_name(PAUSED))
        await control.order(self._paths.socket, SupervisorRequest(verb="reload"), _ORDER_SECONDS)
        foreign = ("foreign",) if snapshots.is_given(name) else ()
        await self._run(uid, _RESTORE_SECONDS, "restore", str(self._settings(uid)), str(file), *foreign)

    def _settings(self, uid: str) -> Path:
        return self._paths.folder / "hosted" / _checked(uid) / hosting.SETTINGS

    async def _run(self, uid: str, seconds: float, *arguments: str) -> _Header:
        """Run a command of the program that the control plane has, and return what it writes.

        Raises:
            LocalError: It fails, with its last line, or is not done in time.
        """
        child = await asyncio.create_subprocess_exec(
            self._program(uid), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(seconds):
                out, err = await child.communicate()
        except TimeoutError as error:
            raise LocalError(f"`hosted {arguments[0]}` was not done after {seconds:.0f} s") from error
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            lines = err.decode(errors="replace").strip().splitlines() or [f"it ended with {child.returncode}"]
            raise LocalError(lines[-1].removeprefix("hosted: "))
        return msgspec.json.decode(out, type=_Header)

    def _program(self, uid: str) -> str:
        own = self._paths.folder / "hosted" / _checked(uid)
        for name in (_PROCESS, PAUSED):
            try:
                return msgspec.json.decode((own / name).read_bytes(), type=_Program).program
            except FileNotFoundError:
                continue
            except (OSError, msgspec.MsgspecError) as error:
                raise LocalError(f'"{own / name}" cannot be read: {error}') from error
        raise LocalError("the control plane has not been started yet: it has no objects")


def remove(paths: ClusterPaths, uid: str) -> None:
    """Delete all snapshots of a control plane.

    Args:
        paths: The cluster's.
        uid: Of the control plane.

    Raises:
        LocalError: Something is left.
    """
    folder = paths.folder / FOLDER / _checked(uid)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, folder) from error


def _kept(folder: Path) -> tuple[KeptSnapshot, ...]:
    try:
        files = [(file.name, file.stat().st_size) for file in folder.iterdir()]
    except FileNotFoundError:
        return ()
    found = [each for name, size in files if (each := snapshots.read(name, size)) is not None]
    return tuple(sorted(found, key=lambda each: (each.time, each.revision)))


def _checked(uid: str) -> str:
    if not uid or set(uid) - set("0123456789abcdef-"):
        raise InputError(f"{uid!r} is not the uid of an object")
    return uid

"""Snapshots of the hosted control planes of this machine: files of the operator, one folder for each control plane.

CLUSTER/hosted-snapshots/UID/  TIME-REVISION.snapshot   taken; of this control plane
                               given-….snapshot         put there by an administrator, for one restore

The folders have mode 0700 and the files 0600, because a snapshot has all Secrets. No request names a path.

At another destination, a folder for each uid is in the folder that administrators have chosen, or a prefix for each uid
in a bucket. Files that are given, and those on their way to a bucket, are always in the folder above.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError, StoreError
from tenantry.hosting import plane as hosting
from tenantry.hosting import snapshotplaces, snapshots
from tenantry.hosting.s3.snapshots import BucketSnapshots
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.hosting.snapshots import KeptSnapshot, SnapshotHeader, SnapshotStore, UnusableSnapshot
from tenantry.local import hostedkeys, hostedversions
from tenantry.local.files import explain, make_private_folder
from tenantry.local.paths import ClusterPaths

FOLDER = "hosted-snapshots"
KINDS = frozenset({SnapshotPlaceKind.FOLDER, SnapshotPlaceKind.S3})
"""Of the destinations that the snapshots of this machine can have."""

_UNFINISHED = ".unfinished"
_ON_ITS_WAY = ".on-its-way"
_TAKE_SECONDS = 300.0
_RESTORE_SECONDS = 600.0


class LocalSnapshots:
    """Takes and keeps snapshots of hosted control planes of a local cluster; see `hosting.snapshots.SnapshotStore`.

    Args:
        paths: The cluster's.
        stop: Ends the process of a control plane, as `Placement.stop`.
        program: Returns the path of the program that a control plane has, or of that of another version, which may
            be "" for the one that it has.
        opened: Has the datastore of a control plane answer, whose process may not run; None if all always do.
        confined: Puts a process under the limits of a control plane, and returns what ends them; None for no limits.
    """

    def __init__(
        self,
        paths: ClusterPaths,
        stop: Callable[[str], Awaitable[None]],
        program: Callable[[str, str], str],
        opened: Callable[[str], AbstractAsyncContextManager[None]] | None = None,
        confined: Callable[[str, int], Callable[[], None]] | None = None,
    ) -> None:
        self._paths = paths
        self._stop = stop
        self._program = program
        self._opened = opened or _always_open
        self._confined = confined or _without_limits

    def at(self, place: SnapshotPlace) -> SnapshotStore:
        """See `Placement.snapshots_at`."""
        if place.kind is SnapshotPlaceKind.FOLDER:
            return _FolderSnapshots(self, place)
        if place.s3 is None:
            raise snapshotplaces.refusal(place, KINDS)
        return BucketSnapshots(self, place.s3, place.name)

    async def check(self, uid: str) -> None:
        """See `SnapshotStore.check`."""
        await asyncio.to_thread(make_private_folder, folder(self._paths, uid))

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotStore.take`."""
        return await self.take_in(folder(self._paths, uid), uid, upgrade)

    async def take_in(self, own: Path, uid: str, upgrade: str) -> KeptSnapshot:
        """Take a snapshot, and keep it in a folder.

        Args:
            own: The folder of the control plane there.
            uid: Of the control plane.
            upgrade: As in `KeptSnapshot`.
        """
        await asyncio.to_thread(make_private_folder, own)
        unfinished = own / _UNFINISHED
        found = await self.write(uid, unfinished, upgrade)
        unfinished.replace(own / found.name)
        return found

    async def write(self, uid: str, file: Path, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotFiles.write`."""
        async with self._opened(uid):
            found = await self._run(uid, _TAKE_SECONDS, "snapshot", str(self._settings(uid)), str(file))
        name = snapshots.name(found.time, found.revision, upgrade)
        size = (await asyncio.to_thread(file.stat)).st_size
        return KeptSnapshot(name=name, time=found.time, revision=found.revision, size=size, upgrade=upgrade)

    @asynccontextmanager
    async def scratch(self, uid: str) -> AsyncGenerator[Path]:
        """See `SnapshotFiles.scratch`."""
        own = folder(self._paths, uid)
        await asyncio.to_thread(make_private_folder, own)
        file = own / _ON_ITS_WAY
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """See `SnapshotStore.kept`."""
        return await asyncio.to_thread(_kept, folder(self._paths, uid))

    async def discard(self, uid: str, name: str) -> None:
        """See `SnapshotStore.discard`."""
        (folder(self._paths, uid) / snapshots.check_name(name)).unlink(missing_ok=True)

    async def restore(self, uid: str, name: str, version: str = "") -> None:
        """See `SnapshotStore.restore`."""
        await self.restore_named(folder(self._paths, uid), uid, name, version)

    async def restore_named(self, own: Path, uid: str, name: str, version: str) -> None:
        """Restore a snapshot of a folder.

        Args:
            own: The folder of the control plane there.
            uid: Of the control plane.
            name: The name of the snapshot.
            version: As in `SnapshotStore.restore`.

        Raises:
            TenantryError: Why it cannot be used, or restored.
        """
        file = own / snapshots.check_name(name)
        if not file.is_file():
            raise UnusableSnapshot(
                f"there is no snapshot {name!r} of this control plane: `tenantry vcp describe` lists them"
            )
        await self.restore_file(uid, file, version, foreign=snapshots.is_given(name))

    async def restore_file(self, uid: str, file: Path, version: str = "", *, foreign: bool = False) -> None:
        """See `SnapshotFiles.restore_file`.

        Args:
            uid: The uid of the control plane.
            file: The snapshot.
            version: As in `SnapshotStore.restore`.
            foreign: It may be of another control plane.
        """
        # Most of what is wrong with a file shows before the process ends.
        try:
            found = await self._run(uid, _TAKE_SECONDS, "verify", str(file), version=version)
        except LocalError as error:
            raise UnusableSnapshot(str(error)) from error
        if not foreign and found.uid != uid:
            raise UnusableSnapshot(f"the snapshot is of another control plane (uid {found.uid!r}, not {uid!r})")
        await self._stop(uid)
        mark = ("foreign", *hostedkeys.lay_both(self._paths, uid, snapshots.keys_of(file))) if foreign else ()
        try:
            async with self._opened(uid):
                await self._run(
                    uid, _RESTORE_SECONDS, "restore", str(self._settings(uid)), str(file), *mark, version=version
                )
        finally:
            hostedkeys.remove_both(self._paths, uid)

    def _settings(self, uid: str) -> Path:
        return self._paths.folder / "hosted" / _checked(uid) / hosting.SETTINGS

    async def _run(self, uid: str, seconds: float, *arguments: str, version: str = "") -> SnapshotHeader:
        """Run a command of the program that the control plane has, and return what it writes.

        Raises:
            LocalError: It fails, with its last line, or is not done in time.
        """
        child = await asyncio.create_subprocess_exec(
            self._program(uid, version), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        # At once: its memory is that of a snapshot, which owners fill.
        end = await asyncio.to_thread(self._confined, uid, child.pid)
        try:
            async with asyncio.timeout(seconds):
                out, err = await child.communicate()
        except TimeoutError as error:
            raise LocalError(f"`hosted {arguments[0]}` was not done after {seconds:.0f} s") from error
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
            await asyncio.to_thread(end)
        if child.returncode:
            why = snapshots.failure(err.decode(errors="replace"), [each.name for each in hostedversions.known()])
            raise LocalError(why or f"it ended with {child.returncode}")
        return msgspec.json.decode(out, type=SnapshotHeader)


class _FolderSnapshots:
    """Keeps snapshots in a folder that administrators have chosen; see `hosting.snapshots.SnapshotStore`."""

    def __init__(self, files: LocalSnapshots, place: SnapshotPlace) -> None:
        self._files = files
        self._place = place

    async def check(self, uid: str) -> None:
        """See `SnapshotStore.check`."""
        await asyncio.to_thread(make_private_folder, await self._folder(uid))

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotStore.take`."""
        return await self._files.take_in(await self._folder(uid), uid, upgrade)

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """See `SnapshotStore.kept`."""
        return await asyncio.to_thread(_kept, await self._folder(uid))

    async def discard(self, uid: str, name: str) -> None:
        """See `SnapshotStore.discard`."""
        own = await self._folder(uid)
        (own / snapshots.check_name(name)).unlink(missing_ok=True)
        # The last one was deleted.
        with suppress(OSError):
            own.rmdir()

    async def restore(self, uid: str, name: str, version: str = "") -> None:
        """See `SnapshotStore.restore`."""
        await self._files.restore_named(await self._folder(uid), uid, name, version)

    async def _folder(self, uid: str) -> Path:
        """Return the folder of a control plane.

        Raises:
            StoreError: The folder above it is missing, as while a file server is not mounted.
        """
        root = Path(self._place.folder)
        if not await asyncio.to_thread(root.is_dir):
            raise StoreError(
                f'destination "{self._place.name}": its folder does not exist on the machine of the operator: create'
                " or mount it"
            )
        return root / _checked(uid)


def folder(paths: ClusterPaths, uid: str) -> Path:
    """Return the folder of the snapshots of a control plane.

    Args:
        paths: The cluster's.
        uid: Of the control plane.

    Raises:
        InputError: The uid is none.
    """
    return paths.folder / FOLDER / _checked(uid)


def remove(paths: ClusterPaths, uid: str) -> None:
    """Delete all snapshots of a control plane.

    Args:
        paths: The cluster's.
        uid: Of the control plane.

    Raises:
        LocalError: Something is left.
    """
    own = folder(paths, uid)
    try:
        shutil.rmtree(own)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, own) from error


def _always_open(uid: str) -> AbstractAsyncContextManager[None]:  # noqa: ARG001 - as others
    return nullcontext()


def _without_limits(uid: str, pid: int) -> Callable[[], None]:  # noqa: ARG001 - as others
    return lambda: None


def _kept(own: Path) -> tuple[KeptSnapshot, ...]:
    try:
        files = [(file.name, file.stat().st_size) for file in own.iterdir()]
    except FileNotFoundError:
        return ()
    return snapshots.listed(files)


def _checked(uid: str) -> str:
    if not uid or set(uid) - set("0123456789abcdef-"):
        raise InputError(f"{uid!r} is not the uid of an object")
    return uid

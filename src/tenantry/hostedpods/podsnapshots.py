"""Snapshots of hosted control planes in Pods; see `hosting.snapshots.SnapshotStore`.

    volume of the control plane/snapshots/NAME   by default
    claim of a destination/UID/NAME              through this process, from one Pod to the other
    bucket PREFIX/UID/NAME                       through this process

While a control plane runs, its sidecar takes its snapshots. While it does not, a Job has its volume (workers.py). No
Pod has the volume of a control plane and that of a destination: they may be of different zones, and a Pod of one tenant
has nothing of another one. A file on its way through this process is in a private folder, and is deleted afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import InputError, NotFound, StoreError
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import jobs, objects
from tenantry.hostedpods.jobs import KeeperRole
from tenantry.hostedpods.keeper import SnapshotKeeper
from tenantry.hostedpods.versionimages import VersionImages
from tenantry.hostedpods.workers import KeeperJobs
from tenantry.hosting import snapshotplaces, snapshots, versions
from tenantry.hosting.s3.snapshots import BucketSnapshots
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.hosting.snapshots import KeptSnapshot, NoSnapshotPlace, SnapshotHeader, SnapshotStore, UnusableSnapshot
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.local.files import make_private_folder

KINDS = frozenset({SnapshotPlaceKind.CLAIM, SnapshotPlaceKind.S3})
"""Of the destinations that snapshots of control planes in Pods can have."""

VOLUME = "the volume of the control plane"

_ON_ITS_WAY, _GIVEN = "on-its-way", "given"


class PodSnapshots:
    """Takes the snapshots of control planes in Pods, and keeps them in the volume of each.

    Args:
        client: Of the cluster.
        workers: Starts Jobs.
        running: Returns the keeper of a control plane that runs, whichever operator has started it; None for one that
            does not.
        stop: Ends the process of a control plane, as `Placement.stop`.
        images: Those of all versions.
        scratch: A private folder for files on their way to other places.
    """

    def __init__(  # noqa: PLR0917 - what a placement is made of
        self,
        client: Client,
        workers: KeeperJobs,
        running: Callable[[str], Awaitable[SnapshotKeeper | None]],
        stop: Callable[[str], Awaitable[None]],
        images: VersionImages,
        scratch: Path,
    ) -> None:
        self._client = client
        self._workers = workers
        self._running = running
        self._stop = stop
        self._images = images
        self._scratch = scratch

    def at(self, place: SnapshotPlace) -> SnapshotStore:
        """See `Placement.snapshots_at`."""
        if place.kind is SnapshotPlaceKind.CLAIM:
            return _ClaimSnapshots(self, self._client, self._workers, self._images.default, place)
        if place.s3 is None:
            raise snapshotplaces.refusal(place, KINDS)
        return BucketSnapshots(self, place.s3, place.name)

    async def check(self, uid: str) -> None:
        """See `SnapshotStore.check`."""
        if not jobs.keeps_snapshots(await self._set(uid)):
            raise NoSnapshotPlace(
                "a control plane with this datastore has no volume for snapshots: set spec.snapshots.destination"
            )

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotStore.take`."""
        await self.check(uid)
        keeper = await self._keeper(uid)
        found = _told(await keeper.take(_ON_ITS_WAY), upgrade)
        await keeper.rename(_ON_ITS_WAY, found.name)
        return next((each for each in await keeper.kept() if each.name == found.name), found)

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """See `SnapshotStore.kept`."""
        keeper = await self._running(uid) or self._workers.found(uid, KeeperRole.DATA, "")
        if keeper is None:
            # No Job is started to show them.
            raise StoreError(f"{VOLUME}: the control plane does not run", is_passing=True)
        return await keeper.kept()

    async def discard(self, uid: str, name: str) -> None:
        """See `SnapshotStore.discard`."""
        await (await self._keeper(uid)).discard(snapshots.check_name(name))

    async def restore(self, uid: str, name: str, version: str = "") -> None:
        """See `SnapshotStore.restore`."""
        keeper = await self._keeper(uid)
        await self._restore(keeper, uid, snapshots.check_name(name), version, foreign=snapshots.is_given(name))

    @asynccontextmanager
    async def scratch(self, uid: str) -> AsyncGenerator[Path]:
        """See `SnapshotFiles.scratch`."""
        await asyncio.to_thread(make_private_folder, self._scratch)
        file = self._scratch / objects.name(uid)
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)

    async def write(self, uid: str, file: Path, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotFiles.write`."""
        keeper = await self._keeper(uid)
        found = _told(await keeper.take(_ON_ITS_WAY), upgrade)
        try:
            await keeper.receive(_ON_ITS_WAY, file)
        finally:
            await keeper.discard(_ON_ITS_WAY)
        return replace(found, size=(await asyncio.to_thread(file.stat)).st_size)

    async def restore_file(self, uid: str, file: Path, version: str = "", *, foreign: bool = False) -> None:
        """See `SnapshotFiles.restore_file`.

        Args:
            uid: The uid of the control plane.
            file: The snapshot.
            version: As in `SnapshotStore.restore`.
            foreign: It may be of another control plane.
        """
        keeper = await self._keeper(uid)
        await keeper.send(file, _GIVEN)
        try:
            await self._restore(keeper, uid, _GIVEN, version, foreign=foreign)
        finally:
            # One that stays is replaced by the next one.
            with suppress(StoreError):
                await (self._workers.found(uid, KeeperRole.DATA, self._subject(version)) or keeper).discard(_GIVEN)

    async def _restore(self, keeper: SnapshotKeeper, uid: str, name: str, version: str, *, foreign: bool) -> None:
        # Most of what is wrong with a file shows before the process ends.
        try:
            found = await keeper.verify(name)
        except (InputError, StoreError) as error:
            if await self._running(uid) is None:
                raise
            raise UnusableSnapshot(str(error)) from error
        if version and versions.is_before(version, found.kubernetes):
            told = snapshots.too_late(found.kubernetes, version)
            raise InputError(told) if await self._running(uid) is None else UnusableSnapshot(told)
        await self._stop(uid)
        await (await self._worker(uid, version)).restore(name, foreign=foreign)

    async def _keeper(self, uid: str) -> SnapshotKeeper:
        """Return what has the volume of a control plane.

        Raises:
            StoreError: Nothing can have it now.
        """
        keeper = await self._running(uid)
        if keeper is not None:
            return keeper
        if (known := self._workers.found(uid, KeeperRole.DATA, "")) is not None:
            return known
        # One that is not ready has the volume, too.
        await self._stop(uid)
        return await self._worker(uid, "")

    async def _worker(self, uid: str, version: str) -> SnapshotKeeper:
        found = await self._set(uid)
        image = self._subject(version)
        return await self._workers.opened(uid, KeeperRole.DATA, image, lambda: jobs.of_data(uid, found, image), VOLUME)

    async def _set(self, uid: str) -> Json:
        """Return the StatefulSet of a control plane.

        Raises:
            InputError: It has none.
        """
        path = wire.path(objects.STATEFUL_SETS, PROCESS_NAMESPACE, objects.name(uid))
        try:
            found: Json = msgspec.json.decode(await self._client.request("GET", path))
        except NotFound as error:
            raise InputError("the control plane has not been started yet: it has no objects") from error
        return found

    def _subject(self, version: str) -> str:
        """Return the image of a Job: that which the control plane has, or that of a version."""
        return self._images.of(version) if version else ""


class _ClaimSnapshots:
    """Keeps snapshots in a claim that administrators have chosen; see `hosting.snapshots.SnapshotStore`."""

    def __init__(
        self, files: PodSnapshots, client: Client, workers: KeeperJobs, image: str, place: SnapshotPlace
    ) -> None:
        self._files = files
        self._client = client
        self._workers = workers
        self._image = image
        self._place = place

    async def check(self, uid: str) -> None:
        """See `SnapshotStore.check`."""
        await self._keeper(uid)

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotStore.take`."""
        # Before a whole database is read for nothing.
        await self.check(uid)
        async with self._files.scratch(uid) as file:
            made = await self._files.write(uid, file, upgrade)
            # The time between may have been long.
            await (await self._keeper(uid)).send(file, made.name)
        return made

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """See `SnapshotStore.kept`."""
        return await (await self._keeper(uid)).kept()

    async def discard(self, uid: str, name: str) -> None:
        """See `SnapshotStore.discard`."""
        await (await self._keeper(uid)).discard(snapshots.check_name(name))

    async def restore(self, uid: str, name: str, version: str = "") -> None:
        """See `SnapshotStore.restore`."""
        snapshots.check_name(name)
        async with self._files.scratch(uid) as file:
            await (await self._keeper(uid)).receive(name, file)
            await self._files.restore_file(uid, file, version, foreign=snapshots.is_given(name))

    async def _keeper(self, uid: str) -> SnapshotKeeper:
        told, claim = f'destination "{self._place.name}"', self._place.claim
        path = wire.path(objects.CLAIMS, PROCESS_NAMESPACE, claim)
        try:
            await self._client.request("GET", path)
        except NotFound as error:
            raise StoreError(
                f"{told}: its claim does not exist in namespace {PROCESS_NAMESPACE!r}: an administrator creates it"
            ) from error
        return await self._workers.opened(
            uid, KeeperRole.PLACE, claim, lambda: jobs.of_place(uid, self._image, claim), told
        )


def _told(found: SnapshotHeader, upgrade: str) -> KeptSnapshot:
    name = snapshots.name(found.time, found.revision, upgrade)
    return KeptSnapshot(name=name, time=found.time, revision=found.revision, size=0, upgrade=upgrade)

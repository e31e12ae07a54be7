"""Snapshots of hosted control planes in a bucket of an S3-compatible store.

    take     process ─► file of this machine ─► PREFIX/UID/NAME
    restore  PREFIX/UID/NAME ─► file of this machine, checked ─► process

The file of this machine is deleted afterwards. A key begins with the uid of its control plane, so that no name in a
request reaches the snapshots of another one; an object of another one under this uid is refused by its content.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from tenantry.api.errors import InputError, StoreError
from tenantry.hosting import snapshots
from tenantry.hosting.s3.bucket import BucketClient
from tenantry.hosting.snapshotplaces import S3Bucket
from tenantry.hosting.snapshots import KeptSnapshot, UnusableSnapshot

_UID = re.compile(r"[0-9a-f-]{1,64}")


class SnapshotFiles(Protocol):
    """Takes and restores snapshots as files of this machine."""

    def scratch(self, uid: str) -> AbstractAsyncContextManager[Path]:
        """Return the path of a private file of a control plane, which is deleted at the end."""
        ...

    async def write(self, uid: str, file: Path, upgrade: str = "") -> KeptSnapshot:
        """Write a snapshot to a file; see `SnapshotStore.take`.

        Raises:
            TenantryError: Why there is none.
        """
        ...

    async def restore_file(self, uid: str, file: Path, version: str = "") -> None:
        """Restore the snapshot of a file; see `SnapshotStore.restore`.

        Raises:
            TenantryError: Why it cannot be used, or restored.
        """
        ...


class BucketSnapshots:
    """Keeps snapshots in a bucket; see `hosting.snapshots.SnapshotStore`.

    Args:
        files: Takes and restores them.
        bucket: Where they are kept.
        name: The name of the destination, for messages.
    """

    def __init__(self, files: SnapshotFiles, bucket: S3Bucket, name: str) -> None:
        self._files = files
        self._prefix = f"{bucket.prefix}/" if bucket.prefix else ""
        self._client = BucketClient(bucket, name)

    async def check(self, uid: str) -> None:
        """See `SnapshotStore.check`."""
        await self._client.check(self._folder(uid))

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:
        """See `SnapshotStore.take`."""
        # Before a whole database is read for nothing.
        await self.check(uid)
        async with self._files.scratch(uid) as file:
            made = await self._files.write(uid, file, upgrade)
            await self._client.send(file, f"{self._folder(uid)}{made.name}")
        return made

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """See `SnapshotStore.kept`."""
        folder = self._folder(uid)
        listed = await self._client.listed(folder)
        found = [snapshots.read(each.key.removeprefix(folder), each.size) for each in listed]
        return snapshots.in_order(each for each in found if each is not None)

    async def discard(self, uid: str, name: str) -> None:
        """See `SnapshotStore.discard`."""
        await self._client.delete(f"{self._folder(uid)}{snapshots.check_name(name)}")

    async def restore(self, uid: str, name: str, version: str = "") -> None:
        """See `SnapshotStore.restore`."""
        key = f"{self._folder(uid)}{snapshots.check_name(name)}"
        async with self._files.scratch(uid) as file:
            try:
                await self._client.receive(key, file)
            except StoreError as error:
                raise UnusableSnapshot(str(error)) from error
            await self._files.restore_file(uid, file, version)

    def _folder(self, uid: str) -> str:
        if not _UID.fullmatch(uid):
            raise InputError(f"{uid!r} is not the uid of an object")
        return f"{self._prefix}{uid}/"

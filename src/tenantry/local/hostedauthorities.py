"""The authorities of the hosted control planes of this machine; see `hosting.authorities`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tenantry.hosting import authorities
from tenantry.hosting.stores import StoreKind
from tenantry.local import etcds, hostedfolders
from tenantry.local.files import explain, make_private_folder, write_private
from tenantry.local.paths import ClusterPaths

_FILES = (authorities.INDEX, *(each for pair in authorities.KINDS.values() for each in pair))


class LocalAuthorities:
    """Reads the authorities of control planes from their folders, and puts copies back.

    Args:
        paths: The cluster's.
    """

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths

    async def read(self, uid: str) -> dict[str, bytes]:
        """See `AuthorityFiles.read`."""
        return await asyncio.to_thread(self._read, uid)

    async def put_back(self, uid: str, files: Mapping[str, bytes], kind: StoreKind) -> None:  # noqa: ARG002 - another file has it
        """See `AuthorityFiles.put_back`."""
        await asyncio.to_thread(self._put_back, uid, files)

    def _read(self, uid: str) -> dict[str, bytes]:
        found = authorities.of(_contents(ClusterPaths(hostedfolders.of(self._paths, uid)).pki, _FILES))
        if not found:
            return {}
        etcd = etcds.folder(self._paths, uid, is_shared=False) / "pki"
        return found | _contents(etcd, (f"{authorities.ETCD}.crt", f"{authorities.ETCD}.key"))

    def _put_back(self, uid: str, files: Mapping[str, bytes]) -> None:
        folder = ClusterPaths(hostedfolders.of(self._paths, uid)).pki
        if authorities.of(_contents(folder, _FILES)):
            return
        make_private_folder(folder)
        # The record is the last: without it, the next start issues others.
        for name in sorted(files, key=lambda each: each == authorities.INDEX):
            if name in _FILES:
                write_private(folder / name, files[name])


def _contents(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in names:
        try:
            with suppress(FileNotFoundError):
                found[name] = (folder / name).read_bytes()
        except OSError as error:
            raise explain(error, folder / name) from error
    return found

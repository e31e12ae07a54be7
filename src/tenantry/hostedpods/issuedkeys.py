"""Certificates of what control planes in Pods share, of which all keys are in one Secret that only the operator reads.

kept ─► Secret NAME: all keys ─► a folder of this process: issued, renewed ─► Secret NAME
kept_up ─► again each day, which renews them in time
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from tenantry.api.errors import AlreadyExists, Conflict, TenantryError
from tenantry.api.model import Json
from tenantry.hostedpods import keys, objects
from tenantry.hosting.certificates import LeafCertificate
from tenantry.kube.client import Client
from tenantry.local import pki
from tenantry.local.files import make_private_folder, write_private

_LOOK_SECONDS = 24 * 3600.0
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 1.0, 300.0
_TRIES = 5

_LOG = logging.getLogger(__name__)


class IssuedKeys:
    """The keys of one program that control planes share.

    Args:
        client: The operator's, of the cluster.
        folder: A private folder of this process.
        name: Of the Secret with all keys.
        labels: Of this Secret.
    """

    def __init__(self, client: Client, folder: Path, name: str, labels: Mapping[str, str]) -> None:
        self._client = client
        self._folder = folder
        self._name = name
        self._labels = labels

    async def kept(self, wanted: Mapping[str, LeafCertificate], gone: Collection[str] = ()) -> dict[str, bytes]:
        """Issue the certificates that are missing or due, and return all files of the Secret.

        Args:
            wanted: By the names of their files; see `pki.ensure`.
            gone: The names of those to be deleted.

        Raises:
            ApiError: The Secret cannot be read or written.
        """
        tries = 0
        while True:
            found = await keys.find(self._client, self._name)
            try:
                return await keys.keep(
                    self._client,
                    found,
                    lambda files: self.secret(self._name, files),
                    lambda known: self._issue(known, wanted, gone),
                )
            except (AlreadyExists, Conflict):
                # Another replica was first: what it has written holds.
                tries += 1
                if tries == _TRIES:
                    raise

    def secret(self, name: str, files: Mapping[str, bytes]) -> Json:
        """Return a Secret with the labels of the program."""
        return objects.opaque(name, dict(self._labels), files)

    def _issue(
        self, known: Mapping[str, bytes], wanted: Mapping[str, LeafCertificate], gone: Collection[str]
    ) -> dict[str, bytes]:
        """Bring the folder to what it should be, and return its files."""
        at = self._folder
        lay(at, known)
        pki.ensure(at, wanted, dt.datetime.now(dt.UTC))
        for name in gone:
            for kind in ("crt", "key"):
                (at / f"{name}.{kind}").unlink(missing_ok=True)
        return {each.name: each.read_bytes() for each in at.iterdir() if each.is_file()}


def lay(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a private folder that has these files and no others."""
    make_private_folder(folder)
    for each in folder.iterdir():
        if each.name not in files:
            each.unlink()
    for name, content in files.items():
        write_private(folder / name, content)


async def kept_up(prepare: Callable[[], Awaitable[object]], called: str) -> None:
    """Have certificates issued, and renewed in time, until cancelled.

    Args:
        prepare: Issues those that are due.
        called: What the log calls their program.
    """
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            await prepare()
            pause = _FIRST_PAUSE_SECONDS
            await asyncio.sleep(_LOOK_SECONDS)
        except TenantryError as error:
            _LOG.warning("a program has no certificates", extra={"program": called, "error": str(error)})
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)

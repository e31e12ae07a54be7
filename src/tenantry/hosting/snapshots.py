"""The snapshots of hosted control planes: their names, and what keeps them. Pure.

A snapshot has all keys of one datastore at one revision. It is named for its time and its revision. The snapshots of a
control plane are in a place that only its operator and its administrators reach, by its uid: a name in a request is
never a path.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Protocol

import msgspec

from tenantry.api.errors import InputError

_KEPT = re.compile(r"(\d{8}T\d{6}Z)-(\d{1,19})\.snapshot")
_GIVEN = re.compile(r"given-[0-9a-f]{8,32}\.snapshot")
_STAMP = "%Y%m%dT%H%M%SZ"


class KeptSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a control plane.

    Args:
        name: Its name in its place.
        time: When it was taken.
        revision: Of the datastore.
        size: In bytes.
    """

    name: str
    time: dt.datetime
    revision: int
    size: int


class SnapshotStore(Protocol):
    """Takes and keeps snapshots of hosted control planes."""

    async def take(self, uid: str) -> KeptSnapshot:
        """Take a snapshot, also while the process runs.

        Raises:
            TenantryError: Why there is none.
        """
        ...

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """Return the snapshots of a control plane, the oldest first."""
        ...

    async def discard(self, uid: str, name: str) -> None:
        """Delete a snapshot; one that is gone needs nothing."""
        ...

    async def restore(self, uid: str, name: str) -> None:
        """Replace all objects by those of a snapshot; the process does not run afterwards.

        A snapshot that cannot be used changes nothing, and the process runs on.

        Raises:
            TenantryError: Why it cannot be used, or restored.
        """
        ...


def name(time: dt.datetime, revision: int) -> str:
    """Return the name of a snapshot that was taken.

    Args:
        time: When it was taken, in UTC.
        revision: Of the datastore.
    """
    return f"{time.strftime(_STAMP)}-{revision}.snapshot"


def read(text: str, size: int) -> KeptSnapshot | None:
    """Return what a file is by its name; None if it is not a snapshot that was taken of this control plane.

    Args:
        text: The name.
        size: In bytes.
    """
    found = _KEPT.fullmatch(text)
    if found is None:
        return None
    try:
        time = dt.datetime.strptime(found[1], _STAMP).replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    return KeptSnapshot(name=text, time=time, revision=int(found[2]), size=size)


def is_given(text: str) -> bool:
    """Return whether a snapshot was put there by an administrator; it may be of another control plane."""
    return _GIVEN.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return the name if it is that of a snapshot.

    Raises:
        InputError: It is not.
    """
    if _KEPT.fullmatch(text) is None and not is_given(text):
        raise InputError(f"{text!r} is not the name of a snapshot: status.snapshots lists those that there are")
    return text

"""The snapshots of hosted control planes: their names, and what keeps them. Pure.

A snapshot has all keys of one datastore at one revision. It is named for its time and its revision. The snapshots of a
control plane are in a place that only its operator and its administrators reach, by its uid: a name in a request is
never a path.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from tenantry.api.errors import InputError

_KEPT = re.compile(r"(\d{8}T\d{6}Z)-(\d{1,19})(?:-before-(\d{1,3}\.\d{1,4}\.\d{1,4}))?\.snapshot")
_GIVEN = re.compile(r"given-[0-9a-f]{8,32}\.snapshot")
_STAMP = "%Y%m%dT%H%M%SZ"

_LATER = "or a later version"
"""In the message about a snapshot of a later version of Kubernetes, which `hosted` writes, too."""

KEPT_UPGRADES = 2
"""How many snapshots of upgrades are kept: that of the last one, and that of the one before."""


class KeptSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a control plane.

    Args:
        name: Its name in its place.
        time: When it was taken.
        revision: Of the datastore.
        size: In bytes.
        upgrade: The version of Kubernetes before whose first start it was taken; "" for another one.
    """

    name: str
    time: dt.datetime
    revision: int
    size: int
    upgrade: str = ""


class SnapshotHeader(msgspec.Struct, frozen=True):
    """What `hosted` reports about a snapshot.

    Args:
        revision: Of the datastore.
        time: When it was taken.
        kubernetes: The version of Kubernetes that has written it, as in "v1.36.3".
        uid: That of the control plane that it was taken of; "" if it is not known.
    """

    revision: Annotated[int, msgspec.Meta(ge=0)]
    time: dt.datetime
    kubernetes: Annotated[str, msgspec.Meta(max_length=32)] = ""
    uid: Annotated[str, msgspec.Meta(max_length=64)] = ""


class NoSnapshotPlace(InputError):
    """A control plane has no place for snapshots, until its owner chooses a destination."""


class UnusableSnapshot(InputError):
    """A snapshot cannot be restored: nothing was changed, and a process that ran before runs on."""


class SnapshotStore(Protocol):
    """Takes and keeps snapshots of hosted control planes."""

    async def check(self, uid: str) -> None:
        """Check that a snapshot could be kept now, without a look at the datastore.

        Args:
            uid: The uid of the control plane.

        Raises:
            NoSnapshotPlace: Control planes of this datastore have no place of their own for snapshots.
            TenantryError: Why the place cannot have it.
        """
        ...

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:
        """Take a snapshot, also while the process runs.

        Args:
            uid: The uid of the control plane.
            upgrade: As in `KeptSnapshot`.

        Raises:
            TenantryError: Why there is none.
        """
        ...

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:
        """Return the snapshots of a control plane, the oldest first.

        Raises:
            TenantryError: Why they cannot be listed.
        """
        ...

    async def discard(self, uid: str, name: str) -> None:
        """Delete a snapshot; one that is gone needs nothing."""
        ...

    async def restore(self, uid: str, name: str, version: str = "") -> None:
        """Replace all objects by those of a snapshot; the process does not run afterwards.

        A snapshot that cannot be used changes nothing, and the process runs on.

        Args:
            uid: The uid of the control plane.
            name: The name of the snapshot.
            version: The minor version of Kubernetes that the control plane has afterwards; "" if it stays.

        Raises:
            UnusableSnapshot: Why it cannot be used.
            TenantryError: Why it was not restored; the process may have ended.
        """
        ...


def name(time: dt.datetime, revision: int, upgrade: str = "") -> str:
    """Return the name of a snapshot that was taken.

    Args:
        time: When it was taken, in UTC.
        revision: Of the datastore.
        upgrade: As in `KeptSnapshot`.
    """
    before = f"-before-{upgrade}" if upgrade else ""
    return f"{time.strftime(_STAMP)}-{revision}{before}.snapshot"


def keys_of(file: Path) -> Path:
    """Return the file with the keys of a copy of a snapshot, which another control plane needs."""
    return file.with_name(f"{file.name}.keys")


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
    return KeptSnapshot(name=text, time=time, revision=int(found[2]), size=size, upgrade=found[3] or "")


def in_order(found: Iterable[KeptSnapshot]) -> tuple[KeptSnapshot, ...]:
    """Return snapshots, the oldest first."""
    return tuple(sorted(found, key=lambda each: (each.time, each.revision)))


def listed(files: Iterable[tuple[str, int]]) -> tuple[KeptSnapshot, ...]:
    """Return those files that are snapshots of a control plane, the oldest first.

    Args:
        files: Their names and sizes in bytes.
    """
    return in_order(each for name, size in files if (each := read(name, size)) is not None)


def too_late(theirs: str, ours: str) -> str:
    """Return why a program cannot use a snapshot of a later version of Kubernetes.

    Args:
        theirs: The version of the snapshot, as in "v1.36.3".
        ours: The version of the program.
    """
    return (
        f"the snapshot is of Kubernetes {theirs}, and {ours} does not read its objects: restore it into a control plane"
        f" of {theirs} {_LATER}"
    )


def failure(text: str, known: Iterable[str]) -> str:
    """Return why a command of `hosted` failed.

    Args:
        text: What it wrote to its standard error.
        known: The versions of Kubernetes that control planes can have here.
    """
    last = (text.strip().splitlines() or [""])[-1].removeprefix("hosted: ")
    return f"{last}; versions here are {', '.join(known)}" if _LATER in last else last


def superfluous(kept: Sequence[KeptSnapshot], keep: int) -> list[str]:
    """Return the names of the snapshots that are deleted.

    Those of upgrades are not counted; all but the last `KEPT_UPGRADES` of them are deleted, too: an owner who goes to
    and fro must not fill the disk.

    Args:
        kept: Those that there are, the oldest first.
        keep: How many others stay.
    """
    plain = [each.name for each in kept if not each.upgrade]
    upgrades = [each.name for each in kept if each.upgrade]
    return plain[: max(len(plain) - keep, 0)] + upgrades[:-KEPT_UPGRADES]


def is_given(text: str) -> bool:
    """Return whether a snapshot was put there by an administrator; it may be of another control plane."""
    return _GIVEN.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return whether a text is the name of a snapshot, whether there is one or not."""
    return _KEPT.fullmatch(text) is not None or is_given(text)


def check_name(text: str) -> str:
    """Return the name if it is that of a snapshot.

    Raises:
        InputError: It is not.
    """
    if not is_name(text):
        raise InputError(f"{text!r} is not the name of a snapshot: status.snapshots lists those that there are")
    return text

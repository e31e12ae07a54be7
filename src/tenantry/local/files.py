"""Files that only their owner can read, written atomically."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tenantry.api.errors import LocalError

FULL_MIB = 64
"""Below this, a disk is full: etcd reserves this much for each file of its write-ahead log, and ends if it cannot."""


def write_private(path: Path, data: bytes) -> None:
    """Write a file with mode 0600, atomically: a reader sees the old or the new text.

    Raises:
        LocalError: The folder cannot be written or the disk is full.
    """
    try:
        with private_file(path) as file:
            file.write(data)
    except OSError as error:
        raise explain(error, path) from error


@contextmanager
def private_file(path: Path, *, replaces: bool = True) -> Generator[IO[bytes]]:
    """Open a file with mode 0600 for writing, which has its name when the block ends, and is removed if it fails.

    Args:
        path: The name.
        replaces: Replace an existing file; otherwise, that one stays unchanged.

    Raises:
        FileExistsError: There is such a file, and it may not be replaced.
        OSError: The folder cannot be written or the disk is full; see `explain`.
    """
    # In the same folder: rename(2) is atomic only within a file system.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if not replaces:
            # Reserves the name. link(2) would do both in one step, but some file systems have no hard links.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_private_folder(path: Path) -> None:
    """Create a folder with mode 0700, and its parents with the modes of the umask.

    Raises:
        LocalError: It cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise explain(error, path) from error


def explain(error: OSError, path: Path) -> LocalError:
    """Return an error that says what to do about an operating system error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LocalError(f'the disk of "{path}" is full: free some space, or keep the cluster elsewhere with --data')
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return LocalError(
            f'"{path}" cannot be written ({error.strerror}): change its permissions, or choose another place with '
            "--data or TENANTRY_HOME"
        )
    return LocalError(f'"{path}": {error.strerror}')


def check_space(folder: Path, needed_mib: int) -> None:
    """Check that a folder is writable and its disk has room.

    Raises:
        LocalError: It is not writable, or the disk has too little room.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # A quota or a read-only mount shows only when data is written.
            file.write(b"\0" * 65536)
        free_mib = _free_mib(folder)
    except OSError as error:
        raise explain(error, folder) from error
    if free_mib < needed_mib:
        raise LocalError(
            f'the disk of "{folder}" has {free_mib} MiB free and {needed_mib} MiB are needed: free some space, or '
            "keep the cluster elsewhere with --data"
        )


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder has no room for the next file of etcd's write-ahead log.

    A disk that cannot be read is not full: another error explains that one better.
    """
    try:
        return _free_mib(folder) < FULL_MIB
    except OSError:
        return False


def _free_mib(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize // 2**20


def tail(path: Path, lines: int, *, limit_bytes: int = 65536) -> list[str]:
    """Return the last lines of a text file, [] if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit_bytes))
            text = file.read()
    except OSError:
        return []
    return text.decode(errors="replace").splitlines()[-lines:] if lines else []

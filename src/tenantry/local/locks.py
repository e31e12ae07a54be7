"""Locks between processes that the kernel drops when the holder dies, however it dies.

They are open-file-description locks (fcntl(2), F_OFD_*): unlike flock they can be asked about without being taken,
so that a `status` never makes an `up` fail, and unlike plain POSIX locks they survive the closing of another
descriptor and a fork.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tenantry.api.errors import LocalError
from tenantry.local.files import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

# struct flock on 64-bit Linux: type, whence, start, length, pid (which must be 0 for F_OFD_*), padding.
_FLOCK = "hhqqi4x"
_BUSY = (errno.EAGAIN, errno.EACCES)


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


class FileLock:
    """One exclusive lock on a file, created with mode 0600 if it is missing.

    Args:
        path: The lock file; it stays behind, empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """Return the descriptor that holds the lock; a process that inherits it holds the lock as well."""
        if self._descriptor is None:
            raise LocalError(f'the lock "{self.path}" is not held')
        return self._descriptor

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        return self._lock(fcntl.F_OFD_SETLK)

    def acquire(self) -> None:
        """Take the lock, and block until it is free."""
        self._lock(fcntl.F_OFD_SETLKW)

    async def acquire_async(self, timeout_seconds: float) -> None:
        """Take the lock without stopping the event loop.

        Raises:
            TimeoutError: It was not free within this time.
        """
        pause = 0.005
        async with asyncio.timeout(timeout_seconds):
            # The kernel announces a released lock only to a blocked thread, and such a thread could
            # not be cancelled at the deadline.
            while not self.try_acquire():
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.1)

    def release(self) -> None:
        """Release the lock (unless another process inherited it)."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self, command: int) -> bool:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise explain(error, self.path) from error
        try:
            fcntl.fcntl(descriptor, command, _request(fcntl.F_WRLCK))
        except OSError as error:
            os.close(descriptor)
            if error.errno in _BUSY:
                return False
            raise LocalError(f'cannot lock "{self.path}": {error.strerror}') from error
        self._descriptor = descriptor
        return True


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock, without touching it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
    finally:
        os.close(descriptor)
    kind = int(struct.unpack(_FLOCK, answer)[0])
    return kind != fcntl.F_UNLCK


@contextmanager
def holding(path: Path, on_wait: Callable[[], None] | None = None) -> Generator[None]:
    """Hold the lock for the length of a `with` block.

    Args:
        path: The lock file.
        on_wait: Called once before waiting, if the lock is not free.
    """
    lock = FileLock(path)
    if not lock.try_acquire():
        if on_wait:
            on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()

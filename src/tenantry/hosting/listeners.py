"""Unix sockets on which this process serves a hosted API server, and which the next leader takes over."""

from __future__ import annotations

import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tenantry.engine.sockets import short_path


@contextmanager
def listener(path: Path) -> Generator[socket.socket]:
    """Bind a socket that only this user can connect to, and remove it at the end.

    It replaces the one of an earlier process, and a later process may replace it in turn: that one stays.

    Raises:
        OSError: The socket cannot be made, or a file that is no socket has its name.
    """
    bound = _bound(path)
    try:
        inode = path.stat().st_ino
        try:
            yield bound
        finally:
            with suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    path.unlink()
    finally:
        bound.close()


def _bound(path: Path) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with short_path(path) as address:
            made.bind(address)
        # Between bind and listen no connection succeeds, so that the mode is in force before the first.
        path.chmod(0o600)
    except BaseException:
        made.close()
        raise
    return made

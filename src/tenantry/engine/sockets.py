"""Unix sockets in folders of any length."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_path(path: Path) -> Generator[str]:
    """Give a socket an address that fits: the kernel accepts 107 bytes, and folders of tests are longer."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)

"""Files of snapshots on their way to a place and back: their checksums, and their modes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO


def measured(file: Path) -> tuple[int, str]:
    """Return the size of a file in bytes, and its SHA-256 in hexadecimal digits."""
    with file.open("rb") as found:
        digest = hashlib.file_digest(found, "sha256").hexdigest()
        return found.tell(), digest


def new_private(file: Path) -> IO[bytes]:
    """Open a new file with mode 0600: a snapshot has all Secrets."""
    file.unlink(missing_ok=True)
    file.touch(mode=0o600, exist_ok=False)
    return file.open("wb")

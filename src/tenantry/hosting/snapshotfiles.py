"""Files of snapshots on their way to a place and back: their checksums, and their modes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from typing import IO

from tenantry.api.errors import StoreError

MOST_BYTES = 5 * 2**30
"""Larger objects need an upload in parts. Source: Amazon S3 User Guide, "Uploading objects"."""

PIECE_BYTES = 2**20


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


async def received(pieces: AsyncIterable[bytes], file: Path, too_large: Callable[[], StoreError]) -> str:
    """Write pieces to a new file; return the SHA-256 of all in hexadecimal digits.

    Args:
        pieces: What arrives; no more than one is in memory.
        file: The file, which is not to be used if this fails.
        too_large: Returns the error of more than `MOST_BYTES`: a sender may never end.

    Raises:
        StoreError: There are too many bytes.
        OSError: The file cannot be written.
    """
    found, size = hashlib.sha256(), 0
    with await asyncio.to_thread(new_private, file) as written:
        async for piece in pieces:
            size += len(piece)
            if size > MOST_BYTES:
                raise too_large()
            await asyncio.to_thread(written.write, piece)
            found.update(piece)
    return found.hexdigest()

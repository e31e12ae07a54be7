"""Files of snapshots that arrive in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tenantry.api.errors import StoreError
from tenantry.hosting import snapshotfiles


async def sent(*pieces: bytes) -> AsyncGenerator[bytes]:
    """Send pieces."""
    for each in pieces:
        yield each


def too_large() -> StoreError:
    """Return the error of a test."""
    return StoreError("too large")


async def test_a_file_that_arrives_is_private_and_measured(tmp_path: Path) -> None:
    """H02: a snapshot has all Secrets."""
    file = tmp_path / "file"
    digest = await snapshotfiles.received(sent(b"one", b"two"), file, too_large)
    assert digest == hashlib.sha256(b"onetwo").hexdigest()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"onetwo", 0o600)


async def test_a_sender_that_does_not_end_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H02: a process that users have taken over may send for ever."""
    monkeypatch.setattr(snapshotfiles, "MOST_BYTES", 5)
    file = tmp_path / "file"
    with pytest.raises(StoreError, match="too large"):
        await snapshotfiles.received(sent(b"one", b"two", b"three"), file, too_large)
    assert file.read_bytes() == b"one"

"""The images of a node before a slice got it, kept on its disk so that they outlive the agent."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The images of a node when it was set aside.

    Args:
        slice: For which slice.
        images: From a name to a digest; {} if the tenant may have used the node before they were listed.
    """

    slice: str
    images: dict[str, str]


class BaselineFile:
    """The file with the recorded images.

    Args:
        path: The file; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Baseline | None:
        """Return the recorded images; None if there is no file that can be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Baseline)
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, baseline: Baseline) -> None:
        """Write the file as a whole or not at all.

        Raises:
            OSError: The disk is full or read-only.
        """
        unfinished = self._path.with_name(f".{self._path.name}")
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(baseline))
            file.flush()
            os.fsync(file.fileno())
        # After a power loss, the file has the old or the new text.
        unfinished.replace(self._path)

    def drop(self) -> None:
        """Delete the file, if there is one."""
        self._path.unlink(missing_ok=True)

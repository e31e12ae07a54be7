"""What images a node had before a slice got it, kept on its disk so that it outlives the agent."""

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
    """The file of it.

    Args:
        path: Of the file; its folder is there.
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
        """Keep it, whole or not at all.

        Raises:
            OSError: The disk does not take it.
        """
        unfinished = self._path.with_name(f".{self._path.name}")
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(baseline))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path)

    def drop(self) -> None:
        """Keep nothing any more."""
        self._path.unlink(missing_ok=True)

"""Progress of long work: a live line on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing import TextIO


class Progress(Protocol):
    """Receives what long work is doing."""

    def update(self, text: str) -> None:
        """Show what is being done now, in place of the text before."""
        ...

    def say(self, text: str) -> None:
        """Print a line that stays."""
        ...


class SilentProgress:
    """Discards all progress."""

    def update(self, text: str) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""


class StreamProgress:
    """Progress on a stream (stderr by default).

    Args:
        stream: The stream to write to.
        every_seconds: The time between two lines if the stream is not a terminal.
        quiet_seconds: The time before the first line.
    """

    def __init__(
        self, stream: TextIO | None = None, *, every_seconds: float = 10.0, quiet_seconds: float = 1.0
    ) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._every = every_seconds
        self._started = time.monotonic()
        # The first line is due after the quiet time; the next ones at their pace.
        self._last = self._started + quiet_seconds - (0.1 if self._live else every_seconds)
        self._shown = False

    def update(self, text: str) -> None:
        """Show what is being done now, with the seconds since the start."""
        now = time.monotonic()
        if now - self._last < (0.1 if self._live else self._every):
            return
        self._last = now
        line = f"{text} ({now - self._started:.0f} s)"
        if self._live:
            self._stream.write(f"\r\x1b[K{line[:140]}")
            self._shown = True
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.clear()
        self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the live line."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

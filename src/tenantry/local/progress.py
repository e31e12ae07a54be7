"""Progress of long work: a live line on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.live import Live


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
    """Progress on stderr, until the end of a `with` block.

    A terminal has one live line, drawn by rich. Anything else gets a line every few seconds.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._every = 0.1 if self._is_terminal else 10.0
        self._started = time.monotonic()
        # Work that takes less than this shows no progress at all.
        self._due = self._started + 1.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the live line, and show the cursor again."""
        self._clear()

    def update(self, text: str) -> None:
        """Show what is being done now, with the seconds since the start."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self._every
        line = f"{text} ({now - self._started:.0f} s)"
        if self._is_terminal:
            self._draw(line)
        else:
            self.say(line)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._clear()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def _draw(self, line: str) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            # Without auto_refresh, which needs a thread: the supervisor is forked from this process.
            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def _clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

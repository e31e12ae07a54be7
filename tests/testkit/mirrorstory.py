"""Stories of mirrors: two worlds, deeds of their users, and operators that crash between any two writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tenantry.api.errors import AlreadyExists, NotFound
from tenantry.engine.runtime import Controller
from testkit.model import World
from testkit.worldclient import Crash
from testkit.worldcluster import WorldCluster

D = TypeVar("D")


class MirrorStory(ABC):
    """An upper and a lower world with mirrors between them.

    Args:
        faults: What happens to the writes of operators, the first one first; see `runs.FAULTS`.
    """

    def __init__(self, faults: Sequence[str] = ()) -> None:
        self.upper, self.lower = World(), World()
        self.faults = list(faults)
        self.above: WorldCluster
        self.watched: tuple[WorldCluster, ...] = ()

    def fault(self) -> str:
        """Return what happens to the next write."""
        return self.faults.pop(0) if self.faults else "none"

    @abstractmethod
    def restart(self) -> None:
        """Start another operator: set `above` and `watched`, and `add` the mirrors."""

    def add(self, mirror: Controller) -> None:
        """Run a mirror."""
        self.above.lane.controllers[mirror.name] = mirror
        for watch in mirror.watches():
            (watch.cluster or self.above).listen(self.above.lane.listener(mirror.name, watch))

    def settle(self, seconds: float = 0.0) -> None:
        """Let operators work until one comes to rest; each crash ends one, and the next takes over."""
        while True:
            try:
                # Twice: what a mirror has written below comes up.
                for _ in range(2):
                    for each in self.watched:
                        each.look()
                    self.above.settle(seconds)
            except Crash:
                self.restart()
            else:
                return

    def play(self, story: Iterable[D], do: Callable[[D], None]) -> None:
        """Do the deeds of a story; one that meets an object which is, or is not, there is left out."""
        for deed in story:
            try:
                do(deed)
            except (NotFound, AlreadyExists):
                continue

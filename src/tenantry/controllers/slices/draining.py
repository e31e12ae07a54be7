"""What a process remembers between two reconciles about pods that have to leave nodes.

Since when pods have to leave stands in the Slice's status too. Without a Slice, and after a restart, the grace period
begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tenantry.controllers.slices.decision import SliceDecision
from tenantry.controllers.slices.gather import SliceInputs

SETTLE_SECONDS = 0.5
"""How long a scheduler may take to see that a node is closed to pods."""


class DrainState:
    """Closed nodes, grace periods, and the nodes on which the end of a pod wakes a slice."""

    def __init__(self) -> None:
        # Slice to when nodes of it were closed, by the monotonic clock.
        self._closed_at: dict[str, float] = {}
        # Slice to since when pods have to leave its nodes, and the nodes that it goes on without.
        self._leaving: dict[str, tuple[str, str]] = {}
        # Node to the slice whose next stage begins when pods have left the node.
        self._watched: dict[str, str] = {}

    def closed(self, name: str, monotonic: float) -> None:
        """Note that nodes of a slice have been closed just now."""
        self._closed_at[name] = monotonic

    def known(self, inputs: SliceInputs, monotonic: float) -> SliceInputs:
        """Return the inputs with the memory of their slice."""
        said = inputs.slice.status.leaving_since if inputs.slice is not None else ""
        leaving_since, parted_since = self._leaving.get(inputs.name, ("", ""))
        return replace(
            inputs,
            settles=self._closed_at.get(inputs.name, float("-inf")) + SETTLE_SECONDS - monotonic,
            # The status survives a restart; this memory serves slices whose Slice object is gone.
            leaving_since=said or leaving_since,
            parted_since=parted_since,
        )

    def note(self, name: str, decision: SliceDecision) -> None:
        """Remember what was decided for a slice."""
        leaving_since = decision.progress.leaving_since if decision.progress is not None else ""
        self._leaving[name] = leaving_since, decision.parted_since
        self._watch(name, decision.watched)

    def waiting_for(self, node: str) -> str:
        """Return the slice that waits for pods of a node to end; "" for none."""
        return self._watched.get(node, "")

    def forget(self, name: str) -> None:
        """Forget a slice."""
        self._closed_at.pop(name, None)
        self._leaving.pop(name, None)
        self._watch(name, ())

    def _watch(self, name: str, nodes: Iterable[str]) -> None:
        for node in [node for node, owner in self._watched.items() if owner == name]:
            del self._watched[node]
        self._watched |= dict.fromkeys(nodes, name)

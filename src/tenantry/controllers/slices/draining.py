"""What a process remembers between two reconciles about pods that have to leave nodes.

Since when pods have to leave stands in the Slice's status too. Without a Slice, and after a restart, the grace period
begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tenantry.api.marks import SLICE
from tenantry.controllers.slices import contributed
from tenantry.controllers.slices.decision import SliceDecision
from tenantry.controllers.slices.gather import SliceInputs
from tenantry.controllers.slices.pods import BY_NAMESPACE, PodFacts
from tenantry.engine.cache import Cache

SETTLE_SECONDS = 0.5
"""How long a scheduler may take to see that a node is closed to pods."""


class DrainState:
    """Closed nodes, grace periods, and the nodes on which the end of a pod wakes a slice."""

    def __init__(self) -> None:
        # Slice to when nodes of it were closed, by the monotonic clock.
        self._closed_at: dict[str, float] = {}
        # Slice to since when pods have to leave its nodes, and the nodes that it goes on without.
        self._leaving: dict[str, tuple[str, str]] = {}
        # Slice to since when all pods of a namespace run there, by the uid of the namespace and the monotonic clock.
        self._exclusive: dict[str, dict[str, float]] = {}
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

    def among(self, inputs: SliceInputs, there: Cache[PodFacts], monotonic: float) -> SliceInputs:
        """Return the inputs with the users whose pods all run on the slice; read if contributed nodes add something.

        A namespace counts after a while only: until the API server knows its label, its new pods run elsewhere.
        """
        if not any(contributed.is_brought(inputs, node) for node in inputs.nodes):
            self._exclusive.pop(inputs.name, None)
            return inputs
        labelled = [each for each in inputs.users if each.labels.get(SLICE) == inputs.name]
        held = contributed.holder_uid(inputs)
        elsewhere: list[str] = []
        before, since = self._exclusive.get(inputs.name, {}), dict[str, float]()
        for each in labelled:
            pods = there.by_index(BY_NAMESPACE, each.name)
            others = [pod.key for pod in pods if pod.slice != inputs.name and not pod.finished]
            elsewhere += others
            if not others:
                # One that has the capacity was checked before a restart.
                since[each.uid] = before.get(each.uid, monotonic) if each.uid != held else float("-inf")
        self._exclusive[inputs.name] = since
        left = {uid: at + SETTLE_SECONDS - monotonic for uid, at in since.items()}
        return replace(
            inputs,
            elsewhere=tuple(sorted(elsewhere)),
            exclusive=frozenset(uid for uid, seconds in left.items() if seconds <= 0),
            exclusive_in=min((seconds for seconds in left.values() if seconds > 0), default=0.0),
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
        self._exclusive.pop(name, None)
        self._watch(name, ())

    def _watch(self, name: str, nodes: Iterable[str]) -> None:
        for node in [node for node, owner in self._watched.items() if owner == name]:
            del self._watched[node]
        self._watched |= dict.fromkeys(nodes, name)

"""Which slices wait for nodes, and in which order they are served."""

from __future__ import annotations

from collections.abc import Iterator

from tenantry.controllers.slices.gather import SliceInputs


class ClaimQueue:
    """Slices that wait for nodes: who has claimed first is first."""

    def __init__(self) -> None:
        # Slice to when it was claimed, RFC 3339.
        self._since: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        """Return their names as they are now, those of the oldest claims first."""
        return iter(sorted(self._since, key=lambda name: (self._since[name], name)))

    def add(self, inputs: SliceInputs) -> None:
        """Have a slice wait."""
        self._since[inputs.name] = inputs.claim.metadata.creation_timestamp if inputs.claim is not None else ""

    def discard(self, name: str) -> None:
        """Have a slice wait no more."""
        self._since.pop(name, None)

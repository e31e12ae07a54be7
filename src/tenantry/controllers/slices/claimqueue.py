"""Which slices wait for nodes, and in which order they are served."""

from __future__ import annotations

from collections.abc import Iterator

from tenantry.controllers.slices.gather import SliceInputs


class ClaimQueue:
    """Slices that wait for nodes, the oldest claims first."""

    def __init__(self) -> None:
        # Slice to the creation timestamp of its claim.
        self._since: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        """Return their names as they are now, those of the oldest claims first."""
        return iter(sorted(self._since, key=lambda name: (self._since[name], name)))

    def note(self, inputs: SliceInputs, *, waits: bool | None) -> None:
        """Add a slice that waits, or take it out; None leaves it as it is."""
        if waits:
            self._since[inputs.name] = inputs.claim.metadata.creation_timestamp if inputs.claim is not None else ""
        elif waits is not None:
            self.discard(inputs.name)

    def discard(self, name: str) -> None:
        """Take a slice out."""
        self._since.pop(name, None)

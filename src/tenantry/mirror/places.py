"""Which lower namespace an upper one has, if each has one of its own: pure.

upper  shop   ◄─►  lower  shop-4f1d…
upper  stock  ◄─►  lower  stock-93fe…
upper  kube-system         none: nothing of it is mirrored
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


class NamespacePairs:
    """A one-to-one map between upper and lower namespaces, which changes while the mirror runs.

    Args:
        mapping: As for `set`.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self._lower: dict[str, str] = {}
        self._upper: dict[str, str] = {}
        self._closed: frozenset[str] = frozenset()
        self.set(mapping or {})

    def lower(self, upper: str) -> str:
        """Return the lower namespace of an upper one; "" if it has none."""
        return self._lower.get(upper, "")

    def upper(self, lower: str) -> str:
        """Return the upper namespace of a lower one; "" if it has none."""
        return self._upper.get(lower, "")

    @property
    def lowers(self) -> frozenset[str]:
        """Return all lower namespaces."""
        return frozenset(self._upper)

    @property
    def uppers(self) -> frozenset[str]:
        """Return all upper namespaces that have a lower one."""
        return frozenset(self._lower)

    def is_open(self, upper: str) -> bool:
        """Return whether new objects of an upper namespace are sent to its lower one."""
        return upper in self._lower and upper not in self._closed

    def set(self, mapping: Mapping[str, str], closed: Collection[str] = ()) -> frozenset[str]:
        """Replace the map; return the upper namespaces of which the lower one is another, or none, now.

        The mirror must look at these again: see `PodMirror.look_again`.

        Args:
            mapping: From upper to lower namespaces.
            closed: Upper namespaces of which no new pods are sent; those that were sent are followed.

        Raises:
            ValueError: Two upper namespaces have the same lower one, or a name is empty.
        """
        backwards = {lower: upper for upper, lower in mapping.items()}
        if len(backwards) < len(mapping) or "" in mapping or "" in backwards:
            raise ValueError(f"each upper namespace needs a lower one of its own, and no name is empty: {mapping}")
        before, self._lower, self._upper = self._lower, dict(mapping), backwards
        were_closed, self._closed = self._closed, frozenset(closed)
        every = before.keys() | self._lower.keys()
        moved = frozenset(name for name in every if before.get(name) != self._lower.get(name))
        return moved | (were_closed ^ self._closed)

"""What an import leaves out, changes, or needs a decision about: pure."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum

import msgspec


class FindingWeight(StrEnum):
    """The severity of a finding.

    BLOCKS: the import needs a decision first. LOST: the import leaves it out. NOTE: the import changes its meaning.
    """

    BLOCKS = "blocks"
    LOST = "lost"
    NOTE = "note"


class ImportFinding(msgspec.Struct, frozen=True):
    """A difference between the other tool and the import.

    Args:
        weight: Its severity.
        where: The namespaces, or objects, sorted.
        text: What, why, and what to do.
    """

    weight: FindingWeight
    where: tuple[str, ...]
    text: str


class ImportFindings:
    """Collects findings, and merges those with the same text."""

    def __init__(self) -> None:
        self._where: defaultdict[tuple[FindingWeight, str], set[str]] = defaultdict(set)

    def add(self, weight: FindingWeight, where: str, text: str) -> None:
        """Add a finding."""
        self._where[weight, text].add(where)

    def all(self) -> list[ImportFinding]:
        """Return the findings, the most severe first, then in the order of adding."""
        order = list(FindingWeight)
        found = [ImportFinding(weight, tuple(sorted(where)), text) for (weight, text), where in self._where.items()]
        return sorted(found, key=lambda finding: order.index(finding.weight))

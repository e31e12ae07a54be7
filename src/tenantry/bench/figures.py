"""Figures of a benchmark, rounded as its report shows them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def median(values: Iterable[float], digits: int = 3) -> float:
    """Return the median of at least one value."""
    return round(statistics.median(values), digits)


def median_of(rounds: Iterable[T], value: Callable[[T], float], digits: int = 3) -> float:
    """Return the median over rounds of one of their values."""
    return median(map(value, rounds), digits)


def percentile(values: Sequence[float], share: float, digits: int = 3) -> float:
    """Return the value that a share (0 to 1) of at least one value does not exceed."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], digits)

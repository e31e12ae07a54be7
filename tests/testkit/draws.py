"""Random values for tests that draw all of them first, and then use them with a real API server."""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

Json = dict[str, Any]
T = TypeVar("T")


def drawn(strategy: st.SearchStrategy[T], count: int, number: int) -> list[T]:
    """Return a number of values of a strategy; equal calls return equal values."""
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
    )
    @given(strategy)
    def draw(value: T) -> None:
        found.append(value)

    draw()
    return found


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Return objects with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def few(strategy: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[list[Any]]:
    """Return short lists without doubles."""
    return st.lists(strategy, max_size=most, unique_by=str)


def one(*values: object) -> st.SearchStrategy[Any]:
    """Return one of the values."""
    return st.sampled_from(values)

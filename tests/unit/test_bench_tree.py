"""The shape of the tree that the benchmark asks for."""

from __future__ import annotations

import pytest

from tenantry.api.errors import InputError
from tenantry.bench.tree import TreeShape, plan


def shape(namespaces: int, depth: int, fanout: int) -> TreeShape:
    return TreeShape(namespaces=namespaces, depth=depth, fanout=fanout, inherit=())


def test_a_flat_tree_has_one_level_whatever_the_fanout() -> None:
    assert plan(shape(5, 1, 2)) == [[1, 2, 3, 4, 5], [], [], [], [], []]


def test_levels_are_filled_from_the_top() -> None:
    assert plan(shape(8, 3, 2)) == [[1, 2], [3, 4], [5, 6], [7, 8], [], [], [], [], []]


def test_what_does_not_fit_is_refused_with_what_does() -> None:
    assert len(plan(shape(6, 2, 2))) == 7
    with pytest.raises(InputError, match="7 namespaces do not fit into 2 levels of 2 each: at most 6 do"):
        plan(shape(7, 2, 2))

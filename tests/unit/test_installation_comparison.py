"""Which fields of an installed object are reported."""

from __future__ import annotations

import pytest

from tenantry.controllers.installation.comparison import fields


@pytest.mark.parametrize(
    ("wanted", "found", "told"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ["spec.a.c"]),
        ({"a": [1]}, {"a": [1, 2]}, ["spec.a"]),
        ({}, {"more": {"x": 1}}, ["spec.more"]),
        ({"less": 1, "other": 2}, None, ["spec"]),
    ],
)
def test_the_deepest_field_that_differs_is_named(wanted: object, found: object, told: list[str]) -> None:
    assert fields("spec", wanted, found) == told

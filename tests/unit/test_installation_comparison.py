"""Which fields of an installed object are reported."""

from __future__ import annotations

import pytest

from tenantry.api.model import Json
from tenantry.controllers.installation.comparison import differing, exact, fields


@pytest.mark.parametrize(
    ("wanted", "found", "told"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ["spec.a.c"]),
        ({"a": [1]}, {"a": [1, 2]}, ["spec.a"]),
        ({}, {"more": {"x": 1}}, ["spec.more"]),
        ({"less": 1, "other": 2}, None, ["spec"]),
        ({"a": True}, {"a": 1}, ["spec.a"]),
    ],
)
def test_the_deepest_field_that_differs_is_named(wanted: object, found: object, told: list[str]) -> None:
    assert fields("spec", wanted, found) == told


def test_a_label_that_gives_a_roles_rules_to_other_roles_is_a_difference() -> None:
    """The rules of the role itself stay as they are, and owners would have the operator's."""
    role: Json = {"kind": "ClusterRole", "metadata": {"name": "r", "labels": {"a": "b"}}, "rules": []}
    given = {"tenantry.dev/aggregate-to-owner": "true", "rbac.authorization.k8s.io/aggregate-to-edit": "true"}
    live: Json = {**role, "metadata": {"name": "r", "resourceVersion": "7", "labels": {"a": "b", "mine": "c", **given}}}
    assert differing(role, live) == [f"metadata.labels[{each}]" for each in given]
    assert exact(role, live)["metadata"]["labels"] == {"a": "b", "mine": "c"}

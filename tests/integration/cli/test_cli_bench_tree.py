"""`tenantry bench tree` on a real control plane: what it counts, and that it leaves nothing behind."""

from __future__ import annotations

import pytest
from cli_command import Cli


@pytest.mark.long
def test_a_tree_is_measured_and_gone_afterwards(cli: Cli) -> None:
    """E06, X12: six namespaces in two levels, each with three objects of its parent's."""
    shape = ("--namespaces", "6", "--depth", "2", "--fanout", "2")
    found = cli.json("bench", "tree", *shape, "-o", "json")
    assert (found["namespaces"], found["depth"], found["fanout"]) == (6, 2, 2)
    # Each: a Subnamespace, its namespace, a network policy, counts, the owners' binding, and three that are inherited.
    assert found["objects"] == 6 * 8
    # In thousandths: of a tree that took long, the ratio is a few of them.
    assert found["ratio"] == pytest.approx(found["raw_seconds"] / found["tree_seconds"], rel=0.05, abs=0.001)
    assert found["operator_cpu_seconds"] > 0
    assert found["change_seconds"] > 0
    for kinds in ("namespaces", "tenants", "subnamespaces -A"):
        assert "bench-" not in cli.kubectl("get", *kinds.split(), "-o", "name").stdout


def test_a_shape_that_cannot_be_is_refused(cli: Cli) -> None:
    """X12: and so is a kind that it does not know."""
    said = cli.run("bench", "tree", "--namespaces", "7", "--depth", "2", "--fanout", "2", code=2)
    assert "7 namespaces do not fit into 2 levels of 2 each" in said.stderr
    said = cli.run("bench", "tree", "--inherit", "role,pods", code=2)
    assert "--inherit 'pods' is none of role, rolebinding, secret, configmap" in said.stderr

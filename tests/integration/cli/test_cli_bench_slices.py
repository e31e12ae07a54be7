"""`tenantry bench slices` on a real control plane with simulated nodes: what it counts, and that it leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli_command import NAME, Cli


@pytest.fixture
def nodes(cli: Cli) -> Iterator[None]:
    """Some nodes to take."""
    no_name = {"TENANTRY_NAME": ""}
    cli.run("up", "--cluster", NAME, "--nodes", "4", environment=no_name)
    yield
    cli.run("up", "--cluster", NAME, "--nodes", "0", environment=no_name)


@pytest.mark.long
@pytest.mark.usefixtures("nodes")
def test_claims_have_all_nodes_and_give_them_back(cli: Cli) -> None:
    """E12: every node but the shared one is taken once, and none is taken afterwards."""
    found = cli.json("bench", "slices", "--claims", "2", "--rounds", "2", "-o", "json")
    assert (found["claims"], found["nodes"], found["rounds"], found["quota"]) == (2, 3, 2, False)
    assert found["settled_seconds"] >= found["latency_p95_seconds"] > 0
    assert found["selection_milliseconds"] > 0
    for kind in ("namespaces", "tenants", "sliceclaims -A", "slices"):
        assert "bench-" not in cli.kubectl("get", *kind.split(), "-o", "name").stdout
    assert "tenantry.dev/slice" not in cli.kubectl("get", "nodes", "-o", "json").stdout


def test_more_claims_than_nodes_are_refused(cli: Cli) -> None:
    """E12: and it says how to make enough."""
    said = cli.run("bench", "slices", "--claims", "7", code=2)
    assert "`tenantry up --nodes 8` makes enough" in said.stderr


@pytest.mark.usefixtures("nodes")
def test_runtimes_are_measured_on_nodes_that_have_them(cli: Cli) -> None:
    """E20: simulated nodes run no containers."""
    said = cli.run("bench", "runtimes", code=2)
    assert "no Node of this cluster is Ready and runs containers" in said.stderr
    assert "`tenantry up --cluster NAME --runtime real --nodes 1`" in said.stderr

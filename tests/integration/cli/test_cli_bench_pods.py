"""`tenantry bench pods` on a real control plane with simulated nodes: what it counts, and that it leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli_command import NAME, Cli

POLICIES = "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies"


@pytest.fixture
def nodes(cli: Cli) -> Iterator[None]:
    """Room for some pods."""
    no_name = {"TENANTRY_NAME": ""}
    cli.run("up", "--cluster", NAME, "--nodes", "1", environment=no_name)
    yield
    cli.run("up", "--cluster", NAME, "--nodes", "0", environment=no_name)


@pytest.mark.long
@pytest.mark.usefixtures("nodes")
def test_pods_of_both_sides_are_measured_and_gone_afterwards(cli: Cli) -> None:
    """E15, X12: with every rule on, and what each policy costs; the policies themselves stay as they are."""
    before = cli.kubectl("get", POLICIES, "-o", "name").stdout
    found = cli.json("bench", "pods", "--tenants", "2", "--pods", "4", "--rounds", "2", "--each-policy", "-o", "json")
    assert (found["tenants"], found["pods"], found["rounds"], found["quota"]) == (2, 4, 2, False)
    assert found["ratio"] > 0
    assert found["guarded"]["running_seconds"] >= 4 / 2 / found["guarded"]["pods_per_second"]
    for side in (found["guarded"], found["unguarded"]):
        assert side["p50_milliseconds"] > 0
    assert "tenantry-rules-pods" in {each["policy"] for each in found["policies"]}
    assert cli.kubectl("get", POLICIES, "-o", "name").stdout == before
    for kind in ("namespaces", "tenants", "flowschemas", "pods -A"):
        assert "bench-" not in cli.kubectl("get", *kind.split(), "-o", "name").stdout


def test_pods_that_no_node_has_room_for_are_refused(cli: Cli) -> None:
    """X12: and it says how to make room."""
    said = cli.run("bench", "pods", "--pods", "250", code=2)
    assert "--pods 250 are more than fit" in said.stderr
    assert "`tenantry up --nodes 3` makes enough" in said.stderr

"""Parts of nodes from the command line, on a real control plane with a real operator and a node of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cli_command import PATIENCE, Cli
from cli_nodes import living


@pytest.fixture
def node(cli: Cli) -> Iterator[tuple[str, str]]:
    """A node that is given out in parts, of the test's own, and what selects it."""
    with living(cli, lambda pool: pool.share(1, pods="0")) as (pool, name):
        yield name, f"pool={pool.name}"


def test_a_part_is_printed_as_it_would_be_claimed(cli: Cli) -> None:
    """E20: its size is what the claim asks of each node; a size of whole nodes besides is refused."""
    flags = ["slice", "create", "web", "-n", "acme", "--part", "cpu=2,memory=4Gi", "--dry-run", "-o", "json"]
    spec = cli.json(*flags)["spec"]
    assert (spec["sharing"], spec["perNode"]) == ("Part", {"cpu": "2", "memory": "4Gi"})
    assert "--part may not be given together" in cli.run(*flags, "--total", "cpu=8", code=2).stderr


def test_parts_are_claimed_shown_explained_and_released(cli: Cli, node: tuple[str, str]) -> None:
    """E20: who has which part of a node, what waits and why, and a Manual claim that an administrator approves."""
    name, selector = node
    cli.run("tenant", "create", "parts", "--owner", "ada", "--wait")
    flags = ["-n", "parts", "--selector", selector, "--part"]
    claimed = cli.json("slice", "create", "web", *flags, "cpu=5,memory=4Gi", "--for-everybody", "--wait", "-o", "json")
    assert claimed["status"]["state"] == "Bound"
    (seen,) = [each for each in cli.json("nodes", "-o", "json")["nodes"] if each["name"] == name]
    part = {"tenant": "parts", "claim": "parts/web", "slice": claimed["status"]["slice"], "cpu": "5", "memory": "4Gi"}
    assert (seen["state"], seen["parts"]) == ("Shared", [part])
    assert [each["name"] for each in cli.json("nodes", "-n", "parts", "-o", "json")["nodes"]] == [name]
    assert "1/1 (5, 4Gi)" in cli.run("slice", "list", "-n", "parts").stdout
    cli.run("slice", "create", "more", *flags, "cpu=4,memory=4Gi", "--mode", "manual")
    cli.run("slice", "approve", "more", "-n", "parts")
    told = cli.kubectl("wait", "sliceclaim", "more", "-n", "parts", "--for=condition=Pending", PATIENCE)
    assert told.returncode == 0, told.stderr
    said = cli.run("explain", "slice", "more", "-n", "parts").stdout
    assert "has left cpu 3, memory 28Gi" in said
    assert "lacks: 1 parts of cpu 4, memory 4Gi are asked for" in said
    cli.run("slice", "delete", "web", "--yes", "--no-wait", "-n", "parts")
    told = cli.kubectl("wait", "sliceclaim", "more", "-n", "parts", "--for=jsonpath={.status.state}=Reserved", PATIENCE)
    assert told.returncode == 0, told.stderr
    cli.run("slice", "delete", "more", "--yes", "--no-wait", "-n", "parts")
    cli.run("delete", "tenant", "parts", "--yes", "--no-wait")

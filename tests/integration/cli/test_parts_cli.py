"""Parts of nodes from the command line, on a real control plane with a real operator and a node of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cli_command import Cli

NODE = "parts-1"


@pytest.fixture
def node(cli: Cli, tmp_path: Path) -> Iterator[str]:
    """A node that is given out in parts, of the test's own."""
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": None}
    has = {"cpu": "8", "memory": "32Gi", "pods": "0"}
    status = {"capacity": has, "allocatable": has, "conditions": [ready]}
    meta = {"name": NODE, "labels": {"pool": "parts", "tenantry.dev/parts": "true"}}
    file = tmp_path / "node.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}))
    made = cli.kubectl("create", "-f", str(file))
    assert made.returncode == 0, made.stderr
    yield NODE
    cli.kubectl("delete", "node", NODE)


def test_a_part_is_printed_as_it_would_be_claimed(cli: Cli) -> None:
    """E20: its size is what the claim asks of each node; a size of whole nodes besides is refused."""
    flags = ["slice", "claim", "web", "-n", "acme", "--part", "cpu=2,memory=4Gi", "--dry-run", "-o", "json"]
    spec = cli.json(*flags)["spec"]
    assert (spec["sharing"], spec["perNode"]) == ("Part", {"cpu": "2", "memory": "4Gi"})
    assert "--part may not be given together" in cli.run(*flags, "--total", "cpu=8", code=2).stderr


def test_parts_are_claimed_shown_explained_and_released(cli: Cli, node: str) -> None:
    """E20: who has which part of a node, what waits and why, and a Manual claim that an administrator approves."""
    cli.run("tenant", "create", "parts", "--owner", "ada", "--wait")
    flags = ["-n", "parts", "--selector", "pool=parts", "--part"]
    claimed = cli.json("slice", "claim", "web", *flags, "cpu=5,memory=4Gi", "--for-everybody", "--wait", "-o", "json")
    assert claimed["status"]["state"] == "Bound"
    (seen,) = [each for each in cli.json("nodes", "-o", "json")["nodes"] if each["name"] == node]
    part = {"tenant": "parts", "claim": "parts/web", "slice": claimed["status"]["slice"], "cpu": "5", "memory": "4Gi"}
    assert (seen["state"], seen["parts"]) == ("Shared", [part])
    assert [each["name"] for each in cli.json("nodes", "-n", "parts", "-o", "json")["nodes"]] == [node]
    assert "1/1 (5, 4Gi)" in cli.run("slice", "list", "-n", "parts").stdout
    cli.run("slice", "claim", "more", *flags, "cpu=4,memory=4Gi", "--mode", "manual")
    cli.run("slice", "approve", "more", "-n", "parts")
    told = cli.kubectl("wait", "sliceclaim", "more", "-n", "parts", "--for=condition=Pending", "--timeout=60s")
    assert told.returncode == 0, told.stderr
    said = cli.run("explain", "slice", "more", "-n", "parts").stdout
    assert "has left cpu 3, memory 28Gi" in said
    assert "lacks: 1 parts of cpu 4, memory 4Gi are asked for" in said
    cli.run("slice", "release", "web", "-n", "parts")
    told = cli.kubectl(
        "wait", "sliceclaim", "more", "-n", "parts", "--for=jsonpath={.status.state}=Reserved", "--timeout=60s"
    )
    assert told.returncode == 0, told.stderr
    cli.run("slice", "release", "more", "-n", "parts")
    cli.run("delete", "tenant", "parts", "--yes", "--no-wait")

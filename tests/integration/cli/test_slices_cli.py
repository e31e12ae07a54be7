"""Slices from the command line, on a real control plane with a real operator and no nodes but the test's own."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from cli_command import PATIENCE, Cli
from cli_nodes import living


@contextmanager
def tenant(cli: Cli, name: str) -> Generator[None]:
    """A tenant of the test's own."""
    cli.run("tenant", "create", name, "--owner", "ada", "--wait")
    try:
        yield
    finally:
        cli.run("delete", "tenant", name, "--yes", "--no-wait")


def test_a_claim_is_printed_as_it_would_be_made(cli: Cli) -> None:
    """E13: every field has a flag; nothing is made by a dry run."""
    flags = ["--count", "2", "--selector", "disk=ssd", "--per-node", "cpu=8", "--total", "memory=64Gi"]
    flags += [
        "--node",
        "a",
        "--node",
        "b",
        "--for",
        "web",
        "--grace",
        "30",
        "--replace-after",
        "60",
        "--mode",
        "manual",
    ]
    spec = cli.json("slice", "create", "fast", "-n", "acme", *flags, "--dry-run", "-o", "json")["spec"]
    assert spec == {
        "mode": "Manual",
        "count": 2,
        "selector": {"matchLabels": {"disk": "ssd"}},
        "nodeNames": ["a", "b"],
        "perNode": {"cpu": "8"},
        "total": {"memory": "64Gi"},
        "subnamespaces": ["web"],
        "gracePeriodSeconds": 30,
        "replaceAfterSeconds": 60,
    }


def _state(cli: Cli, name: str, wanted: str) -> None:
    _wait(cli, name, "slices", f"{{.status.state}}={wanted}")


def _wait(cli: Cli, name: str, namespace: str, wanted: str) -> None:
    told = cli.kubectl("wait", "sliceclaim", name, "-n", namespace, f"--for=jsonpath={wanted}", PATIENCE)
    assert told.returncode == 0, told.stderr


@pytest.fixture
def node(cli: Cli) -> Iterator[tuple[str, str]]:
    """A node for the test, next to a shared one, and its selector."""
    with living(cli, lambda pool: pool.add(1)) as (pool, name):
        yield name, f"pool={pool.name}"


def test_nodes_are_claimed_shown_explained_and_released(cli: Cli, node: tuple[str, str]) -> None:
    """E12, E13: from claim to release; who waits is told why, and `explain slice` tells of each node."""
    name, selector = node
    with tenant(cli, "slices"):
        flags = ["-n", "slices", "--selector", selector, "--for-everybody"]
        claimed = cli.json("slice", "create", "fast", *flags, "--wait", "-o", "json")
        assert (claimed["kind"], claimed["status"]["state"]) == ("SliceClaim", "Bound")
        (seen,) = [each for each in cli.json("nodes", "-o", "json")["nodes"] if each["name"] == name]
        assert (seen["state"], seen["tenant"], seen["claim"]) == ("Bound", "slices", "slices/fast")
        assert seen["allocatable"]["cpu"] == "8"
        cli.run("slice", "create", "more", *flags)
        told = cli.kubectl("wait", "sliceclaim", "more", "-n", "slices", "--for=condition=Pending", PATIENCE)
        assert told.returncode == 0, told.stderr
        assert "1 in slice" in cli.run("slice", "list", "-n", "slices").stdout
        shown = cli.json("nodes", "-n", "slices", "-o", "json")
        assert [each["claim"] for each in shown["waiting"]] == ["slices/more"]
        assert [each["next"] for each in shown["nodes"]] == ["slices/more"]
        said = cli.run("explain", "slice", "more", "-n", "slices").stdout
        assert f"in slice '{seen['slice']}'" in said
        assert "lacks: 1 node is asked for, and none can be had" in said
        assert "is Dynamic" in cli.run("slice", "approve", "more", "-n", "slices", code=2).stderr
        assert "ends at" in cli.run("slice", "renew", "fast", "-n", "slices", "--for", "2h").stderr
        assert "in 1h" in cli.run("slice", "list", "-n", "slices").stdout
        cli.run("slice", "delete", "fast", "--yes", "--no-wait", "-n", "slices")
        _state(cli, "more", "Bound")
        cli.run("slice", "delete", "more", "--yes", "--no-wait", "-n", "slices")
        assert (
            "does not exist" in cli.run("slice", "delete", "none", "--yes", "--no-wait", "-n", "slices", code=5).stderr
        )


def test_a_manual_claim_gets_more_nodes_only_after_a_second_approval(cli: Cli) -> None:
    """E12, E13: the owner may ask for more; `explain slice` shows what is approved, and what is not."""
    with living(cli, lambda pool: pool.add(2)) as (pool, _), tenant(cli, "manual"):
        claim = ("fast", "-n", "manual")
        cli.run("slice", "create", *claim, "--selector", f"pool={pool.name}", "--for-everybody", "--mode", "manual")
        assert "created" in cli.run("slice", "approve", *claim).stderr
        _wait(cli, "fast", "manual", "{.status.state}=Bound")
        cli.kubectl("patch", "sliceclaim", *claim, "--type=merge", "-p", '{"spec": {"count": 2}}')
        _wait(cli, "fast", "manual", "{.status.observedGeneration}=2")
        assert "spec.count must be approved" in cli.run("slice", "list", "-n", "manual").stdout
        found = cli.json("explain", "slice", *claim, "-o", "json")
        assert (len(found["has"]), found["wouldTake"], found["unapproved"]) == (1, [], ["spec.count"])
        said = cli.run("explain", "slice", *claim).stdout
        assert "not approved: spec.count; an administrator runs `tenantry slice approve`" in said
        assert "changed" in cli.run("slice", "approve", *claim).stderr
        _wait(cli, "fast", "manual", f"{{.status.nodes[1]}}={max(pool.nodes)}")
        found = cli.json("explain", "slice", *claim, "-o", "json")
        assert (len(found["has"]), found["unapproved"]) == (2, [])
        cli.run("slice", "release", *claim)
        assert cli.kubectl("wait", "--for=delete", "slices", "--all", PATIENCE).returncode == 0


def test_an_owner_sees_the_nodes_of_its_own_claims(cli: Cli, node: tuple[str, str]) -> None:
    """E12, H06: with no more rights than an owner has, and nothing of others; without a namespace it is asked for."""
    name, selector = node
    with tenant(cli, "mine"):
        file = cli.folder / "mine.kubeconfig"
        file.write_text(cli.run("kubeconfig", "--tenant", "mine", "--expires", "10m").stdout)
        own, no_name = ("--kubeconfig", str(file)), {"TENANTRY_NAME": ""}
        cli.await_right("ada", "list", "sliceclaims.tenantry.dev", "mine")
        assert "no claims" in cli.run("slice", "list", *own, environment=no_name).stderr
        flags = ("claim", "fast", "--selector", selector, "--for-everybody", "--expires", "2h")
        cli.run("slice", *flags, *own, environment=no_name)
        told = cli.kubectl("wait", "sliceclaim", "fast", "-n", "mine", "--for=jsonpath={.status.state}=Bound", PATIENCE)
        assert told.returncode == 0, told.stderr
        said = cli.run("nodes", *own, environment=no_name)
        assert [line.split()[:5] for line in said.stdout.splitlines()[1:]] == [[name, "Bound", "mine", "fast", "in"]]
        assert "you may not read nodes" in said.stderr
        listed = cli.run("slice", "list", *own, environment=no_name).stdout.splitlines()
        assert listed[1].split()[:6] == ["mine", "fast", "Bound", "1/1", name, "mine"]
        assert "you may not list claims" in cli.run("nodes", "-n", "cli", *own, code=5, environment=no_name).stderr
        cli.run("slice", "delete", "fast", "--yes", "--no-wait", *own, environment=no_name)
        cli.kubectl("wait", "--for=delete", "slices", "--all", "--timeout=50s")

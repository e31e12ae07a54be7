"""What the operator would change in a tree, told before it does: on a real control plane, the operator held still."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from cli_command import Cli

from tenantry.bench.hold import held_operator
from tenantry.kube.client import Client

NAME = "differing"


@pytest.fixture
def web(cli: Cli) -> Iterator[str]:
    """A tenant of 10 CPUs with a workspace of 4; the workspace's namespace."""
    cli.run("tenant", "create", NAME, "--owner", "ada", "--quota", "cpu=10", "--wait")
    cli.run("sub", "create", "web", "-n", NAME, "--quota", "cpu=4", "--wait")
    cli.run("wait", "trq", NAME)
    yield cli.run("name", NAME, "web").stdout.strip()
    cli.run("delete", "tenant", NAME, "--yes")


def titles(text: str) -> list[str]:
    return [line.removeprefix("+++ would-be/") for line in text.splitlines() if line.startswith("+++")]


def test_a_divided_quota_is_no_difference(cli: Cli, web: str) -> None:
    """E09: the core namespace has what its children do not; a larger quota goes to it."""
    assert web
    assert cli.run("diff", NAME).stdout == ""
    wanted = cli.run("get", "tenant", NAME, "-o", "yaml").stdout.replace("cpu: '10'", "cpu: '12'")
    said = cli.run("diff", "-f", "-", stdin=wanted, code=1).stdout
    assert titles(said) == [f"Tenant/{NAME}", f"ResourceQuota/{NAME}/tenantry-quota"]
    assert "-    requests.cpu: '6'" in said
    assert "+    requests.cpu: '8'" in said


async def test_what_is_missing_or_asked_for_is_told(cli: Cli, cli_admin: Client, web: str) -> None:
    """E04, E09: a new child with its share, what was deleted by hand, labels; and nothing once it is done."""

    def ask() -> str:
        cli.run("sub", "create", "new", "-n", NAME, "--quota", "cpu=1")
        cli.kubectl("delete", "networkpolicy", "tenantry-dns", "-n", web)
        patch = '{"spec":{"labels":{"differing.tenantry.dev/team":"w"},"quota":{"hard":{"cpu":"5"}}}}'
        assert cli.kubectl("patch", "sub", "web", "-n", NAME, "--type=merge", "-p", patch).returncode == 0
        return cli.run("diff", NAME, code=1).stdout

    new = (await asyncio.to_thread(cli.run, "name", NAME, "new")).stdout.strip()
    async with held_operator(cli_admin):
        said = await asyncio.to_thread(ask)
    assert titles(said) == [
        f"ResourceQuota/{NAME}/tenantry-quota",
        f"ResourceQuota/{web}/tenantry-quota",
        f"Namespace/{new}",
        f"LimitRange/{new}/tenantry-limits",
        f"NetworkPolicy/{new}/tenantry-isolation",
        f"NetworkPolicy/{new}/tenantry-dns",
        f"ResourceQuota/{new}/tenantry-quota",
        f"RoleBinding/{new}/tenantry-owner",
        f"Namespace/{web}",
        f"NetworkPolicy/{web}/tenantry-dns",
    ]
    assert "-    requests.cpu: '6'\n+    requests.cpu: '4'" in said
    assert "+    requests.cpu: '1'" in said
    assert "+    differing.tenantry.dev/team: w" in said
    await asyncio.to_thread(_settled, cli, new)
    assert (await asyncio.to_thread(cli.run, "diff", NAME)).stdout == ""


def _settled(cli: Cli, new: str) -> None:
    cli.run("wait", "sub", "new", "web", "-n", NAME)
    cli.run("wait", "trq", NAME)
    for namespace, cpu in ((NAME, "4"), (new, "1")):
        path = f"--for=jsonpath={{.spec.hard.requests\\.cpu}}={cpu}"
        assert cli.kubectl("wait", "resourcequota", "tenantry-quota", "-n", namespace, path).returncode == 0

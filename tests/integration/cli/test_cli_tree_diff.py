"""What the operator would change in a tree, told before it does: on a real control plane, the operator held still."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from cli_command import PATIENCE, Cli

from tenantry.bench.hold import held_operator
from tenantry.kube.client import Client


class Site(NamedTuple):
    """A tenant of 10 CPUs with a workspace of 4.

    Args:
        name: The tenant's.
        web: The workspace's namespace.
    """

    name: str
    web: str


@pytest.fixture
def site(cli: Cli) -> Iterator[Site]:
    """A tenant that no other test has."""
    name = f"d{uuid.uuid4().hex[:8]}"
    cli.run("tenant", "create", name, "--owner", "ada", "--quota", "cpu=10", "--wait")
    cli.run("sub", "create", "web", "-n", name, "--quota", "cpu=4", "--wait")
    cli.run("wait", "trq", name)
    yield Site(name, cli.run("name", name, "web").stdout.strip())
    cli.run("delete", "tenant", name, "--yes", "--no-wait")


def titles(text: str) -> list[str]:
    return [line.removeprefix("+++ would-be/") for line in text.splitlines() if line.startswith("+++")]


def test_a_divided_quota_is_no_difference(cli: Cli, site: Site) -> None:
    """E09: the core namespace has what its children do not; a larger quota goes to it."""
    name = site.name
    assert cli.run("diff", name).stdout == ""
    wanted = cli.run("get", "tenant", name, "-o", "yaml").stdout.replace("cpu: '10'", "cpu: '12'")
    said = cli.run("diff", "-f", "-", stdin=wanted, code=1).stdout
    # The Namespace has the summary for owners.
    assert titles(said) == [f"Tenant/{name}", f"Namespace/{name}", f"ResourceQuota/{name}/tenantry-quota"]
    assert "-    requests.cpu: '6'" in said
    assert "+    requests.cpu: '8'" in said


CHILD = """\
---
apiVersion: tenantry.dev/v1alpha1
kind: Subnamespace
metadata: {name: %s, namespace: %s}
spec:
  mode: Workspace
  inheritance: {roleBindings: Sync}
  quota: {hard: {cpu: %s}}
"""


def test_a_file_of_subnamespaces_is_compared(cli: Cli, site: Site) -> None:
    """E04, E09: what would be made, and what others would have then; one below the other."""
    name, web = site
    app = cli.run("name", web, "app").stdout.strip()
    text = CHILD % ("web", name, 5) + CHILD % ("app", web, 2)
    said = cli.run("diff", "-f", "-", stdin=text, code=1).stdout
    assert titles(said) == [
        f"Subnamespace/{name}/web",
        f"Subnamespace/{web}/app",
        f"Namespace/{app}",
        f"LimitRange/{app}/tenantry-limits",
        f"NetworkPolicy/{app}/tenantry-isolation",
        f"ResourceQuota/{app}/tenantry-counts",
        f"ResourceQuota/{name}/tenantry-quota",
        f"ResourceQuota/{web}/tenantry-quota",
        f"ResourceQuota/{app}/tenantry-quota",
        f"RoleBinding/{app}/tenantry-owner",
    ]
    assert "-    requests.cpu: '6'\n+    requests.cpu: '5'" in said
    assert "-    requests.cpu: '4'\n+    requests.cpu: '3'" in said
    assert "NotFound" in cli.kubectl("get", "sub", "app", "-n", web).stderr
    greedy = cli.run("diff", "-f", "-", stdin=CHILD % ("app", web, 50), code=1).stderr
    assert f"Subnamespace '{web}/app': " in greedy
    assert "QuotaInsufficient" in greedy


def test_a_file_that_cannot_be_compared_is_refused(cli: Cli, site: Site) -> None:
    """E15: exit codes as everywhere."""
    web = site.web
    nowhere = cli.run("diff", "-f", "-", stdin=CHILD % ("a", "nowhere", 1), code=5).stderr
    assert "there is no namespace 'nowhere'" in nowhere
    assert (
        "'default' does not belong to a tenant"
        in cli.run("diff", "-f", "-", stdin=CHILD % ("a", "default", 1), code=2).stderr
    )
    twice = CHILD % ("a", web, 1) + CHILD % ("a", web, 1)
    assert "metadata.name must not be 'a' again" in cli.run("diff", "-f", "-", stdin=twice, code=2).stderr
    assert "is neither a Tenant nor" in cli.run("render", "-f", "-", stdin=CHILD % ("a", web, 1), code=2).stderr


def test_a_tenant_and_its_first_subnamespaces_in_one_file(cli: Cli) -> None:
    """E04: the tenant's objects, and that the Subnamespace would be made."""
    tenant = cli.run("tenant", "create", "together", "--owner", "ada", "--quota", "cpu=2", "--dry-run").stdout
    said = titles(cli.run("diff", "-f", "-", stdin=tenant + CHILD % ("web", "together", 1), code=1).stdout)
    assert said[0] == "Tenant/together"
    assert "ResourceQuota/together/tenantry-quota" in said
    assert said[-1] == "Subnamespace/together/web"


async def test_what_is_missing_or_asked_for_is_told(cli: Cli, cli_admin: Client, site: Site) -> None:
    """E04, E09: a new child with its share, what was deleted by hand, labels; and nothing once it is done."""
    name, web = site

    def ask() -> str:
        cli.run("sub", "create", "new", "-n", name, "--quota", "cpu=1")
        cli.kubectl("delete", "networkpolicy", "tenantry-isolation", "-n", web)
        patch = f'{{"spec":{{"labels":{{"{name}.tenantry.dev/team":"w"}},"quota":{{"hard":{{"cpu":"5"}}}}}}}}'
        assert cli.kubectl("patch", "sub", "web", "-n", name, "--type=merge", "-p", patch).returncode == 0
        return cli.run("diff", name, code=1).stdout

    new = (await asyncio.to_thread(cli.run, "name", name, "new")).stdout.strip()
    async with held_operator(cli_admin):
        said = await asyncio.to_thread(ask)
    assert titles(said) == [
        f"Subnamespace/{name}/new",
        f"Namespace/{new}",
        f"LimitRange/{new}/tenantry-limits",
        f"NetworkPolicy/{new}/tenantry-isolation",
        f"ResourceQuota/{new}/tenantry-counts",
        f"Namespace/{web}",
        f"NetworkPolicy/{web}/tenantry-isolation",
        f"ResourceQuota/{name}/tenantry-quota",
        f"ResourceQuota/{new}/tenantry-quota",
        f"ResourceQuota/{web}/tenantry-quota",
        f"RoleBinding/{new}/tenantry-owner",
    ]
    assert "-    requests.cpu: '6'\n+    requests.cpu: '4'" in said
    assert "+    requests.cpu: '1'" in said
    assert f"+    {name}.tenantry.dev/team: w" in said
    await asyncio.to_thread(_settled, cli, name, new)
    assert (await asyncio.to_thread(cli.run, "diff", name)).stdout == ""


def test_copies_and_deletions_of_a_file_are_shown(cli: Cli, site: Site) -> None:
    """E04, E06: a Secret that the child would inherit, without its value; the end of a lease, with the namespace."""
    name, web = site
    secret = ("secret", "generic", "login", "-n", name, "--from-literal=key=hunter2")
    assert cli.kubectl("create", *secret).returncode == 0
    spec = CHILD % ("web", name, 4)
    found = cli.run("diff", "-f", "-", stdin=spec.replace("Bindings: Sync", "Bindings: Sync, secrets: Sync"), code=1)
    assert titles(found.stdout) == [f"Subnamespace/{name}/web", f"Secret/{web}/login"]
    assert "+  key: '***'" in found.stdout
    ended = cli.run("diff", "-f", "-", stdin=f"{spec}  expiresAt: '2001-01-01T00:00:00Z'\n", code=1).stdout
    gone = [line for line in ended.splitlines() if line.startswith(("---", "+++"))]
    assert gone[2:] == [
        f"--- is/Subnamespace/{name}/web",
        "+++ /dev/null",
        f"--- is/Namespace/{web}",
        "+++ /dev/null",
    ]


def _settled(cli: Cli, name: str, new: str) -> None:
    cli.run("wait", "sub", "new", "web", "-n", name)
    cli.run("wait", "trq", name)
    for namespace, cpu in ((name, "4"), (new, "1")):
        path = f"--for=jsonpath={{.spec.hard.requests\\.cpu}}={cpu}"
        assert cli.kubectl("wait", "resourcequota", "tenantry-quota", "-n", namespace, path, PATIENCE).returncode == 0

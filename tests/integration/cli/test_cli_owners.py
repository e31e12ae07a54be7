"""A tenant from the command line of its owner, who has no right on Tenants, on a real control plane."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_command import SECONDS, Cli, Said

NAME = "owned"
NO_NAME = {"TENANTRY_NAME": ""}
TENANT = ("--mode", "subtenant", "--owner", "bob")


class Tree:
    """A tenant with a workspace and, in that, a Subtenant of bob; ada owns the tenant.

    Args:
        cli: The command.
    """

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        cli.run("tenant", "create", NAME, "--owner", "ada", "--quota", "cpu=10,pods=50", "--expires", "30d", "--wait")
        self.web = self._child(NAME, "web", "cpu=4,pods=20")
        self.shop = self._child(self.web, "shop", "cpu=1,pods=5", *TENANT)
        self._files = {user: self._file(user, where) for user, where in (("ada", NAME), ("bob", self.shop))}
        for user, where in (("ada", NAME), ("ada", self.web), ("bob", self.shop)):
            cli.await_right(user, "list", "subnamespaces.tenantry.dev", where)

    def run(self, user: str, *words: str, code: int = 0) -> Said:
        """Run a verb with a user's own kubeconfig."""
        mine = ("--kubeconfig", str(self._files[user]))
        return self.cli.run(*words, *mine, code=code, environment=NO_NAME)

    def _child(self, parent: str, name: str, quota: str, *more: str) -> str:
        self.cli.run("sub", "create", name, "-n", parent, "--quota", quota, *more, "--wait")
        return self.cli.run("name", parent, name).stdout.strip()

    def _file(self, user: str, namespace: str) -> Path:
        file = self.cli.folder / f"owned-{user}.kubeconfig"
        file.write_text(self.cli.run("kubeconfig", "-n", namespace, "--user", user, "--expires", "1h").stdout)
        return file


@pytest.fixture(scope="module")
def tree(cli: Cli) -> Iterator[Tree]:
    """The tree, for all tests of this file."""
    yield Tree(cli)
    cli.run("delete", "tenant", NAME, "--yes", "--no-wait")


def test_an_owner_reads_its_tenant_without_its_subtenants(tree: Tree) -> None:
    """E04, E09, X12: quota, get and describe, from the owner's own namespaces; bob's namespace is in none of them."""
    told = tree.run("ada", "quota", NAME)
    assert "as an owner" in told.stderr
    cpu = [line.split()[-5:] for line in told.stdout.splitlines() if "requests.cpu" in line]
    assert cpu == [["requests.cpu", "9", "0", "9", "6"], ["requests.cpu", "3", "0", "3", "3"]]
    got = tree.run("ada", "get", "tenant", NAME)
    header, row = (line.split() for line in got.stdout.splitlines())
    assert header == ["NAME", "READY", "REASON", "SUSPENDED", "NETWORK", "AGE"]
    assert row[:5] == [NAME, "True", "Established", "<none>", "Isolated"]
    described = tree.run("ada", "describe", "tenant", NAME)
    assert "in 29d" in described.stdout
    assert "requests.cpu" in described.stdout
    whole = tree.run("ada", "get", "tenant", NAME, "-o", "yaml")
    assert 'cpu: "10"' in whole.stdout or "cpu: '10'" in whole.stdout
    for said in (told, got, described, whole):
        assert tree.shop not in said.stdout + said.stderr
        assert "bob" not in said.stdout + said.stderr


def test_an_owner_sees_that_the_tenant_is_not_ready(tree: Tree) -> None:
    """E09: the reason, without the message, which names children of others."""
    patch = '{"spec":{"quota":{"hard":{"cpu":"%s"}}}}'
    kubectl = ("patch", "tenant", NAME, "--type=merge", "-p")
    assert tree.cli.kubectl(*kubectl, patch % 2).returncode == 0
    _until(tree, ["False", "QuotaShort"])
    assert tree.cli.kubectl(*kubectl, patch % 10).returncode == 0
    _until(tree, ["True", "Established"])


def _until(tree: Tree, wanted: list[str]) -> None:
    end = time.monotonic() + SECONDS
    while (said := tree.run("ada", "get", "tenant", NAME).stdout.splitlines()[1].split())[1:3] != wanted:
        assert time.monotonic() < end, said


def test_a_stranger_is_told_which_right_is_missing(tree: Tree) -> None:
    """X12: bob owns a Subtenant, not the tenant, and no owner may list tenants."""
    for verb in (("quota", NAME), ("get", "tenant", NAME), ("describe", "tenant", NAME), ("get", "tenant", "absent")):
        said = tree.run("bob", *verb, code=5)
        assert f"`get` Namespace {verb[-1]!r}" in said.stderr
        assert "ada" not in said.stderr
    assert "as an owner, name your tenant" in tree.run("ada", "quota", code=5).stderr


def test_an_owner_compares_subnamespaces_of_a_file(tree: Tree, tmp_path: Path) -> None:
    """E04: what applying them would change, as the API server answers; Tenants are an administrator's."""
    file = tmp_path / "sub.yaml"
    head = f"apiVersion: tenantry.dev/v1alpha1\nkind: Subnamespace\nmetadata: {{name: web, namespace: {NAME}}}\n"
    inherited = "inheritance: {roles: Sync, roleBindings: Sync}"
    file.write_text(f"{head}spec: {{mode: Workspace, {inherited}, quota: {{hard: {{cpu: 5, pods: 20}}}}}}\n")
    said = tree.run("ada", "diff", "-f", str(file), code=1)
    changed = [line for line in said.stdout.splitlines() if line[:1] in "+-" and "cpu" in line]
    assert [line.split() for line in changed] == [["-", "cpu:", "'4'"], ["+", "cpu:", "5"]]
    assert "as an owner" in said.stderr
    assert tree.run("ada", "diff", NAME, code=5).stderr.count("only administrators may read") == 1
    assert tree.cli.json("get", "sub", "web", "-n", NAME, "-o", "json")["spec"]["quota"]["hard"]["cpu"] == "4"
    assert "cannot get resource" in tree.run("bob", "diff", "-f", str(file), code=5).stderr

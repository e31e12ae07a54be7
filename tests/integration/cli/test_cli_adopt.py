"""`tenantry adopt` on a real API server: a tenant comes back from YAML, with the operator running and stopped."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from cli_command import PATIENCE, Cli

from tenantry.api.marks import FINALIZER
from tenantry.api.reasons import QUOTA_INSUFFICIENT
from tenantry.api.subnamespace import Subnamespace
from tenantry.bench.hold import held_operator
from tenantry.kube.client import Client

Json = dict[str, Any]

KINDS = "limitranges,pods,configmaps,networkpolicies,resourcequotas,rolebindings,sliceclaims,subnamespaces"
"""In the order of Velero: what follows namespaces, Secrets and ConfigMaps has no order but that of names."""
KEPT = ("name", "namespace", "labels", "annotations", "finalizers")
CPU = "jsonpath={.spec.hard.requests\\.cpu}"
GREEDY: Json = {
    "apiVersion": Subnamespace.resource.api_version,
    "kind": Subnamespace.resource.kind,
    "spec": {
        "mode": "Workspace",
        "owners": [{"kind": "User", "name": "ada"}],
        "quota": {"hard": {"cpu": "4"}},
    },
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/web",
                "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


@pytest.fixture
def name(cli: Cli) -> Iterator[str]:
    """The name of a tenant of 10 CPUs with a workspace of 7, which is more than the core namespace keeps."""
    made = f"r{uuid.uuid4().hex[:8]}"
    cli.run("tenant", "create", made, "--owner", "ada", "--quota", "cpu=10", "--wait")
    cli.run("sub", "create", "web", "-n", made, "--quota", "cpu=7", "--wait")
    cli.run("wait", "trq", made)
    yield made
    cli.run("delete", "tenant", made, "--yes", "--no-wait")


def backup(cli: Cli, spaces: list[str], tenant: str) -> list[Json]:
    """Return the objects of a tenant as a backup has them, in the order of their restore."""

    def listed(*asked: str) -> list[Json]:
        found: Json = msgspec.json.decode(cli.kubectl("get", *asked, "-o", "json").stdout)
        return found.get("items", [found])

    inside = [each for space in spaces for each in listed(KINDS, "-n", space)]
    order = {each: at for at, each in enumerate(KINDS.split(","))}
    inside.sort(key=lambda each: order[f"{each['kind'].lower()}s".replace("policys", "policies")])
    whole = [*(each for space in spaces for each in listed("namespace", space)), *inside]
    whole += [*listed("tenantresourcequota", tenant), *listed("tenant", tenant)]
    for each in whole:
        each["metadata"] = {key: value for key, value in each["metadata"].items() if key in KEPT}
        each.pop("status", None)
        each.get("spec", {}).pop("nodeName", None)
    return [each for each in whole if each["metadata"]["name"] != "kube-root-ca.crt"]


def restore(cli: Cli, found: list[Json], seen: set[str]) -> None:
    """Create objects one by one, and check after each that no namespace of the tenant has gone."""
    for each in found:
        done = cli.made("create", "-f", "-", stdin=msgspec.json.encode(each).decode())
        assert done.returncode == 0 or "AlreadyExists" in done.stderr, done.stderr
        if each["kind"] == "Namespace":
            seen.add(each["metadata"]["name"])
        if each["kind"] == "ResourceQuota":
            # Kubernetes writes the status a moment later, and admission counts with what is in force.
            await_in_force(cli, each)
        assert seen <= alive(cli)


def await_in_force(cli: Cli, quota: Json) -> None:
    meta = quota["metadata"]
    condition = "--for=jsonpath={.status.hard}"
    done = cli.kubectl("wait", "resourcequota", meta["name"], "-n", meta["namespace"], condition, PATIENCE)
    assert done.returncode == 0, done.stderr


def alive(cli: Cli) -> set[str]:
    """Return the namespaces that are not being deleted."""
    asked = ("get", "namespaces", "--field-selector=status.phase=Active", "-o", "name")
    return {line.removeprefix("namespace/") for line in cli.kubectl(*asked).stdout.split()}


def shares(cli: Cli, spaces: list[str]) -> dict[str, int]:
    return {
        each: int(cli.kubectl("get", "resourcequota", "tenantry-quota", "-n", each, "-o", CPU).stdout)
        for each in spaces
    }


def lose(cli: Cli, name: str) -> tuple[list[str], list[Json]]:
    """Delete a tenant, and return its namespaces and its backup."""
    web = cli.run("name", name, "web").stdout.strip()
    cli.await_pods("ada", web)
    assert cli.kubectl("create", "-n", web, "-f", "-", stdin=msgspec.json.encode(POD).decode()).returncode == 0
    found = backup(cli, [name, web], name)
    cli.run("delete", "tenant", name, "--yes")
    assert cli.kubectl("wait", "namespace", web, "--for=delete", PATIENCE).returncode == 0
    return [name, web], found


def adopt(cli: Cli, name: str, spaces: list[str]) -> None:
    core, web = spaces
    uids = {each: cli.kubectl("get", "namespace", each, "-o", "jsonpath={.metadata.uid}").stdout for each in spaces}
    assert shares(cli, spaces) == {core: 3, web: 7}
    cli.run("wait", "tenant", name, "--for", "condition=Stalled")
    assert "delete" not in cli.run("tree", name).stdout
    assert f"tenantry adopt --plan   # NotAdopted: {name}" in cli.run("status").stdout
    assert "`tenantry adopt --plan`" in cli.run("explain", "quota", name, "--want", "cpu=1", code=5).stderr
    (found,) = cli.json("adopt", name, "--plan", "-o", "json", code=1)
    assert [each["namespace"] for each in found["namespaces"]] == [web, core]
    assert found["blocks"] == []
    cli.run("adopt", name, "--yes")
    cli.run("wait", "trq", name)
    assert shares(cli, spaces) == {core: 3, web: 7}
    assert cli.kubectl("get", "pod", "web", "-n", web).returncode == 0
    now = {each: cli.kubectl("get", "namespace", each, "-o", "jsonpath={.metadata.uid}").stdout for each in spaces}
    assert now == uids
    assert cli.run("name", name, "web").stdout.strip() == web
    assert cli.run("adopt", name, "--plan").stdout == ""
    assert cli.run("diff", name).stdout == ""


def test_only_an_administrator_who_restores_may_pass_what_the_parent_can_give(cli: Cli, name: str) -> None:
    """E09: the finalizer of a backup lets an owner create nothing, and gives an administrator no share of a tree."""
    more: Json = {"metadata": {"name": "more", "namespace": name}, **GREEDY}
    cli.await_right("ada", "create", "subnamespaces.tenantry.dev", name)
    assert "can give" in created(cli, more).stderr
    more["metadata"]["finalizers"] = [FINALIZER]
    assert "can give" in created(cli, more, "--as", "ada").stderr
    assert created(cli, more).returncode == 0
    cli.run("wait", "sub", "more", "-n", name, "--for", "condition=Ready=False")
    conditions = cli.kubectl("get", "subnamespace", "more", "-n", name, "-o", "jsonpath={.status.conditions}").stdout
    assert QUOTA_INSUFFICIENT in conditions
    assert cli.kubectl("get", "resourcequota", "tenantry-quota", "-n", name, "-o", CPU).stdout == "3"
    assert cli.kubectl("delete", "subnamespace", "more", "-n", name, PATIENCE).returncode == 0


def created(cli: Cli, value: Json, *flags: str) -> subprocess.CompletedProcess[str]:
    return cli.made("create", "-f", "-", *flags, stdin=msgspec.json.encode(value).decode())


def test_a_tenant_is_restored_while_the_operator_works(cli: Cli, name: str) -> None:
    """X11: the operator deletes no namespace whose Subnamespace is not back yet."""
    spaces, found = lose(cli, name)
    restore(cli, found, set())
    adopt(cli, name, spaces)


async def test_a_tenant_is_restored_while_the_operator_is_stopped(cli: Cli, cli_admin: Client, name: str) -> None:
    """X11: it starts with everything restored, and nothing bound."""
    spaces, found = await asyncio.to_thread(lose, cli, name)
    async with held_operator(cli_admin):
        await asyncio.to_thread(restore, cli, found, set())
    await asyncio.to_thread(adopt, cli, name, spaces)

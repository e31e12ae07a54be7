"""`tenantry plan`: on a real API server, applying the files does just what was planned."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_command import PATIENCE, Cli

from tenantry.views.drift.steps import fields

Json = dict[str, Any]

TENANT = """\
apiVersion: tenantry.dev/v1alpha1
kind: Tenant
metadata: {name: %s, labels: {suite: %s}}
spec:
  owners: [{kind: User, name: ada}%s]
  quota: {hard: {cpu: %s}}
"""
CHILD = """\
---
apiVersion: tenantry.dev/v1alpha1
kind: Subnamespace
metadata: {name: web, namespace: %s, labels: {suite: %s}}
spec: {mode: Workspace, inheritance: {roleBindings: Sync}, quota: {hard: {cpu: %s}}}
"""
CLAIM = """\
---
apiVersion: tenantry.dev/v1alpha1
kind: SliceClaim
metadata: {name: gpu, namespace: %s, labels: {suite: %s}}
spec: {count: 2}
"""
BOB = ", {kind: User, name: bob}"


@pytest.fixture
def name(cli: Cli) -> Iterator[str]:
    """The name of a tenant that no other test has."""
    made = f"p{uuid.uuid4().hex[:8]}"
    yield made
    cli.run("delete", "tenant", made, "--yes", "--no-wait")


def plan(cli: Cli, folder: Path, *more: str, code: int = 1) -> list[Json]:
    return cli.json("plan", "-f", str(folder), "-o", "json", *more, code=code)["steps"]


def own(found: list[Json]) -> list[str]:
    return [f"{each['action']} {each['kind']} {each['name']}" for each in found if each["by"] != "Operator"]


def effects(found: list[Json]) -> dict[str, list[str]]:
    return {
        f"{each['kind']} {each['name']}": [it["effect"] for it in each["consequences"]]
        for each in found
        if each["consequences"]
    }


def stored(cli: Cli, name: str) -> dict[str, Json]:
    """Return the specs of a tenant, its Subnamespaces and claims, and its shares of the quota."""
    asked = ("get", "tenants,subnamespaces,sliceclaims,resourcequotas", "-A", "-o", "json")
    items: list[Json] = msgspec.json.decode(cli.kubectl(*asked).stdout)["items"]
    mine = [each for each in items if name in (each["metadata"].get("namespace", ""), each["metadata"]["name"])]
    return {f"{each['kind']} {each['metadata']['name']}": each["spec"] for each in mine}


def apply(cli: Cli, folder: Path, *more: str) -> None:
    done = cli.kubectl("apply", "-f", str(folder), *more)
    assert done.returncode == 0, done.stderr


def test_an_apply_changes_what_was_planned_and_nothing_else(cli: Cli, name: str, tmp_path: Path) -> None:
    """GitOps: the fields of each step are those that differ afterwards; the next plan is empty."""
    file = tmp_path / "all.yaml"
    file.write_text(TENANT % (name, name, BOB, 10))
    assert own(plan(cli, tmp_path)) == [f"create Tenant {name}"]
    apply(cli, tmp_path)
    cli.run("wait", "tenant", name)
    file.write_text(TENANT % (name, name, BOB, 10) + CHILD % (name, name, 4) + CLAIM % (name, name))
    assert own(plan(cli, tmp_path)) == ["create Subnamespace web", "create SliceClaim gpu"]
    apply(cli, tmp_path)
    cli.run("wait", "sub", "web", "-n", name)
    cli.run("wait", "trq", name)
    assert plan(cli, tmp_path, code=0) == []
    before = stored(cli, name)

    file.write_text(TENANT % (name, name, "", 8) + CHILD % (name, name, 3) + CLAIM % (name, name))
    found = plan(cli, tmp_path)
    assert stored(cli, name) == before  # a plan writes nothing
    assert own(found) == [f"update Tenant {name}", "update Subnamespace web"]
    told = effects(found)
    assert told[f"Tenant {name}"] == ["Shrinks"]
    assert told["RoleBinding tenantry-owner"] == ["LosesAccess"]
    said = cli.run("plan", "-f", str(tmp_path), code=1).stdout
    assert f"~ Tenant {name}\n    spec.owners: " in said
    assert "    spec.quota.hard.cpu: 10 -> 8\n    Shrinks: cpu from 10 to 8\n" in said
    assert "LosesAccess: User bob in namespace" in said
    assert said.endswith("Plan: 0 to create, 2 to update, 0 to delete.\n")

    apply(cli, tmp_path)
    quota = [each for each in found if each["kind"] == "ResourceQuota" and each["namespace"] == name]
    (hard,) = quota[0]["fields"]
    path = f"--for=jsonpath={{.spec.hard.requests\\.cpu}}={hard['after']}"
    assert cli.kubectl("wait", "resourcequota", "tenantry-quota", "-n", name, path, PATIENCE).returncode == 0
    after = stored(cli, name)
    for step in (each for each in found if each["by"] == "Apply"):
        key = f"{step['kind']} {step['name']}"
        assert step["fields"] == [msgspec.to_builtins(each) for each in fields(before[key], after[key], "spec")]
    assert before["SliceClaim gpu"] == after["SliceClaim gpu"]
    assert plan(cli, tmp_path, code=0) == []


def test_a_prune_ends_what_the_files_have_no_longer(cli: Cli, name: str, tmp_path: Path) -> None:
    """GitOps: what `kubectl apply --prune -l` deletes, with the namespace; without a label it is refused."""
    file = tmp_path / "all.yaml"
    file.write_text(TENANT % (name, name, "", 4))
    apply(cli, tmp_path)
    cli.run("wait", "tenant", name)
    # kubectl prunes in the namespaces of what it applies.
    rest = TENANT % (name, name, "", 4) + CLAIM % (name, name)
    file.write_text(rest + CHILD % (name, name, 1))
    apply(cli, tmp_path)
    cli.run("wait", "sub", "web", "-n", name)
    web = cli.run("name", name, "web").stdout.strip()
    file.write_text(rest)
    assert plan(cli, tmp_path, code=0) == []
    refused = cli.run("plan", "-f", str(tmp_path), "--prune", code=2).stderr
    assert "give the label that all of them have" in refused
    found = plan(cli, tmp_path, "--prune", "-l", f"suite={name}")
    assert own(found) == ["delete Subnamespace web"]
    (step,) = [each for each in found if each["by"] == "Prune"]
    assert step["consequences"][0]["objects"] == [f"Namespace/{web}"]
    assert step["consequences"][1]["objects"] == ["User ada"]
    kinds = ("tenantry.dev/v1alpha1/Tenant", "tenantry.dev/v1alpha1/Subnamespace")
    apply(cli, tmp_path, "--prune", "-l", f"suite={name}", *(f"--prune-allowlist={each}" for each in kinds))
    assert cli.kubectl("wait", "namespace", web, "--for=delete", PATIENCE).returncode == 0
    # Then the operator lets the Subnamespace go, and gives the tenant its share back.
    cli.run("wait", "sub", "web", "-n", name, "--for", "deleted")
    back = ("resourcequota", "tenantry-quota", "-n", name, "--for=jsonpath={.spec.hard.requests\\.cpu}=4")
    assert cli.kubectl("wait", *back, PATIENCE).returncode == 0
    assert plan(cli, tmp_path, "--prune", "-l", f"suite={name}", code=0) == []


def test_what_the_api_server_would_refuse_is_told(cli: Cli, name: str, tmp_path: Path) -> None:
    """E15: exit code 5, and nothing of a plan; wrong fields are exit code 2, before any request."""
    file = tmp_path / "all.yaml"
    file.write_text(TENANT % (name, name, "", 4))
    apply(cli, tmp_path)
    cli.run("wait", "tenant", name)
    file.write_text(CLAIM % (name, name) + "---\n" + (CLAIM % (name, name)).replace("gpu", "x-" * 23 + "x"))
    said = cli.run("plan", "-f", str(tmp_path), code=5)
    assert said.stdout == ""
    assert "all.yaml, document 2: SliceClaim" in said.stderr
    assert "must be a DNS label of at most 46" in said.stderr
    file.write_text((CLAIM % (name, name)).replace("count", "counts"))
    assert "did you mean count?" in cli.run("plan", "-f", str(tmp_path), code=2).stderr

"""Installing, on a real API server: it takes every object, a second time changes nothing, and all of it goes again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml
from cli_command import PATIENCE, SECONDS, Cli

from tenantry import __version__
from tenantry.api.clusterapi import CLUSTER_API_KINDS, TenantryClusterTemplate
from tenantry.api.marks import INSTALLED_VERSION
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.install import manifests
from tenantry.install.rights import OPERATOR
from tenantry.local.cluster import LocalCluster
from tenantry.local.components import APISERVER

OTHER = "cli-install"
KINDS = (
    "clusterroles,clusterrolebindings,crds,flowschemas,prioritylevelconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
)
NO_NAME = {"TENANTRY_NAME": ""}
HANDOVER = {
    "apiVersion": "tenantry.dev/v1alpha1",
    "kind": "NodeHandover",
    "metadata": {"name": "away"},
    "spec": {"plane": {"namespace": "dear", "name": "prod", "uid": "none"}, "slice": "none"},
}
RETIRED = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "tenantry-made"},
    "spec": {"policyName": "tenantry-made", "validationActions": ["Audit"]},
}
TEMPLATE: dict[str, object] = {
    "apiVersion": TenantryClusterTemplate.resource.api_version,
    "kind": TenantryClusterTemplate.resource.kind,
    "metadata": {"name": "pattern", "namespace": "default"},
    "spec": {"template": {"spec": {}}},
}
DEFAULTS = {
    "apiVersion": TenancyDefaults.resource.api_version,
    "kind": TenancyDefaults.resource.kind,
    "metadata": {"name": "default"},
    "spec": {
        "fairness": {
            "reserved": [{"tenant": "dear", "shares": 1}],
            "trusted": [{"kind": "Namespace", "name": "kube-public"}],
        }
    },
}


@pytest.fixture(scope="module")
def bare(cli: Cli) -> Iterator[Path]:
    """The kubeconfig of a cluster of its own, to install into as if it were not a local one."""
    cli.run("up", "--cluster", OTHER, "--throwaway", "--no-operator", environment=NO_NAME)
    kubeconfig = cli.admin_kubeconfig.parent.parent / OTHER / cli.admin_kubeconfig.name
    canary = ("create", "configmap", "tenantry-canary", "-n", "tenantry-system", "--dry-run=server")
    said = cli.kubectl(*canary, kubeconfig=kubeconfig).stderr
    assert "of Tenantry are in force" in said, "what `up` installs refuses from its end on"
    yield kubeconfig
    cli.run("down", "--cluster", OTHER, "--purge", "--yes", environment=NO_NAME)


def run(cli: Cli, bare: Path, verb: str, *flags: str, code: int = 0) -> list[str]:
    return cli.run(verb, *flags, "--kubeconfig", str(bare), code=code, environment=NO_NAME).stderr.splitlines()


@contextmanager
def operator(cli: Cli, bare: Path, *, loses_rights: bool = False) -> Generator[None]:
    """The operator with the rights of its ServiceAccount, as in the Deployment."""
    account = ("tenantry-operator", "-n", "tenantry-system")
    token = cli.kubectl("create", "token", *account, kubeconfig=bare).stdout.strip()
    config = yaml.safe_load(bare.read_text())
    config["users"][0]["user"] = {"token": token}
    file = cli.folder / "operator.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    with cli.start("operator", "--kubeconfig", str(file), "--metrics-address", "127.0.0.1:0") as process:
        try:
            yield
        finally:
            process.terminate()
            _, said = process.communicate(timeout=SECONDS)
    assert loses_rights or "forbidden" not in said
    assert process.returncode == 0


def test_the_dry_run_needs_no_cluster_and_the_server_takes_all_of_it(cli: Cli, tmp_path: Path) -> None:
    """Strictly: an unknown field would be an error, and a pod that is not restricted a warning."""
    alone = {"TENANTRY_HOME": str(tmp_path), "TENANTRY_NAME": "", "KUBECONFIG": "/nonexistent"}
    file = tmp_path / "install.yaml"
    file.write_text(cli.run("install", "--dry-run", "--image", "example/tenantry:1", environment=alone).stdout)
    arguments = (
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        str(file),
    )
    done = cli.kubectl(*arguments)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert done.stdout.count("serverside-applied (server dry run)") == len(list(yaml.safe_load_all(file.read_text())))


def test_the_dry_run_refuses_a_cluster_that_cannot_be_found(cli: Cli, tmp_path: Path) -> None:
    """A flag that names a cluster is checked as by every other verb; nothing is printed."""
    missing = cli.run("install", "--dry-run", "--kubeconfig", str(tmp_path / "missing"), code=3)
    assert (missing.stdout, "does not exist; name another" in missing.stderr) == ("", True)
    other = ("--kubeconfig", str(cli.admin_kubeconfig), "--context", "z")
    assert "has no context 'z'" in cli.run("install", "--dry-run", *other, code=3).stderr


def test_the_operator_beside_a_cluster_keeps_its_rights(cli: Cli) -> None:
    """The kubeconfig of a local cluster looks like any other: an operator inside would replace the one that runs."""
    before = cli.run("install", "--check", "-o", "json").stdout
    for flags in ((), ("--check",)):
        kubeconfig = ("--kubeconfig", str(cli.admin_kubeconfig))
        done = cli.run("install", *flags, *kubeconfig, code=2, environment=NO_NAME)
        assert "runs beside this cluster" in done.stderr
        assert "--cluster NAME" in done.stderr
    assert cli.run("install", "--check", "-o", "json").stdout == before


def test_the_operators_pod_is_restricted(cli: Cli, tmp_path: Path) -> None:
    """Pod Security `restricted`, which the namespace enforces, admits it."""
    listed = msgspec.json.decode(cli.run("install", "--dry-run", "-o", "json").stdout)
    template = next(item for item in listed["items"] if item["kind"] == "Deployment")["spec"]["template"]
    del template["spec"]["serviceAccountName"]
    file = tmp_path / "pod.json"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        **template,
        "metadata": {"name": "operator", "namespace": "tenantry-system"},
    }
    file.write_bytes(msgspec.json.encode(pod))
    done = cli.kubectl("create", "--dry-run=server", "-f", str(file))
    assert (done.returncode, done.stderr) == (0, "")


def test_install_tells_what_changed_and_uninstall_takes_it_all_back(cli: Cli, bare: Path) -> None:
    """Twice the same changes nothing; tenants prevent an uninstall until a flag confirms it."""
    first = run(cli, bare, "install", "--image", "example/tenantry:1")
    assert "Deployment tenantry-system/tenantry-operator created" in first
    again = run(cli, bare, "install", "--image", "example/tenantry:1")
    everything = len(manifests.everything())
    assert again[-2] == f"0 created, 0 changed, {everything} unchanged"
    newer = run(cli, bare, "install", "--image", "example/tenantry:2")
    assert "Deployment tenantry-system/tenantry-operator changed" in newer

    with operator(cli, bare):
        # The operator has begun to start only.
        patient = ("--wait", "--timeout", "2m")
        run(cli, bare, "tenant", "create", "dear", "--owner", "ada", "--quota", "cpu=1", *patient)
        run(cli, bare, "tenant", "suspend", "dear", "--wait")
        run(cli, bare, "tenant", "resume", "dear", "--wait")
        # The operator adds levels that TenancyDefaults declare.
        made = cli.kubectl("apply", "-f", "-", kubeconfig=bare, stdin=msgspec.json.encode(DEFAULTS).decode())
        assert made.returncode == 0, made.stderr
        level = "prioritylevelconfiguration/tenantry-reserved-dear"
        cli.kubectl("wait", "--for=create", PATIENCE, level, kubeconfig=bare)
    refused = run(cli, bare, "uninstall", "--yes", code=2)
    assert "they would be gone with everything in them: dear; delete them first" in refused[0]
    assert "--yes" in run(cli, bare, "uninstall", "--delete-tenants", code=2)[-1]
    # By the garbage collector: it knows the kind, because `up` starts it after the installation.
    cli.kubectl("delete", "tenant", "dear", "--cascade=foreground", kubeconfig=bare)
    deleted = ("validatingadmissionpolicybinding/tenantry-marks", "clusterrole/tenantry-owners-approve")
    with operator(cli, bare, loses_rights=True):
        cli.kubectl("delete", *deleted, kubeconfig=bare)
        for each in deleted:
            back = cli.kubectl("wait", "--for=create", PATIENCE, each, kubeconfig=bare)
            assert back.returncode == 0, f"the operator restores {each}: {back.stderr}"
        # A finalizer would keep the kind if the operator stopped first.
        made = cli.kubectl("apply", "-f", "-", kubeconfig=bare, stdin=msgspec.json.encode(HANDOVER).decode())
        assert made.returncode == 0, made.stderr
        kept = ("--for=jsonpath={.metadata.finalizers}", PATIENCE, "nodehandover/away")
        assert cli.kubectl("wait", *kept, kubeconfig=bare).returncode == 0
        gone = run(cli, bare, "uninstall", "--yes")
    assert "nodes return from other clusters: away" in gone
    assert gone[-1] == "Namespace tenantry-system deleted"
    assert "install them with `tenantry install`" in run(cli, bare, "get", code=3)[0]
    left = cli.kubectl("get", KINDS, "-o", "name", kubeconfig=bare).stdout
    assert "tenantry-" not in left


def lease_of(cli: Cli, config: Path) -> dict[str, str]:
    """Return the holder of the Lease of operators, and when it has renewed it."""
    lease = ("get", "lease", OPERATOR, "-n", "tenantry-system", "-o", "json")
    found = cli.kubectl(*lease, kubeconfig=config)
    assert found.returncode == 0, found.stderr
    spec = msgspec.json.decode(found.stdout)["spec"]
    return {key: spec.get(key) or "" for key in ("holderIdentity", "renewTime")}


@pytest.mark.long
def test_an_operator_is_not_refused_after_a_restart_of_the_api_server_nor_by_an_uninstall(cli: Cli, bare: Path) -> None:
    """It waits until the API server knows its rights; a local one is stopped before it loses them."""
    cli.run("up", "--cluster", OTHER, environment=NO_NAME)
    local = LocalCluster(OTHER, root=cli.home)
    asyncio.run(local.restart_component(APISERVER, timeout_seconds=SECONDS))
    before = lease_of(cli, bare)
    # The operator works with the API server again when it renews its Lease.
    while (now := lease_of(cli, bare)) == before or not now["holderIdentity"]:
        time.sleep(1)
    # Its watches are there again, or it would not see the tenant.
    run(cli, bare, "tenant", "create", "after", "--owner", "ada", "--wait", "--timeout", "2m")
    said = run(cli, bare, "uninstall", "--yes", "--delete-tenants")
    assert f"the operator of the local cluster {OTHER!r} stopped" in said
    left = cli.kubectl("get", KINDS, "-o", "name", kubeconfig=bare).stdout
    assert "tenantry-" not in left
    log = local.paths.log("operator").read_text()
    assert [line for line in log.splitlines() if "forbidden" in line and "waiting for the API server" not in line] == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--image", ""), "--image '' must be"),
        (("--image", "a b"), "--image 'a b' must be"),
        (("-o", "yaml"), "--dry-run"),
    ],
)
def test_wrong_flags_are_named(cli: Cli, flags: tuple[str, ...], said: str) -> None:
    assert said in cli.run("install", *flags, code=2).stderr


def test_the_check_prints_what_the_cluster_has_and_what_does_not_work_without_the_rest(cli: Cli, bare: Path) -> None:
    """Issue 20, point 1: before an installation, and without one change."""
    flags = ("install", "--check", "--kubeconfig", str(bare))
    answer = cli.run(*flags, "-o", "json", environment=NO_NAME).stdout
    found = msgspec.json.decode(answer)
    parts = {each["name"]: each for each in found["parts"]}
    assert [name for name, each in parts.items() if each["isThere"]] == [
        "Kubernetes",
        "ValidatingAdmissionPolicy v1",
        "MutatingAdmissionPolicy v1",
    ]
    assert parts["RuntimeClasses"]["detail"] == "isolation.runtime of a Tenant cannot be Sandboxed"
    lines = cli.run(*flags, environment=NO_NAME).stdout.splitlines()
    assert lines[0].split() == ["PART", "THERE", "DETAIL"]
    assert [line.split("  ")[0] for line in lines[1 : 1 + len(parts)]] == list(parts)
    assert f"; an installation of {found['installation']['version']}: " in lines[-1]


def test_the_check_prints_what_an_upgrade_changes_and_the_upgrade_does_that(cli: Cli, bare: Path) -> None:
    """Issue 20, point 8: objects of an older version are changed or deleted, and fields are named."""
    flags = ("install", "--image", "example/tenantry:1", "--kubeconfig", str(bare))
    cli.run(*flags, environment=NO_NAME)
    same = msgspec.json.decode(cli.run(*flags, "--check", "-o", "json", environment=NO_NAME).stdout)["installation"]
    assert (same["installed"], same["changes"]) == (same["version"], [])
    assert same["unchanged"] == len(manifests.everything())
    # As an older version would have left them.
    policy = "validatingadmissionpolicy/tenantry-marks"
    added = {"op": "add", "path": "/spec/variables/-", "value": {"name": "older", "expression": "true"}}
    patch = msgspec.json.encode([added]).decode()
    retired = msgspec.json.encode(RETIRED).decode()
    for words, stdin in (
        (("patch", policy, "--type=json", "-p", patch), ""),
        (("delete", "clusterrole", "tenantry-owners-approve"), ""),
        (("apply", "-f", "-"), retired),
        (("patch", "flowschema", "tenantry-operator", "--type=merge", "-p", '{"spec":{"matchingPrecedence":77}}'), ""),
    ):
        done = cli.kubectl(*words, stdin=stdin, kubeconfig=bare)
        assert done.returncode == 0, done.stderr
    newer = ("--image", "example/tenantry:2", "--kubeconfig", str(bare))
    text = cli.run("install", *newer, "--check", environment=NO_NAME).stdout.splitlines()
    rows = {tuple(line.split()[:3]): line.split()[3:] for line in text if line.split()[:1] != ["PART"]}
    assert rows["changed", "ValidatingAdmissionPolicy", "tenantry-marks"] == ["spec.variables"]
    assert rows["changed", "Deployment", "tenantry-system/tenantry-operator"] == ["spec.template.spec.containers"]
    assert rows["changed", "FlowSchema", "tenantry-operator"] == ["spec.matchingPrecedence"]
    assert ("created", "ClusterRole", "tenantry-owners-approve") in rows
    assert ("deleted", "ValidatingAdmissionPolicyBinding", "tenantry-made") in rows
    assert text[-1].endswith(f"1 created, 3 changed, 1 deleted, {len(manifests.everything()) - 4} unchanged")
    said = cli.run("install", *newer, environment=NO_NAME).stderr.splitlines()
    assert f"1 created, 3 changed, {len(manifests.everything()) - 4} unchanged" in said
    assert "tenantry-made" not in cli.kubectl("get", KINDS, "-o", "name", kubeconfig=bare).stdout
    cli.run("uninstall", "--yes", "--kubeconfig", str(bare), environment=NO_NAME)


def test_uninstall_removes_what_every_option_and_older_versions_installed(cli: Cli, bare: Path) -> None:
    """B02: also the kinds of Cluster API, while no object needs them; a newer version is left as it is."""

    def kubectl(*words: str, **body: object) -> str:
        stdin = msgspec.json.encode(body).decode() if body else ""
        done = cli.kubectl(*words, stdin=stdin, kubeconfig=bare)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(cli, bare, "install", "--image", "example/tenantry:1", "--cluster-api-provider", "--cluster-api-clusters")
    kubectl("apply", "-f", "-", **RETIRED)
    kubectl("apply", "-f", "-", **TEMPLATE)
    kind = ("label", "crd", "tenants.tenantry.dev", "--overwrite")
    kubectl(*kind, f"{INSTALLED_VERSION}=99.0.0")
    assert "the cluster has Tenantry 99.0.0" in run(cli, bare, "uninstall", "--yes", code=3)[0]
    kubectl(*kind, f"{INSTALLED_VERSION}={__version__}")
    refused = run(cli, bare, "uninstall", "--yes", code=2)
    assert "TenantryClusterTemplate default/pattern; delete these Clusters" in refused[-1]
    kubectl("delete", "-f", "-", **TEMPLATE)
    run(cli, bare, "uninstall", "--yes")
    assert "tenantry-" not in kubectl("get", KINDS, "-o", "name")
    kubectl("wait", "--for=delete", PATIENCE, *(f"crd/{each.resource.full_name}" for each in CLUSTER_API_KINDS))

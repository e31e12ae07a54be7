"""`tenantry explain denied` and `who-can`, on a real control plane with a real operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from cli_command import SECONDS, Cli

Json = dict[str, Any]
RULES: Json = {"podSecurity": {"level": "Restricted"}, "images": {"allowed": ["registry[.]example[.]com/.*"]}}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "hostNetwork": True,
        "containers": [
            {"name": "c", "image": "registry.example.com/web", "securityContext": {"privileged": True}},
        ],
    },
}
TENANT = "denials"


def workload(kind: str, api_version: str, **spec: object) -> Json:
    """Return a workload whose pods run as root."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": POD["spec"]["containers"], **spec}}
    inner: Json = {"template": template}
    if not spec:
        inner |= {"selector": {"matchLabels": {"a": "b"}}}
    if kind == "CronJob":
        inner = {"schedule": "0 0 * * *", "jobTemplate": {"spec": inner}}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "shop"}, "spec": inner}


WORKLOADS = [
    workload("Deployment", "apps/v1"),
    workload("StatefulSet", "apps/v1"),
    workload("DaemonSet", "apps/v1"),
    workload("Job", "batch/v1", restartPolicy="Never"),
    workload("CronJob", "batch/v1", restartPolicy="Never"),
]


def denied(cli: Cli, *manifests: Json, namespace: str = TENANT, user: str = "ada", code: int = 1) -> list[Json]:
    """Return what is told of manifests."""
    text = yaml.safe_dump_all(manifests)
    arguments = ("explain", "denied", "-f", "-", "-n", namespace, "--as", user, "-o", "json")
    objects: list[Json] = msgspec.json.decode(cli.run(*arguments, stdin=text, code=code).stdout)["objects"]
    return objects


def settled(cli: Cli, manifest: Json, namespace: str = TENANT) -> None:
    """Wait until the API server goes by the rules that were written last."""
    end = time.monotonic() + SECONDS
    while not all(each["agrees"] for each in denied(cli, manifest, namespace=namespace)[0]["servers"]):
        assert time.monotonic() < end


@pytest.fixture(scope="module")
def tenant(cli: Cli) -> Iterator[None]:
    """A tenant of ada's with rules, and a workspace with one rule more."""
    cli.run("tenant", "create", TENANT, "--owner", "ada", "--quota", "cpu=1,memory=2Gi,pods=2", "--wait")
    patch = msgspec.json.encode({"spec": {"rules": RULES}}).decode()
    assert not cli.kubectl("patch", "tenant", TENANT, "--type=merge", "-p", patch).returncode
    cli.run("wait", "tenant", TENANT)
    cli.await_pods("ada", TENANT)
    settled(cli, POD)
    yield
    cli.run("delete", "tenant", TENANT, "--yes", "--no-wait")


@pytest.mark.usefixtures("tenant")
def test_everything_that_is_against_a_pod_is_told_with_who_set_it(cli: Cli) -> None:
    """X07: the API server tells one thing at a time; here is all of it, from where, by whom, and what would pass."""
    (answer,) = denied(cli, POD)
    rules = {each["rule"]: each for each in answer["causes"]}
    assert {"podSecurity.privileged", "podSecurity.hostNamespaces", "podSecurity.runAsRoot"} <= rules.keys()
    privileged = rules["podSecurity.privileged"]
    assert privileged["source"] == f"Tenant '{TENANT}'"
    assert privileged["author"]["manager"] == "kubectl-patch"
    assert privileged["fix"] == "set securityContext.privileged to false"
    assert answer["servers"][0]["agrees"] is True


@pytest.mark.usefixtures("tenant")
@pytest.mark.parametrize("manifest", [POD, *WORKLOADS], ids=lambda manifest: manifest["kind"])
def test_what_is_fixed_passes(cli: Cli, manifest: Json) -> None:
    """X07: a pod and the pods of each workload, made to keep the rules: the API server takes them as the user's."""
    asked = ("explain", "denied", "-f", "-", "-n", TENANT, "--as", "ada", "--fix")
    fixed = cli.run(*asked, stdin=yaml.safe_dump(manifest)).stdout
    again = denied(cli, yaml.safe_load(fixed), code=0)
    assert not again[0]["denied"]
    done = cli.kubectl("create", "--dry-run=server", "-f", "-", "-n", TENANT, "--as", "ada", stdin=fixed)
    assert not done.returncode, done.stderr


@pytest.mark.usefixtures("tenant")
def test_what_else_would_refuse_is_told(cli: Cli) -> None:
    """X07: rights, quota with who is short, and Kubernetes' own checks, beside the rules."""
    fixed = yaml.safe_load(
        cli.run(
            *("explain", "denied", "-f", "-", "-n", TENANT, "--as", "ada", "--fix"), stdin=yaml.safe_dump(POD)
        ).stdout
    )
    resources = {"cpu": "3", "memory": "64Mi"}
    fixed["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    (answer,) = denied(cli, fixed)
    (quota,) = answer["causes"]
    assert (quota["by"], quota["fix"]) == ("Quota", f"raise spec.quota.hard[requests.cpu] of Tenant '{TENANT}' by 2")
    # Once more where the rules are in the way, too.
    fixed["spec"]["hostNetwork"] = True
    assert [each["by"] for each in denied(cli, fixed)[0]["causes"]] == ["Rule", "Quota"]
    wrong = {**POD, "spec": {"containers": [{"name": "c", "image": "registry.example.com/x", "imgae": "y"}]}}
    assert any(each["by"] == "Validation" and "imgae" in each["message"] for each in denied(cli, wrong)[0]["causes"])
    (answer,) = denied(cli, POD, user="mallory")
    assert {each["by"] for each in answer["causes"]} == {"Rights"}


@pytest.mark.usefixtures("tenant")
def test_nothing_is_told_of_others(cli: Cli) -> None:
    """X07: who has no rights in a namespace is told the same of it as of one that is not there."""

    def told(namespace: str) -> str:
        return msgspec.json.encode(denied(cli, POD, namespace=namespace, user="mallory")).decode()

    assert told(TENANT).replace(TENANT, "x") == told("nowhere").replace("nowhere", "x")


# -- who-can --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tenant")
def test_who_can_from_the_command_line(cli: Cli) -> None:
    """X07: an administrator sees all users; an owner sees those of the namespace, and that others are omitted."""
    found = cli.json("explain", "who-can", "delete", "deploy", "web", "-n", TENANT, "-o", "json")
    assert (found["resource"], found["group"], found["name"]) == ("deployments", "apps", "web")
    assert any(each["isClusterWide"] for each in found["holders"])
    text = cli.run("explain", "who-can", "get", "pods/log", "-n", TENANT, "--as", "ada").stdout
    assert "User ada (owner)   RoleBinding tenantry-owner   ClusterRole tenantry-owner   <none>" in text
    assert "note: cluster-wide rights are not shown: you may not read ClusterRoleBindings" in text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("who-can", "get", "nonsense", "-n", TENANT), 2, "no resource 'nonsense'"),
        (("who-can", "Get!", "pods", "-n", TENANT), 2, "must be a verb"),
        (("who-can", "delte", "pods", "-n", TENANT), 2, "'delte' is no verb of Kubernetes, and no role here has it"),
        (("who-can", "lsit", "pods", "-n", TENANT), 2, "did you mean list?"),
        (("who-can", "get", "pods", "-n", TENANT, "--as", "mallory"), 5, "forbidden"),
        (("denied", "-f", "-", "-n", TENANT), 2, "has no documents"),
        (("denied", "-f", "-", "-n", TENANT, "--as-group", "g"), 2, "--as-group needs --as"),
    ],
)
@pytest.mark.usefixtures("tenant")
def test_bad_questions(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    """X07, E15."""
    assert said in cli.run("explain", *arguments, code=code).stderr


@pytest.mark.usefixtures("tenant")
@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("- a", "must be an object"),
        ("kind: Pod", "apiVersion must be given"),
        ("{apiVersion: v1, kind: Nothing}", "no kind 'Nothing'"),
        ("{apiVersion: v1, kind: Pod, metadata: {namespace: other}}", "metadata.namespace is 'other'"),
        ("{apiVersion: v1, kind: Pod, metadata: []}", ""),
    ],
)
def test_what_is_no_manifest(cli: Cli, manifest: str, said: str) -> None:
    """X07, E15."""
    code = 2 if said else 1
    assert said in cli.run("explain", "denied", "-f", "-", "-n", TENANT, stdin=manifest, code=code).stderr


MISSHAPEN: list[Json] = [
    {"spec": "x"},
    {"spec": {"containers": "x"}},
    {"spec": {"containers": [{"name": 3, "image": []}]}},
    {"spec": {"containers": [{}]}},
    {"spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "many"}}}]}},
    {"spec": {"containers": [{"name": "c", "image": "x", "securityContext": 3}], "volumes": {}}},
    {"spec": {"template": {"spec": 3}, "replicas": "x", "volumeClaimTemplates": [3]}},
    {"spec": {"template": {"metadata": 3, "spec": {"containers": None}}}},
]


@pytest.mark.usefixtures("tenant")
@pytest.mark.parametrize(("version", "kind"), [("v1", "Pod"), ("apps/v1", "StatefulSet"), ("v1", "Service")])
def test_manifests_of_no_shape(cli: Cli, version: str, kind: str) -> None:
    """X07: what the API server cannot even read is denied because of that, and nothing breaks."""
    head = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
    for each in denied(cli, *({**head, **manifest} for manifest in MISSHAPEN)):
        assert {"Validation", "Rule"} & {cause["by"] for cause in each["causes"]}, each


def test_what_is_only_warned_of_is_no_denial(cli: Cli) -> None:
    """X07, E15: rules that warn are told as such, with the Subnamespace that set them, to an owner."""
    name = f"{TENANT}-warned"
    cli.run("tenant", "create", name, "--owner", "ada", "--wait")
    try:
        cli.run("sub", "create", "web", "-n", name, "--wait")
        child = cli.run("name", name, "web").stdout.strip()
        rules: Json = {"podSecurity": {"action": "Warn", "level": "Restricted"}, "scheduling": {"tolerations": []}}
        patch = msgspec.json.encode({"spec": {"rules": rules}}).decode()
        assert not cli.kubectl("patch", "sub", "web", "-n", name, "--type=merge", "-p", patch).returncode
        cli.run("wait", "sub", "web", "-n", name)
        cli.await_pods("ada", child)
        file = cli.folder / "warned.kubeconfig"
        file.write_text(cli.run("kubeconfig", "-n", child, "--expires", "10m").stdout)
        pod = {**POD, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        asked = ("explain", "denied", "-f", "-", "-n", child, "--kubeconfig", str(file), "-o", "json")
        told = cli.run(*asked, stdin=yaml.safe_dump(pod), environment={"TENANTRY_NAME": ""}).stdout
        (answer,) = msgspec.json.decode(told)["objects"]
        assert not answer["denied"]
        (warned,) = [each for each in answer["causes"] if each["rule"] == "podSecurity.runAsRoot"]
        assert (warned["action"], warned["source"]) == ("Warn", f"Subnamespace '{name}/web'")
        pod["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        settled(cli, pod, child)
        refused = [each for each in denied(cli, pod, namespace=child)[0]["causes"] if each.get("action") != "Warn"]
        assert [each["rule"] for each in refused] == ["scheduling.tolerations"]
    finally:
        cli.run("delete", "tenant", name, "--yes", "--no-wait")

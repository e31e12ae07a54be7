"""The chart as the real Helm renders it: the objects of `tenantry install`, its values, and what its schema refuses."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantry.install import manifests
from tenantry.install.fallback import MutationForm
from tenantry.kube.version import OLDEST
from testkit import tools
from testkit.helm import CHART, Helm

Json = dict[str, Any]
Key = tuple[str, str, str]

chart = tools.load("chart")
HOOK = "helm.sh/hook"
SUPPORTED = ".".join(map(str, OLDEST))


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path)


async def rendered(helm: Helm, *values: str, version: str = "1.36.0") -> tuple[list[Json], list[Json]]:
    """Return the objects of a release, and those of its hooks."""
    text = await helm("template", "tenantry", str(CHART), "--kube-version", version, *values)
    found = [each for each in yaml.safe_load_all(text) if each is not None]
    hooks = [each for each in found if HOOK in each["metadata"].get("annotations", {})]
    return [each for each in found if each not in hooks], hooks


def key_of(value: Json) -> Key:
    return value["kind"], value["metadata"].get("namespace", ""), value["metadata"]["name"]


async def installed(*flags: str) -> dict[Key, Json]:
    """Return the objects that the command would apply."""
    command = (sys.executable, "-m", "tenantry", "install", "--dry-run", "-o", "json", *flags)
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    return {key_of(each): each for each in json.loads(done.stdout)["items"]}


async def test_the_chart_renders_what_the_command_installs(helm: Helm) -> None:
    """B02: object by object; the operator writes those that are left out."""
    wanted = await installed()
    objects, hooks = await rendered(helm)
    found = {key_of(each): each for each in objects}
    assert len(found) == len(objects)
    omitted = {key for key in wanted if (key[0], key[2]) in chart.OMITTED}
    assert len(omitted) == len(chart.OMITTED)
    assert found.keys() == wanted.keys() - omitted
    for key, each in found.items():
        assert each == wanted[key], key
    # `helm template | kubectl apply` applies hooks, too: this one changes nothing then.
    (hook,) = hooks
    hook["metadata"].pop("annotations")
    assert hook == wanted[key_of(hook)]


async def test_an_older_kubernetes_gets_the_webhook_instead_of_mutating_policies(helm: Helm) -> None:
    whole: list[Json] = json.loads(json.dumps(manifests.everything(form=MutationForm.WEBHOOK)))
    wanted = {key_of(each): each for each in whole if chart.key_of(each) not in chart.OMITTED}
    objects, _ = await rendered(helm, version=f"{SUPPORTED}.0")
    assert {key_of(each): each for each in objects} == wanted


async def test_values_reach_the_objects(helm: Helm, tmp_path: Path) -> None:
    values: Json = {
        "replicas": 3,
        "image": {"repository": "registry.example:5000/tenantry", "tag": "9", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "control", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "podAnnotations": {"example.com/scrape": "yes"},
        "metrics": {
            "tenants": 7,
            "serviceMonitor": {"enabled": True, "interval": "5s", "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True},
        },
        "defaults": {"rules": {"standard": "Restricted"}},
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    objects, hooks = await rendered(helm, "--values", str(file))
    by_key = {key_of(each): each for each in objects}
    deployment = by_key["Deployment", "tenantry-system", "tenantry-operator"]["spec"]
    pod = deployment["template"]
    (container,) = pod["spec"]["containers"]
    assert deployment["replicas"] == 3
    assert container["image"] == "registry.example:5000/tenantry:9"
    assert (container["imagePullPolicy"], container["resources"]) == ("Always", values["resources"])
    assert container["args"][-2:] == ["--metrics-tenants", "7"]
    assert pod["metadata"]["annotations"] == values["podAnnotations"]
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
        assert pod["spec"][name] == values[name]
    monitor = by_key["ServiceMonitor", "tenantry-system", "tenantry-operator"]
    assert monitor["spec"]["endpoints"][0]["interval"] == "5s"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    alerts = by_key["PrometheusRule", "tenantry-system", "tenantry"]
    assert alerts["spec"] == chart.observability.prometheus_rule()["spec"]  # with templates of Prometheus
    (defaults,) = [each for each in hooks if each["kind"] == "TenancyDefaults"]
    assert defaults["spec"] == values["defaults"]


async def test_one_replica_has_no_budget_that_would_block_a_drain(helm: Helm) -> None:
    objects, _ = await rendered(helm, "--set", "replicas=1")
    assert "PodDisruptionBudget" not in {each["kind"] for each in objects}


async def test_a_digest_replaces_the_tag(helm: Helm) -> None:
    digest = f"sha256:{'0a' * 32}"
    objects, _ = await rendered(helm, "--set", f"image.digest={digest},image.tag=v9")
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == f"tenantry@{digest}"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("replica=1", "'replica' not allowed"),
        ("replicas=0", "'/replicas'"),
        ("replicas=two", "'/replicas'"),
        ("image.tag=a b", "'/image/tag'"),
        ("image.digest=sha256:00", "'/image/digest'"),
        ("image.pullPolicy=Sometimes", "'/image/pullPolicy'"),
        ("resources.limits.memory=much", "'/resources/limits/memory'"),
        ("resources.limit.memory=1Gi", "'limit' not allowed"),
        ("metrics.tenants=-1", "'/metrics/tenants'"),
        ("metrics.serviceMonitor.enabled=maybe", "'/metrics/serviceMonitor/enabled'"),
        ("metrics.serviceMonitor.interval=often", "'/metrics/serviceMonitor/interval'"),
        ("defaults.rules.standard=Loose", "'/defaults/rules/standard'"),
        ("defaults.rules.podSecurity.privilege=Allowed", "'privilege' not allowed"),
        ("defaults.rule.standard=Restricted", "'rule' not allowed"),
    ],
)
async def test_the_schema_refuses_unknown_and_wrong_values(helm: Helm, value: str, path: str) -> None:
    """The message names the value, and nothing is rendered."""
    told = await helm.refuses("template", "tenantry", str(CHART), "--set", value)
    assert "values don't meet the specifications of the schema" in told
    assert path in told
    assert "kind:" not in told


async def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    major, minor = OLDEST
    told = await helm.refuses("template", "tenantry", str(CHART), "--kube-version", f"{major}.{minor - 1}.9")
    assert f"chart requires kubeVersion: >={SUPPORTED}.0-0" in told
    # The versions of distributions have a suffix.
    await helm("template", "tenantry", str(CHART), "--kube-version", f"v{SUPPORTED}.1-gke.100")


async def test_lint_finds_nothing(helm: Helm) -> None:
    told = await helm("lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in told


@pytest.mark.parametrize(
    ("version", "semantic"), [("0.2.0", "0.2.0"), ("0.2.0rc1", "0.2.0-rc.1"), ("1.0.0a2", "1.0.0-a.2")]
)
def test_the_version_of_the_chart_is_semantic(version: str, semantic: str) -> None:
    assert chart.semantic(version) == semantic

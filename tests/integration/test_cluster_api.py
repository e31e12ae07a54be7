"""Cluster API's own managers build Clusters out of control planes and nodes of the host, by the provider (H04)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.clusterapi import (
    CLUSTER_CLASSES,
    CLUSTERS,
    KUBEADM_CONFIGS,
    MACHINES,
    TenantryCluster,
    TenantryMachine,
    TenantryMachineTemplate,
)
from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import ApiError
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit import clusterapimanagers
from testkit.api import SECRETS, Api, until
from testkit.clusterapiobjects import (
    DEPLOYMENTS,
    KUBEADM_PLANES,
    make_class,
    make_cluster,
    make_kubeadm_class,
    remains,
    told,
)
from testkit.installation import install
from testkit.planes import command, ready

pytest_plugins = ["testkit.fixtures"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

Json = dict[str, Any]
WAIT = 400.0


@pytest_asyncio.fixture(scope="module")
async def local(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LocalCluster]:
    """A local cluster with the operator, the provider, Cluster API's managers and six simulated nodes."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    cluster = LocalCluster("capi", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="w", count=6),))
    await cluster.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    try:
        code, _, err = await command(cluster, "install", "--cluster-api-provider", "--cluster-api-clusters")
        assert code == 0, err
        async with (
            Client(kubeconfig.load([cluster.kubeconfig_path])) as client,
            clusterapimanagers.running(cluster, Api(client), tmp_path_factory.mktemp("managers")),
        ):
            yield cluster
    finally:
        await cluster.down(purge=True)


@pytest_asyncio.fixture
async def host(local: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of the cluster."""
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        yield Api(client)


async def available(host: Api, namespace: str, seen: list[str]) -> bool:
    """Return whether the Cluster is Available; `seen` gets its conditions that are not true."""
    found = await host.get(CLUSTERS, "web", namespace)
    seen[:] = told(found)
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def say(capsys: pytest.CaptureFixture[str], what: str, begin: float) -> None:
    """Print how long something took: a person compares it with other runs."""
    with capsys.disabled():
        print(f"{what} after {time.monotonic() - begin:.1f} s")


async def clusterctl_finds_it(local: LocalCluster, host: Api, namespace: str, folder: Path) -> None:
    """Check that Cluster API's command reads the Cluster `web`, and the provider from a local repository."""
    program = (await asyncio.to_thread(build.ensure, SilentProgress(), build.CLUSTERCTL)).clusterctl

    async def clusterctl(*arguments: str) -> str:
        child = await asyncio.create_subprocess_exec(
            *(str(program), *arguments),
            env={**os.environ, "KUBECONFIG": str(local.kubeconfig_path), "CLUSTERCTL_DISABLE_VERSIONCHECK": "true"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate()
        assert child.returncode == 0, err.decode()
        return out.decode()

    tree = await clusterctl("describe", "cluster", "web", "-n", namespace, "--show-conditions", "all")
    for part in (f"TenantryCluster {namespace}/web ", f"TenantryControlPlane {namespace}/web,"):
        assert part in tree, tree
    secret = await host.get(SECRETS, "web-kubeconfig", namespace)
    text = await clusterctl("get", "kubeconfig", "web", "-n", namespace)
    assert text.strip() == base64.b64decode(secret["data"]["value"]).decode().strip()

    code, _, err = await command(
        local, "install", "--cluster-api-provider", "--clusterctl-repository", str(folder / "repository")
    )
    assert code == 0, err
    config = str(folder / "repository" / "clusterctl.yaml")
    printed = await clusterctl("generate", "provider", "--config", config, "--infrastructure", "tenantry")
    for kind in (TenantryCluster, TenantryMachine, TenantryMachineTemplate):
        assert f"name: {kind.resource.full_name}" in printed
    pattern = folder / "cluster.yaml"
    pattern.write_text('kind: TenantryCluster\nmetadata: {name: "${CLUSTER_NAME}", namespace: "${NAMESPACE}"}\n')
    made = await clusterctl("generate", "cluster", "shop", "-n", namespace, "--from", str(pattern), "--config", config)
    assert f"name: shop\n  namespace: {namespace}" in made


async def as_json(local: LocalCluster, *words: str) -> Any:  # noqa: ANN401 - JSON
    """Return what a command prints with -o json."""
    code, out, err = await command(local, *words, "-o", "json")
    assert code == 0, err
    return json.loads(out)


async def test_a_cluster_with_a_machine_deployment_becomes_available_scales_and_ends(
    local: LocalCluster, host: Api, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """H04: what `clusterctl` users do, with the managers and the command that they use; nothing is left."""
    await host.make_tenant(name)
    begin = time.monotonic()
    # Simulated nodes read no bootstrap data.
    await make_cluster(host, "web", name, {"dataSecretName": "none"}, 2)
    seen: list[str] = []

    async def running(count: int) -> bool:
        found = await host.list(MACHINES, name)
        seen[:] = [line for each in found for line in told(each)]
        return [each["status"].get("phase") for each in found] == ["Running"] * count

    async def provisioned() -> bool:
        found = await host.get(CLUSTERS, "web", name)
        seen[:] = told(found)
        return bool(found.get("status", {}).get("phase") == "Provisioned")

    await until(provisioned, "the Cluster is Provisioned", seconds=WAIT, seen=lambda: seen)
    say(capsys, "provisioned", begin)
    await until(lambda: running(2), "both Machines are Running", seconds=WAIT, seen=lambda: seen)
    say(capsys, "running", begin)
    await until(
        lambda: available(host, name, seen),
        "the Cluster is Available",
        seconds=WAIT,
        seen=lambda: seen,
    )
    say(capsys, "available", begin)
    await clusterctl_finds_it(local, host, name, tmp_path)

    await host.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, name)
    begin = time.monotonic()
    await until(lambda: running(1), "one Machine is left", seconds=WAIT, seen=lambda: seen)
    say(capsys, "scaled", begin)

    await host.delete(CLUSTERS, "web", name)
    begin = time.monotonic()

    async def ended() -> bool:
        seen[:] = await remains(host)
        return not seen

    await until(ended, "nothing is left of the Cluster", seconds=WAIT, seen=lambda: seen)
    say(capsys, "deleted", begin)


async def offer(host: Api, name: str, of_class: Json, **more: Any) -> None:  # noqa: ANN401 - fields of clusterApi
    """Create a ClusterTemplate that names a ClusterClass."""
    spec: Json = {"versions": ["1.36"], "clusterApi": {"classRef": of_class, "workerClass": "node", **more}}
    await host.create(ClusterTemplate.resource, {"metadata": {"name": name}, "spec": spec})


async def demand(host: Api, name: str, namespace: str, template: str, nodes: int = 1) -> None:
    """Create a DedicatedCluster of a template."""
    wanted: Json = {"metadata": {"name": name}, "spec": {"template": template, "nodes": nodes}}
    await host.create(DedicatedCluster.resource, wanted, namespace)


async def test_a_dedicated_cluster_is_built_by_cluster_api_out_of_nodes_of_this_cluster(
    local: LocalCluster, host: Api, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """H04: both directions at once, with a one-time token for each Machine; what others set in the Cluster stays."""
    await host.make_tenant(name)
    await make_class(host, "c", name)
    await offer(host, name, {"name": "c"})
    begin = time.monotonic()
    made = await as_json(local, "cluster", "create", "prod", "-n", name, "--nodes", "2", "--template", name)
    assert made["spec"]["template"] == name
    seen: list[str] = []

    async def is_ready(count: int) -> bool:
        found = await host.get(DedicatedCluster.resource, "prod", name)
        seen[:] = told(found)
        status: Json = found.get("status", {})
        conditions: list[Json] = status.get("conditions", [])
        holds = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return holds and status["readyNodes"] == f"{count}/{count}"

    await until(lambda: is_ready(2), "the DedicatedCluster is Ready", seconds=WAIT, seen=lambda: seen)
    say(capsys, "ready", begin)
    found = await host.get(DedicatedCluster.resource, "prod", name)
    assert (found["status"]["provider"], found["status"]["kubeconfigSecret"]) == ("ClusterApi", "prod-kubeconfig")
    configs = await host.list(KUBEADM_CONFIGS, name)
    discoveries = [each["spec"]["joinConfiguration"]["discovery"]["bootstrapToken"] for each in configs]
    assert len({each["token"] for each in discoveries}) == 2
    code, text, err = await command(local, "cluster", "kubeconfig", "prod", "-n", name)
    assert (code, "certificate-authority-data" in text) == (0, True), err

    await host.patch(CLUSTERS, "prod", {"metadata": {"annotations": {"example.com/own": "kept"}}}, name)
    place = ("prod", "-n", name)
    (listed,) = (await as_json(local, "cluster", "list", "-n", name))["items"]
    described = await as_json(local, "cluster", "describe", *place)
    code, _, err = await command(local, "cluster", "wait", *place)
    assert code == 0, err
    for each in (listed, described):
        assert each["status"]["provider"] == "ClusterApi", each
    assert described["status"]["pools"] == [{"name": "default", "want": 2, "ready": 2}]
    scaled = await as_json(local, "cluster", "scale", *place, "--nodes", "1")
    assert scaled["spec"].get("nodes", 1) == 1
    begin = time.monotonic()
    await until(lambda: is_ready(1), "one node is left", seconds=WAIT, seen=lambda: seen)
    say(capsys, "scaled", begin)
    assert (await host.get(CLUSTERS, "prod", name))["metadata"]["annotations"]["example.com/own"] == "kept"

    begin = time.monotonic()
    ending = await as_json(local, "cluster", "delete", *place, "--yes", "--no-wait")
    assert ending["metadata"]["name"] == "prod"

    async def ended() -> bool:
        seen[:] = await remains(host)
        seen.extend(each["metadata"]["name"] for each in await host.list(DedicatedCluster.resource))
        return not seen

    await until(ended, "nothing is left of the cluster", seconds=WAIT, seen=lambda: seen)
    say(capsys, "deleted", begin)


async def condition(host: Api, name: str, namespace: str, reason: str, part: str) -> None:
    """Wait until Ready of a DedicatedCluster has a reason and a text in its message."""
    seen: list[str] = []

    async def so() -> bool:
        found = ready(await host.get(DedicatedCluster.resource, name, namespace))
        seen[:] = [f"{found.get('reason')}: {found.get('message')}"]
        return found.get("reason") == reason and part in found["message"]

    await until(so, f"DedicatedCluster {name} has {reason}", seconds=WAIT, seen=lambda: seen)


async def gone(host: Api, name: str, namespace: str) -> None:
    """Delete a DedicatedCluster, and wait until nothing is left of it."""
    await host.delete(DedicatedCluster.resource, name, namespace)
    await host.gone(DedicatedCluster.resource, name, namespace)
    assert await host.find(CLUSTERS, name, namespace) is None


async def test_a_cluster_with_a_kubeadm_control_plane_reports_what_it_waits_for_and_ends(host: Api, name: str) -> None:
    """H04: accepted by the webhooks of the kubeadm control plane provider; nothing here completes it (design 4.6)."""
    await host.make_tenant(name)
    await make_kubeadm_class(host, "k", name)
    await offer(host, name, {"name": "k"})
    await demand(host, "kubeadm", name, name)
    seen: list[str] = []

    async def waits() -> bool:
        found = await host.get(DedicatedCluster.resource, "kubeadm", name)
        seen[:] = told(found)
        return "ControlPlaneReady: Cluster API: Control plane not yet initialized" in seen

    await until(waits, "it waits for its control plane", seconds=WAIT, seen=lambda: seen)
    found = await host.get(DedicatedCluster.resource, "kubeadm", name)
    assert (found["status"]["provider"], found["status"].get("version", "")) == ("ClusterApi", "")
    (plane,) = await host.list(KUBEADM_PLANES, name)
    assert (plane["spec"]["version"], plane["spec"]["replicas"]) == ("v1.36.0", 1)
    await gone(host, "kubeadm", name)
    assert await remains(host) == []


async def test_what_cluster_api_lacks_or_refuses_is_a_condition_that_says_what_to_do(host: Api, name: str) -> None:
    """H04: a class that is missing, of another namespace, in use, or without the version; workers it does not have."""
    await host.make_tenant(name)
    await host.make_tenant(f"{name}-classes")
    await make_class(host, "c", f"{name}-classes", kubernetesVersions=["v1.36.1", "v1.36.3"])
    await make_class(host, "old", name, kubernetesVersions=["v1.35.4"])
    away: Json = {"name": "c", "namespace": f"{name}-classes"}
    for template, of_class, more in (
        ("missing", {"name": "later"}, {}),
        ("away", away, {}),
        ("old", {"name": "old"}, {}),
        ("workers", away, {"workerClass": "gpu"}),
    ):
        await offer(host, f"{name}-{template}", of_class, **more)
        await demand(host, template, name, f"{name}-{template}", 0)
    todo = f"there is no ClusterClass '{name}/later': an administrator must create it, or name another one"
    await condition(host, "missing", name, "UnknownClusterClass", todo)
    correct = f"have an administrator correct spec.clusterApi of ClusterTemplate '{name}-"
    await condition(host, "old", name, "InvalidSpec", f"{correct}old' or the ClusterClass: ")
    await condition(host, "workers", name, "InvalidSpec", f"{correct}workers' or the ClusterClass: ")
    await condition(host, "away", name, "Established", "is Available")
    version = (await host.get(CLUSTERS, "away", name))["spec"]["topology"]["version"]
    assert version == "v1.36.3", "the latest that the class has"

    # Ours are brought back; what others set beside them stays.
    found = await host.get(CLUSTERS, "away", name)
    (deployment,) = found["spec"]["topology"]["workers"]["machineDeployments"]
    edited = [{**deployment, "replicas": 2, "minReadySeconds": 1}, {"class": "node", "name": "theirs", "replicas": 0}]
    topology: Json = {"workers": {"machineDeployments": edited}, "controlPlane": {"metadata": {"labels": {"a": "b"}}}}
    await host.patch(CLUSTERS, "away", {"spec": {"topology": topology}}, name)
    now: Json = {}

    async def restored() -> bool:
        now.update((await host.get(CLUSTERS, "away", name))["spec"]["topology"])
        return now["workers"]["machineDeployments"][0]["replicas"] == 0

    await until(restored, "the number of nodes is that of the DedicatedCluster", seconds=WAIT, seen=lambda: [str(now)])
    ours, theirs = now["workers"]["machineDeployments"]
    assert (ours["minReadySeconds"], theirs["name"]) == (1, "theirs")
    assert now["controlPlane"]["metadata"]["labels"] == {"a": "b"}

    # Cluster API keeps a class that is used; without its webhook, or by force, it can be gone all the same.
    with pytest.raises(ApiError, match="is used by"):
        await host.delete(CLUSTER_CLASSES, "c", f"{name}-classes")
    await make_class(host, "later", name)
    await condition(host, "missing", name, "Established", "is Available")
    for each in ("missing", "away", "old", "workers"):
        await gone(host, each, name)

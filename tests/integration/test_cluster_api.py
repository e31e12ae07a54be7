"""Cluster API's own managers build Clusters out of control planes and nodes of the host, by the provider (H04)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.clusterapi import (
    CLUSTERS,
    CONTROL_PLANE_GROUP,
    INFRASTRUCTURE_GROUP,
    TenantryCluster,
    TenantryClusterTemplate,
    TenantryControlPlane,
    TenantryControlPlaneTemplate,
    TenantryMachine,
    TenantryMachineTemplate,
)
from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import Resource
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit import clusterapimanagers
from testkit.api import SECRETS, Api, until
from testkit.installation import install
from testkit.planes import command

pytest_plugins = ["testkit.fixtures"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

Json = dict[str, Any]
WAIT = 400.0
CLASSES = Resource("cluster.x-k8s.io", "v1beta2", "clusterclasses", "ClusterClass")
CONFIG_TEMPLATES = Resource("bootstrap.cluster.x-k8s.io", "v1beta2", "kubeadmconfigtemplates", "KubeadmConfigTemplate")
CONFIGS = Resource("bootstrap.cluster.x-k8s.io", "v1beta2", "kubeadmconfigs", "KubeadmConfig")
DEPLOYMENTS = Resource("cluster.x-k8s.io", "v1beta2", "machinedeployments", "MachineDeployment")
MACHINES = Resource("cluster.x-k8s.io", "v1beta2", "machines", "Machine")


@pytest_asyncio.fixture(scope="module")
async def local(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LocalCluster]:
    """A local cluster with the operator, the provider, Cluster API's managers and four simulated nodes."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    cluster = LocalCluster("capi", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="w", count=4),))
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


def told(found: Json) -> list[str]:
    """Return the conditions of an object that are not true, with their messages."""
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    return [f"{each['type']}: {each['message']}" for each in conditions if each["status"] != "True"]


async def available(host: Api, namespace: str, seen: list[str]) -> bool:
    """Return whether the Cluster is Available; `seen` gets its conditions that are not true."""
    found = await host.get(CLUSTERS, "web", namespace)
    seen[:] = told(found)
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


async def remains(host: Api) -> list[str]:
    """Return what is there of clusters, and of their nodes."""
    kinds = (
        *(CLUSTERS, MACHINES, TenantryCluster.resource, TenantryControlPlane.resource, TenantryMachine.resource),
        *(VirtualControlPlane.resource, SliceClaim.resource, NodeHandover.resource),
    )
    return [f"{kind.kind} {each['metadata']['name']}" for kind in kinds for each in await host.list(kind)]


def say(capsys: pytest.CaptureFixture[str], what: str, begin: float) -> None:
    """Print how long something took: a person compares it with other runs."""
    with capsys.disabled():
        print(f"{what} after {time.monotonic() - begin:.1f} s")


def reference(group: str, kind: str, name: str) -> Json:
    """Return a reference of contract v1beta2."""
    return {"apiGroup": group, "kind": kind, "name": name}


async def test_a_cluster_with_a_machine_deployment_becomes_available_scales_and_ends(
    host: Api, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """H04: what `clusterctl` users do, with the managers that they use; nothing is left."""
    await host.make_tenant(name)
    begin = time.monotonic()
    spec: Json = {
        "controlPlaneRef": reference(CONTROL_PLANE_GROUP, "TenantryControlPlane", "web"),
        "infrastructureRef": reference(INFRASTRUCTURE_GROUP, "TenantryCluster", "web"),
    }
    await host.create(TenantryCluster.resource, {"metadata": {"name": "web"}}, name)
    plane: Json = {"metadata": {"name": "web"}, "spec": {"version": "v1.36.3"}}
    await host.create(TenantryControlPlane.resource, plane, name)
    template: Json = {"metadata": {"name": "web"}, "spec": {"template": {"spec": {}}}}
    await host.create(TenantryMachineTemplate.resource, template, name)
    await host.create(CLUSTERS, {"metadata": {"name": "web"}, "spec": spec}, name)
    machine: Json = {
        "clusterName": "web",
        "version": "v1.36.3",
        "bootstrap": {"dataSecretName": "none"},
        "infrastructureRef": reference(INFRASTRUCTURE_GROUP, "TenantryMachineTemplate", "web"),
    }
    labels: Json = {"labels": {"pool": "web"}}
    deployment: Json = {
        "clusterName": "web",
        "replicas": 2,
        "selector": {"matchLabels": {"pool": "web"}},
        "template": {"metadata": labels, "spec": machine},
    }
    await host.create(DEPLOYMENTS, {"metadata": {"name": "web", **labels}, "spec": deployment}, name)
    seen: list[str] = []

    async def running(count: int) -> bool:
        found = await host.list(MACHINES, name)
        seen[:] = [line for each in found for line in told(each)]
        return [each["status"].get("phase") for each in found] == ["Running"] * count

    await until(lambda: running(2), "both Machines are Running", seconds=WAIT, seen=lambda: seen)
    await until(
        lambda: available(host, name, seen),
        "the Cluster is Available",
        seconds=WAIT,
        seen=lambda: seen,
    )
    say(capsys, "available", begin)
    assert await host.find(SECRETS, "web-kubeconfig", name)

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


async def make_class(host: Api, name: str) -> None:
    """Create a ClusterClass of the provider's templates, with the kubeadm bootstrap provider."""
    await host.create(TenantryClusterTemplate.resource, {"metadata": {"name": "c"}, "spec": {"template": {}}}, name)
    empty: Json = {"metadata": {"name": "c"}, "spec": {"template": {"spec": {}}}}
    await host.create(TenantryControlPlaneTemplate.resource, empty, name)
    await host.create(TenantryMachineTemplate.resource, empty, name)
    joining: Json = {"template": {"spec": {"joinConfiguration": {"nodeRegistration": {"imagePullPolicy": "Never"}}}}}
    await host.create(CONFIG_TEMPLATES, {"metadata": {"name": "c"}, "spec": joining}, name)

    def template(group: str, kind: str) -> Json:
        version = "v1beta2" if group == CONFIG_TEMPLATES.group else "v1alpha1"
        return {"templateRef": {"apiVersion": f"{group}/{version}", "kind": kind, "name": "c"}}

    worker: Json = {
        "class": "node",
        "bootstrap": template(CONFIG_TEMPLATES.group, CONFIG_TEMPLATES.kind),
        "infrastructure": template(INFRASTRUCTURE_GROUP, "TenantryMachineTemplate"),
    }
    spec: Json = {
        "infrastructure": template(INFRASTRUCTURE_GROUP, "TenantryClusterTemplate"),
        "controlPlane": template(CONTROL_PLANE_GROUP, "TenantryControlPlaneTemplate"),
        "workers": {"machineDeployments": [worker]},
    }
    await host.create(CLASSES, {"metadata": {"name": "c"}, "spec": spec}, name)


async def test_a_dedicated_cluster_is_built_by_cluster_api_out_of_nodes_of_this_cluster(
    local: LocalCluster, host: Api, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """H04: both directions at once, with a one-time token for each Machine; what others set in the Cluster stays."""
    await host.make_tenant(name)
    await make_class(host, name)
    offer: Json = {"versions": ["1.36"], "clusterApi": {"classRef": {"name": "c"}, "workerClass": "node"}}
    await host.create(ClusterTemplate.resource, {"metadata": {"name": name}, "spec": offer})
    begin = time.monotonic()
    wanted: Json = {"metadata": {"name": "prod"}, "spec": {"template": name, "nodes": 2}}
    await host.create(DedicatedCluster.resource, wanted, name)
    seen: list[str] = []

    async def ready(count: int) -> bool:
        found = await host.get(DedicatedCluster.resource, "prod", name)
        seen[:] = told(found)
        status: Json = found.get("status", {})
        conditions: list[Json] = status.get("conditions", [])
        is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return is_ready and status["readyNodes"] == f"{count}/{count}"

    await until(lambda: ready(2), "the DedicatedCluster is Ready", seconds=WAIT, seen=lambda: seen)
    say(capsys, "ready", begin)
    found = await host.get(DedicatedCluster.resource, "prod", name)
    assert (found["status"]["provider"], found["status"]["kubeconfigSecret"]) == ("ClusterApi", "prod-kubeconfig")
    configs = await host.list(CONFIGS, name)
    discoveries = [each["spec"]["joinConfiguration"]["discovery"]["bootstrapToken"] for each in configs]
    assert len({each["token"] for each in discoveries}) == 2
    code, text, err = await command(local, "cluster", "kubeconfig", "prod", "-n", name)
    assert (code, "certificate-authority-data" in text) == (0, True), err

    await host.patch(CLUSTERS, "prod", {"metadata": {"annotations": {"example.com/own": "kept"}}}, name)
    code, _, err = await command(local, "cluster", "scale", "prod", "-n", name, "--nodes", "1")
    assert code == 0, err
    begin = time.monotonic()
    await until(lambda: ready(1), "one node is left", seconds=WAIT, seen=lambda: seen)
    say(capsys, "scaled", begin)
    assert (await host.get(CLUSTERS, "prod", name))["metadata"]["annotations"]["example.com/own"] == "kept"

    await host.delete(DedicatedCluster.resource, "prod", name)
    begin = time.monotonic()

    async def ended() -> bool:
        seen[:] = await remains(host)
        seen.extend(each["metadata"]["name"] for each in await host.list(DedicatedCluster.resource))
        return not seen

    await until(ended, "nothing is left of the cluster", seconds=WAIT, seen=lambda: seen)
    say(capsys, "deleted", begin)

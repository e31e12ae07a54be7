"""A foreign operator with kinds and webhooks of its own, which Helm installs into a virtual control plane (H01).

On real nodes: the API server inside calls the webhooks in a pod of this control plane, through the gate.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from tenantry.local.real import loading
from testkit import clusterapi
from testkit.api import CRDS, PODS, SECONDS, Api, until
from testkit.clusterapi import DEPLOYMENT, NAMESPACE
from testkit.helm import Helm
from testkit.installation import install
from testkit.planes import Planes
from testkit.realpods import START_SECONDS, missing

pytest_plugins = ["testkit.fixtures"]
pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(1800)]

Json = dict[str, Any]
GROUP = "cluster.x-k8s.io"
OLD = Resource(GROUP, "v1beta1", "clusters", "Cluster")
CLUSTERS = Resource(GROUP, "v1beta2", "clusters", "Cluster")
SETS = Resource(GROUP, "v1beta2", "machinesets", "MachineSet")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
INFRASTRUCTURE = "infrastructure.example.com"


@pytest_asyncio.fixture(scope="module")
async def planes(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Planes]:
    """Control planes of a host with one real node, which has the image of the operator."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    folder = tmp_path_factory.mktemp("operator")
    image = folder / "image.tar"
    await asyncio.to_thread(clusterapi.write_image, image)
    cluster = LocalCluster("foreign", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=1, install=install, operator=True, timeout_seconds=180.0))
    real = cluster.real()
    await loading.load(cluster.paths, real.binaries, [each.name for each in real.nodes], image, clusterapi.IMAGE)
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        yield Planes(Api(client), folder)
    await cluster.down(purge=True)


async def test_helm_installs_an_operator_with_webhooks(planes: Planes, name: str, tmp_path: Path) -> None:
    """H01: its kinds, their conversion, its webhooks and its controllers work; an upgrade, and nothing is left."""
    await asyncio.to_thread(clusterapi.write_chart, tmp_path / "chart")
    await planes.host.make_tenant(name, isolation={"runtime": "Shared"})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        helm = Helm(tmp_path / "home", planes.kubeconfig(name, "web"))
        inside_of = ("--namespace", NAMESPACE)
        wait = ("--wait", "--timeout", f"{START_SECONDS:.0f}s")
        await helm("install", "capi", str(tmp_path / "chart"), *inside_of, "--create-namespace", *wait)
        (pod,) = [each for each in await planes.host.list(PODS, name) if DEPLOYMENT in each["metadata"]["name"]]
        assert pod["status"]["phase"] == "Running"

        # Its validating webhook refuses in its own words; the request came in another version than the webhook gets.
        with pytest.raises(ApiError, match=r"cidrBlocks.*nonsense"):
            await inside.create(OLD, cluster("bad", pods="nonsense"), "default")

        # Its conversion serves both versions, and its controller works on what is stored.
        await _infrastructure(inside)
        await inside.create(OLD, cluster("good"), "default")
        assert (await inside.get(OLD, "good", "default"))["spec"]["infrastructureRef"]["apiVersion"] == (
            f"{INFRASTRUCTURE}/v1"
        )
        good = await inside.get(CLUSTERS, "good", "default")
        assert good["spec"]["infrastructureRef"]["apiGroup"] == INFRASTRUCTURE

        async def worked_on() -> bool:
            found = await inside.get(CLUSTERS, "good", "default")
            return bool(found["metadata"].get("finalizers")) and bool(found.get("status", {}).get("conditions"))

        await until(worked_on, "the operator has written a condition", seconds=2 * SECONDS)

        # Its mutating webhook adds a label.
        made = await inside.create(SETS, machines("workers", "good"), "default")
        assert made["metadata"]["labels"][f"{GROUP}/cluster-name"] == "good"

        # An upgrade makes new certificates, which the API server takes at once.
        await helm("upgrade", "capi", str(tmp_path / "chart"), *inside_of, *wait)
        seen: list[str] = []

        async def refused() -> bool:
            with pytest.raises(ApiError) as error:
                await inside.create(OLD, cluster("bad", pods="nonsense"), "default")
            seen[:] = [str(error.value)]
            return bool(re.search(r"cidrBlocks.*nonsense", seen[0]))

        # kubelet brings the changed Secret into the pod within two minutes.
        await until(refused, "the operator has its new certificate", seconds=START_SECONDS, seen=lambda: seen)
        assert re.search(r"capi\s.*\b2\b.*deployed", await helm("list", *inside_of))

        await inside.delete(SETS, "workers", "default")
        await inside.gone(SETS, "workers", "default")
        await inside.delete(CLUSTERS, "good", "default")
        await inside.gone(CLUSTERS, "good", "default")
        await helm("uninstall", "capi", *inside_of, *wait)
        assert not [each for each in await inside.list(CRDS) if each["spec"]["group"] == GROUP]
        await planes.host.gone(PODS, pod["metadata"]["name"], name)


def cluster(name: str, *, pods: str = "10.128.0.0/16") -> Json:
    """Return a Cluster in the version before the stored one."""
    reference = {"apiVersion": f"{INFRASTRUCTURE}/v1", "kind": "TestCluster", "name": name}
    spec = {"clusterNetwork": {"pods": {"cidrBlocks": [pods]}}, "infrastructureRef": reference}
    return {"metadata": {"name": name}, "spec": spec}


def machines(name: str, owner: str) -> Json:
    """Return a MachineSet without machines."""
    reference = {"apiGroup": INFRASTRUCTURE, "kind": "TestMachineTemplate", "name": name}
    template = {
        "clusterName": owner,
        "bootstrap": {"dataSecretName": "none"},
        "infrastructureRef": reference,
        "version": "v1.36.0",
    }
    spec = {"clusterName": owner, "replicas": 0, "selector": {}, "template": {"spec": template}}
    return {"metadata": {"name": name}, "spec": spec}


async def _infrastructure(inside: Api) -> None:
    """Create the kinds of a provider, and let the operator use them."""
    for kind in ("TestCluster", "TestMachineTemplate"):
        plural = f"{kind.lower()}s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        spec = {"group": INFRASTRUCTURE, "names": names, "scope": "Namespaced", "versions": [version]}
        metadata = {"name": f"{plural}.{INFRASTRUCTURE}", "labels": {f"{GROUP}/v1beta2": "v1"}}
        await inside.create(CRDS, {"metadata": metadata, "spec": spec})
    rule = {"apiGroups": [INFRASTRUCTURE], "resources": ["*"], "verbs": ["*"]}
    labels = {f"{GROUP}/aggregate-to-manager": "true"}
    await inside.create(ROLES, {"metadata": {"name": "test-infrastructure", "labels": labels}, "rules": [rule]})

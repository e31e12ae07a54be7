"""The kinds of the provider for Cluster API, with a test in the place of Cluster API's controllers (H04)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest_asyncio
import yaml

from tenantry.api.clusterapi import CLUSTER_NAME, TenantryCluster, TenantryControlPlane, TenantryMachine
from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit.api import SECONDS, SECRETS, Api, until
from testkit.installation import install
from testkit.planes import command

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
PLANES, MACHINES = TenantryControlPlane.resource, TenantryMachine.resource


@pytest_asyncio.fixture
async def host(tenantry_home: Path) -> AsyncGenerator[tuple[LocalCluster, Api]]:
    """A local cluster with the operator and two simulated nodes, and its administrator."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("capikinds", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="w", count=2),))
    await local.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        yield local, Api(client)
    await local.down(purge=True)


def is_ready(found: Json) -> bool:
    """Return whether the condition Ready of an object is true."""
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def told(found: Json) -> list[str]:
    """Return the messages of an object."""
    return [each["message"] for each in found.get("status", {}).get("conditions", [])]


async def _without_cluster_api(api: Api, namespace: str) -> None:
    """Check that a DedicatedCluster that demands Cluster API says that it is not there, and ends."""
    spec: Json = {"clusterApi": {"classRef": {"name": "c"}, "workerClass": "node"}, "versions": ["1.36"]}
    await api.create(ClusterTemplate.resource, {"metadata": {"name": "t"}, "spec": spec})
    wanted: Json = {"metadata": {"name": "prod"}, "spec": {"template": "t", "provider": "ClusterApi"}}
    await api.create(DedicatedCluster.resource, wanted, namespace)
    seen: list[str] = []

    async def so() -> bool:
        seen[:] = told(await api.get(DedicatedCluster.resource, "prod", namespace))
        return any("Cluster API is not installed, and must be" in each for each in seen)

    await until(so, "the condition names Cluster API", seen=lambda: seen)
    assert await api.list(VirtualControlPlane.resource) == []
    await api.delete(DedicatedCluster.resource, "prod", namespace)
    await api.gone(DedicatedCluster.resource, "prod", namespace)


async def test_a_control_plane_and_a_machine_join_and_leave_without_remains(
    host: tuple[LocalCluster, Api], name: str, tmp_path: Path
) -> None:
    """H04: kinds that come while the operator runs; the contract's fields, Secrets and providerID; a clean end."""
    local, api = host
    await api.make_tenant(name)
    await _without_cluster_api(api, name)
    code, _, err = await command(local, "install", "--cluster-api-provider")
    assert code == 0, err
    labels = {"labels": {CLUSTER_NAME: "web"}}
    await api.create(TenantryCluster.resource, {"metadata": {"name": "web", **labels}, "spec": {}}, name)
    await api.create(PLANES, {"metadata": {"name": "web", **labels}, "spec": {"version": "v1.36.0"}}, name)
    await api.create(MACHINES, {"metadata": {"name": "web-a", **labels}, "spec": {}}, name)
    seen: list[str] = []

    async def ready(resource: Resource, called: str) -> bool:
        found = await api.get(resource, called, name)
        seen[:] = told(found)
        return is_ready(found)

    await until(lambda: ready(TenantryCluster.resource, "web"), "the infrastructure is there", seen=lambda: seen)
    await until(lambda: ready(PLANES, "web"), "the control plane is there", seconds=3 * SECONDS, seen=lambda: seen)
    await until(lambda: ready(MACHINES, "web-a"), "the Machine has a node", seconds=3 * SECONDS, seen=lambda: seen)

    plane = await api.get(PLANES, "web", name)
    assert plane["status"]["initialization"] == {"controlPlaneInitialized": True}
    assert plane["status"]["versions"][0]["version"].startswith("v1.36.")
    assert plane["spec"]["controlPlaneEndpoint"]["port"]
    secret = await api.get(SECRETS, "web-kubeconfig", name)
    assert (secret["type"], secret["metadata"]["labels"][CLUSTER_NAME]) == ("cluster.x-k8s.io/secret", "web")
    text = base64.b64decode(secret["data"]["value"])
    authority = await api.get(SECRETS, "web-ca", name)
    assert authority["data"]["tls.crt"] == yaml.safe_load(text)["clusters"][0]["cluster"]["certificate-authority-data"]
    assert b"PRIVATE" not in base64.b64decode(authority["data"]["tls.key"])

    machine = await api.get(MACHINES, "web-a", name)
    (tmp_path / "kubeconfig").write_bytes(text)
    async with Client(kubeconfig.load([tmp_path / "kubeconfig"])) as client:
        (inside,) = await Api(client).list(Node.resource)
        assert inside["spec"]["providerID"] == machine["spec"]["providerID"]
        assert inside["metadata"]["name"] == machine["status"]["node"]

    await api.delete(MACHINES, "web-a", name)
    await api.gone(MACHINES, "web-a", name)
    node = msgspec.convert(await api.get(Node.resource, machine["status"]["node"]), Node)
    assert not node.spec.unschedulable
    await api.delete(PLANES, "web", name)
    await api.gone(PLANES, "web", name)
    await api.gone(SECRETS, "web-kubeconfig", name)
    for resource in (NodeHandover.resource, SliceClaim.resource, VirtualControlPlane.resource):
        assert await api.list(resource) == []

"""A Tenant with a cluster of its own on a real cluster: isolation.controlPlane Dedicated."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api import marks, reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.node import Node
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import PODS, SECONDS, SECRETS, Api, tenant_json, until
from testkit.planes import Planes
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
CLUSTERS = DedicatedCluster.resource
DEDICATED: Json = {"controlPlane": "Dedicated"}
POD: Json = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}}


async def ready(host: Api, name: str) -> Tenant:
    """Wait until a Tenant is Ready with all nodes of its cluster, and return it."""

    async def so() -> Tenant | None:
        found = await host.tenant(name)
        told = {each.type: each.status for each in found.status.conditions}
        return found if told.get(reasons.READY) == "True" else None

    return await until(so, f"{name} is ready", seconds=3 * SECONDS)


async def test_a_tenant_with_a_cluster_of_its_own(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H04, B01: from the Tenant to a Node of its own; owners run nothing on the host, and scale their cluster."""
    host = planes.host
    await host.create(Tenant.resource, tenant_json(name, isolation=DEDICATED))
    found = await ready(host, name)
    assert found.status.isolation_class == "hard+"
    told = {each.type: each.status for each in found.status.conditions}
    assert (told[reasons.CONTROL_PLANE_READY], told[reasons.NODES_READY]) == ("True", "True")
    cluster = await host.get(CLUSTERS, name, name)
    assert cluster["metadata"]["labels"][marks.TENANT] == name
    alice = {"kind": "User", "name": "alice"}
    for verb, group, plural in (
        ("create", "", "pods"),
        ("list", "", "secrets"),
        ("create", "apps", "deployments"),
        ("create", marks.GROUP, "virtualcontrolplanes"),
        ("delete", marks.GROUP, "virtualcontrolplanes"),
        ("create", marks.GROUP, "dedicatedclusters"),
        ("delete", marks.GROUP, "dedicatedclusters"),
    ):
        assert not await host.may(alice, verb, group, plural, name), (verb, plural)
    async with Client(replace(host.client.connection, impersonate="alice")) as client:
        owner = Api(client)
        secret = await owner.get(SECRETS, cluster["status"]["kubeconfigSecret"], KUBECONFIGS_NAMESPACE)
        assert secret
        with pytest.raises(Forbidden):
            await owner.create(PODS, POD, name)
        for patch in ({"spec": {"count": 2}}, {"metadata": {"ownerReferences": None}}):
            with pytest.raises(Forbidden, match=r"DedicatedCluster .* determines it: change its nodes there"):
                await owner.patch(SliceClaim.resource, f"{name}-default", patch, name)
        with pytest.raises(Forbidden, match="determines it: change its nodes there"):
            await owner.delete(SliceClaim.resource, f"{name}-default", name)
        # Rights of an owner end with the namespace of the cluster.
        with pytest.raises(Forbidden):
            await owner.patch(Tenant.resource, name, {"spec": {"isolation": {"controlPlane": "Shared"}}})
    inside = tmp_path / "inside.kubeconfig"
    inside.write_text(_text(secret))
    async with Client(kubeconfig.load([inside])) as client:
        users = Api(client)
        nodes = [each["metadata"]["name"] for each in await users.list(Node.resource)]
        assert len(nodes) == 1
        assert await users.create(PODS, POD, "default")

        async def runs() -> bool:
            pod = await users.get(PODS, "web", "default")
            return pod["spec"].get("nodeName") == nodes[0] and pod["status"].get("phase") == "Running"

        await until(runs, "the pod runs on the node of the cluster", seconds=2 * SECONDS)
        assert await host.list(PODS, name) == []
    async with Client(replace(host.client.connection, impersonate="alice")) as client:
        await Api(client).patch(CLUSTERS, name, {"spec": {"nodes": 0}}, name)

    async def is_back() -> bool:
        node = await host.get(Node.resource, nodes[0])
        taken = {each["key"] for each in node["spec"].get("taints", [])}
        return not taken and not node["spec"].get("unschedulable")

    await until(is_back, "the node is back on the host", seconds=3 * SECONDS)
    assert (await ready(host, name)).status.isolation_class == "hard"
    await host.delete(Tenant.resource, name)
    await host.gone(CLUSTERS, name, name)
    await host.gone(Tenant.resource, name)
    assert plane_cluster.kubeconfig_path.exists()


async def test_a_tenant_does_not_change_from_or_to_a_cluster_of_its_own(planes: Planes, name: str) -> None:
    """H04: no objects are moved, and children have none."""
    host = planes.host
    await host.make_tenant(name)
    with pytest.raises(Invalid, match="must not change from or to Dedicated: create another Tenant"):
        await host.patch(Tenant.resource, name, {"spec": {"isolation": DEDICATED}})
    spec = {"mode": "Workspace", "owners": [{"kind": "User", "name": "bob"}], "isolation": DEDICATED}
    child = {"metadata": {"name": "web"}, "spec": spec}
    assert "only a Tenant has a cluster of its own" in await refusal(host, Subnamespace.resource, child, name)
    long = tenant_json("a" * 31, isolation=DEDICATED)
    assert "at most 30 characters" in await refusal(host, Tenant.resource, long, "")
    both = tenant_json(f"{name}-b", isolation={**DEDICATED, "nodes": "Slice"})
    assert "the DedicatedCluster has the nodes" in await refusal(host, Tenant.resource, both, "")
    await host.delete(Tenant.resource, name)


def _text(secret: Json) -> str:
    return base64.b64decode(secret["data"]["kubeconfig"]).decode()

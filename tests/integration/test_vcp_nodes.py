"""Nodes inside: one from the start, with what the quota of the namespace has left."""

from __future__ import annotations

from functools import partial
from typing import Any

from tenantry.api.marks import SLICE
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.world import quantity
from testkit.api import CONFIG_MAPS, PODS, SECONDS, Api, until
from testkit.planes import Planes
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
PLACE = ("tenantry-quota", "kube-public")


def pod(name: str, cpu: str) -> Json:
    """Return a pod that requests CPU."""
    box = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [box]}}


async def sized(inside: Api, *, used: str = "", other: str) -> list[Json]:
    """Wait until the node of pod `web`, and all others, have so much CPU; return the nodes."""
    found: list[Json] = []

    async def so() -> bool:
        found[:] = await inside.list(Node.resource)
        runs = (await inside.find(PODS, "web", "default") or {}).get("spec", {}).get("nodeName", "")
        return all(
            each["status"]["allocatable"]["cpu"] == (used if each["metadata"]["name"] == runs else other)
            for each in found
        )

    await until(so, f"the nodes have {other}", seen=lambda: [each["status"] for each in found])
    return found


async def test_nodes_inside_have_what_the_quota_has_left(planes: Planes, name: str) -> None:
    """H07: one from the start; less for each pod, except on its own node; the ConfigMap says the same, and stays."""
    hard = {"requests.cpu": "2050m", "requests.memory": "2Gi", "pods": "10"}
    await planes.host.make_tenant(name, quota={"hard": hard})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        # The control plane itself takes 50m.
        (node,) = await sized(inside, other="2")
        size = node["status"]["allocatable"]
        assert quantity.parse(size["pods"]) == 10
        (host, *_) = await planes.host.list(Node.resource)
        assert quantity.parse(size["memory"]) < quantity.parse(host["status"]["allocatable"]["memory"])
        assert node["status"]["capacity"] == host["status"]["capacity"]

        await inside.create(PODS, pod("web", "500m"), "default")
        found: Json = {}

        async def is_told() -> bool:
            found.update(await inside.get(CONFIG_MAPS, *PLACE))
            return "requests.cpu: '1500m'" in found["data"]["remaining"]

        await until(is_told, "the ConfigMap has what is left", seen=lambda: found.get("data"))
        assert "pods: '9'" in found["data"]["remaining"]
        # The pod counts as the user's own on its node, which may be the first one.
        await sized(inside, used="2", other="1500m")

        await inside.patch(CONFIG_MAPS, PLACE[0], {"data": {"remaining": "a lot"}}, PLACE[1])

        async def is_back() -> bool:
            return (await inside.get(CONFIG_MAPS, *PLACE))["data"] == found["data"]

        await until(is_back, "the ConfigMap is what it was")
        await inside.delete(CONFIG_MAPS, *PLACE)

        async def is_there() -> bool:
            return await inside.find(CONFIG_MAPS, *PLACE) is not None

        await until(is_there, "the ConfigMap is there again")


async def test_all_nodes_of_a_slice_are_there(planes: Planes, name: str) -> None:
    """H07: a DaemonSet reaches each without another pod, and a Node that users delete comes back."""
    host = planes.host
    pace = {"minGracePeriodSeconds": 0, "disruptionBudgetSeconds": 0, "sharedNodes": 0}
    await host.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"slices": pace}})
    await host.make_tenant(name)
    try:
        await _with_slice(planes, name)
    finally:
        await host.delete(SliceClaim.resource, "own", name)
        await host.gone(SliceClaim.resource, "own", name)
        await host.delete(TenancyDefaults.resource, "default")

        async def are_back() -> bool:
            return not any(SLICE in each["metadata"]["labels"] for each in await host.list(Node.resource))

        # Other tests need them.
        await until(are_back, "the nodes are given back", seconds=2 * SECONDS)


async def _with_slice(planes: Planes, name: str) -> None:
    host = planes.host
    spec: Json = {"count": 2, "users": "Everybody", "gracePeriodSeconds": 1}
    value: Json = {"metadata": {"name": "own"}, "spec": spec}

    async def is_allowed() -> bool:
        return not await refusal(host, SliceClaim.resource, value, name)

    await until(is_allowed, "the API server knows the pace of slices")
    await host.create(SliceClaim.resource, value, name)

    async def bound() -> list[str]:
        found = (await host.get(SliceClaim.resource, "own", name)).get("status", {})
        return found.get("nodes", []) if found.get("state") == "Bound" else []

    assert len(await until(bound, "the slice is bound", seconds=2 * SECONDS)) == 2
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        # It is there from the start, and no other.
        assert len(await inside.list(Node.resource)) == 1
        await host.patch(VirtualControlPlane.resource, "web", {"spec": {"nodes": "Slice"}}, name)

        async def are(count: int) -> bool:
            return len(await inside.list(Node.resource)) == count

        await until(partial(are, 2), "both nodes are there", seconds=2 * SECONDS)
        labels = {"app": "agent"}
        template: Json = {"metadata": {"labels": labels}, "spec": {"containers": pod("x", "10m")["spec"]["containers"]}}
        daemons: Json = {"selector": {"matchLabels": labels}, "template": template}
        await inside.create(DAEMON_SETS, {"metadata": {"name": "agent"}, "spec": daemons}, "default")

        async def running() -> list[str]:
            found = await host.list(PODS, name)
            return sorted(each["spec"]["nodeName"] for each in found if each["status"].get("phase") == "Running")

        async def each_has_one() -> bool:
            return await running() == sorted(await bound())

        await until(each_has_one, "each node has a pod", seconds=2 * SECONDS)
        (first, _) = await inside.list(Node.resource)
        await inside.delete(Node.resource, first["metadata"]["name"])
        await until(partial(are, 2), "the deleted Node is there again")
    await planes.delete(name, "web")

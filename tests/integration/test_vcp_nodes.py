"""Nodes inside: one from the start, with what the quota of the namespace has left."""

from __future__ import annotations

from typing import Any

from tenantry.api.node import Node
from tenantry.world import quantity
from testkit.api import CONFIG_MAPS, PODS, Api, until
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

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

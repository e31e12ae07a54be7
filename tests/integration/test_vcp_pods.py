"""Pods in virtual control planes while they run, and the nodes that they choose: on a cluster with simulated nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.engine.request import PatchType
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit.api import EVENTS, PODS, SECONDS, SERVICE_ACCOUNTS, Api, until
from testkit.installation import install
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
HOSTNAME = "kubernetes.io/hostname"


@pytest_asyncio.fixture(scope="module")
async def planes(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Planes]:
    """Virtual control planes of a cluster of its own, with the operator and two simulated nodes."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("vcp-pods", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="blue"), NodeGroup(name="green")))
    await local.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        yield Planes(Api(client), tmp_path_factory.mktemp("planes"))
    await local.down(purge=True)


def pod(name: str, **spec: object) -> Json:
    """Return a pod that requests a tenth of a CPU."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "3"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def runs(api: Api, name: str) -> Callable[[], Awaitable[Json | None]]:
    """Return a check for `until`: the pod, once it runs."""

    async def so() -> Json | None:
        found = await api.get(PODS, name, "default")
        return found if found.get("status", {}).get("phase") == "Running" else None

    return so


def lower(planes: Planes, namespace: str, name: str, check: Callable[[Json], bool]) -> Callable[[], Awaitable[Any]]:
    """Return a check for `until`: the pod of the host of one inside, if it fulfils a condition."""

    async def so() -> Json | None:
        for each in await planes.host.list(PODS, namespace):
            if each["metadata"]["annotations"].get(f"{PREFIX}/name") == name and check(each):
                return each
        return None

    return so


async def change(api: Api, name: str, subresource: str, content: Json, namespace: str = "default") -> None:
    """Patch a subresource of a pod, as kubectl does."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/{subresource}"
    body = msgspec.json.encode({"status" if subresource == "status" else "spec": content})
    await api.client.request("PATCH", path, body=body, content_type=PatchType.STRATEGIC)


def told(inside: Api, name: str, words: str) -> Callable[[], Awaitable[Json | None]]:
    """Return a check for `until`: the event that reports a refusal about a pod."""

    async def so() -> Json | None:
        for each in await inside.list(EVENTS, "default"):
            is_about = each["reason"] == reasons.HOST_REFUSED and each["regarding"]["name"] == name
            if is_about and words in each["note"]:
                return each
        return None

    return so


async def is_closed(host: Api, node: str) -> bool:
    """Return whether the scheduler of the host puts no pod on a node."""
    wanted = {**pod("", nodeSelector={HOSTNAME: node}), "metadata": {"generateName": "probe-"}}
    name = (await host.create(PODS, wanted, "default"))["metadata"]["name"]

    async def decided() -> str:
        status = (await host.get(PODS, name, "default")).get("status", {})
        found = [each["status"] for each in status.get("conditions", []) if each["type"] == "PodScheduled"]
        return found[0] if found else ""

    decision = await until(decided, "the scheduler has decided")
    await host.delete(PODS, name, "default")
    return decision == "False"


async def test_a_running_pod_is_debugged_and_resized(planes: Planes, name: str) -> None:
    """H01: the host's rules and its quota decide on both, in their own words."""
    await planes.host.make_tenant(name, quota={"hard": {"pods": 4, "limits.cpu": "4", "memory": "8Gi"}})
    await planes.host.patch(SERVICE_ACCOUNTS, "default", {"imagePullSecrets": [{"name": "hosts"}]}, name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        await inside.create(PODS, pod("web"), "default")
        await until(runs(inside, "web"), "the pod runs")
        found = await until(lower(planes, name, "web", lambda _: True), "it is mirrored")
        assert "hosts" not in str(found["spec"].get("imagePullSecrets"))
        debugger = {"name": "debugger", "image": "busybox", "targetContainerName": "c", "stdin": True}
        await change(inside, "web", "ephemeralcontainers", {"ephemeralContainers": [debugger]})

        def is_added(found: Json) -> bool:
            return [each["name"] for each in found["spec"].get("ephemeralContainers", [])] == ["debugger"]

        await until(lower(planes, name, "web", is_added), "the container is added on the host")
        root = {"name": "root", "image": "busybox", "securityContext": {"privileged": True}}
        await change(inside, "web", "ephemeralcontainers", {"ephemeralContainers": [root]})
        event = await until(told(inside, "web", "podSecurity.privileged"), "an event has the host's message")
        assert event["type"] == "Warning"
        assert is_added(await planes.host.get(PODS, found["metadata"]["name"], name))

        def limits(cpu: str) -> Json:
            return {"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]}

        def has(cpu: str) -> Callable[[Json], bool]:
            return lambda found: found["spec"]["containers"][0]["resources"]["limits"]["cpu"] == cpu

        # Simulated kubelets do not report resources, without which the API server refuses to resize a running pod.
        reported = {"name": "c", "resources": {"requests": {"cpu": "100m"}}, "allocatedResources": {"cpu": "100m"}}
        await change(planes.host, found["metadata"]["name"], "status", {"containerStatuses": [reported]}, name)

        async def is_reported() -> bool:
            statuses = (await inside.get(PODS, "web", "default"))["status"]["containerStatuses"]
            return [each.get("allocatedResources") for each in statuses] == [{"cpu": "100m"}]

        await until(is_reported, "the resources come up")
        # Of limits: the node inside has no more requests than the quota has left, and refuses those by itself.
        await change(inside, "web", "resize", limits("3500m"))
        await until(lower(planes, name, "web", has("3500m")), "the pod of the host is resized")
        await change(inside, "web", "resize", limits("5"))
        await until(told(inside, "web", "exceeded quota"), "an event has the quota's message")
        assert has("3500m")(await planes.host.get(PODS, found["metadata"]["name"], name))
        await change(inside, "web", "resize", limits("3800m"))
        await until(lower(planes, name, "web", has("3800m")), "a resize that fits follows a refused one")


async def test_pods_choose_the_nodes_that_exist_inside(planes: Planes, name: str) -> None:
    """H01: a DaemonSet runs on them; the name of a node of the host selects nothing."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        labels = {"app": "agent"}
        template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
        agent = {"selector": {"matchLabels": labels}, "template": template}
        await inside.create(DAEMON_SETS, {"metadata": {"name": "agent"}, "spec": agent}, "default")

        seen: list[Json] = []

        async def on_all() -> list[Json] | None:
            seen[:] = [each.get("status", {}) for each in await inside.list(PODS, "default")]
            found = [each for each in await inside.list(PODS, "default") if each["metadata"].get("labels") is not None]
            agents = [each for each in found if each["metadata"]["labels"].get("app") == "agent"]
            nodes = {each["metadata"]["name"] for each in await inside.list(Node.resource)}
            are_there = {each["spec"].get("nodeName") for each in agents} == nodes
            return found if are_there and all(each["status"].get("phase") == "Running" for each in agents) else None

        await until(on_all, "the DaemonSet runs on all nodes inside", seconds=2 * SECONDS, seen=lambda: seen)
        (used,) = {each["spec"]["nodeName"] for each in await planes.host.list(PODS, name)}
        (shown,) = [each["metadata"]["name"] for each in await inside.list(Node.resource)]
        await inside.create(PODS, pod("by-name", nodeSelector={HOSTNAME: shown}), "default")
        assert (await until(runs(inside, "by-name"), "it runs"))["spec"]["nodeName"] == shown
        await inside.create(PODS, pod("guessed", nodeSelector={HOSTNAME: used}), "default")

        def is_unschedulable(found: Json) -> bool:
            conditions = found["status"].get("conditions", [])
            return any(each.get("reason") == "Unschedulable" for each in conditions)

        found = await until(lower(planes, name, "guessed", is_unschedulable), "no node matches")
        assert found["spec"]["nodeSelector"][HOSTNAME] != used
        # A pod on the other node brings its Node inside, and the DaemonSet follows.
        (other,) = {each["metadata"]["name"] for each in await planes.host.list(Node.resource)} - {used}
        await planes.host.patch(Node.resource, used, {"spec": {"unschedulable": True}})
        try:
            await until(lambda: is_closed(planes.host, used), "the scheduler knows that the node is closed")
            await inside.create(PODS, pod("far"), "default")
            await until(runs(inside, "far"), "it runs on the other node")
        finally:
            await planes.host.patch(Node.resource, used, {"spec": {"unschedulable": False}})
        await until(on_all, "the DaemonSet runs on both nodes", seconds=2 * SECONDS)
        assert len(await inside.list(Node.resource)) == 2
        assert {each["spec"].get("nodeName") for each in await planes.host.list(PODS, name)} == {used, other, None}

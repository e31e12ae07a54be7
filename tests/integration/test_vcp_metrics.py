"""Metrics inside: of own pods, by kubectl and for HorizontalPodAutoscalers, while the host has some."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import MIRRORS_NAMESPACE
from tenantry.local import build
from testkit.api import PODS, SECONDS, Api, until
from testkit.metricsadapter import API_SERVICES, NAME, ROOT, measured
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
NO_API = "Metrics API not available"


async def kubectl(*arguments: str, config: Path) -> str:
    """Run kubectl with a kubeconfig, and return all of its output."""
    binaries = build.built()
    assert binaries is not None
    process = await asyncio.create_subprocess_exec(
        *(str(binaries.kubectl), *arguments, "--kubeconfig", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return out.decode()


async def printed(*arguments: str, config: Path, words: str) -> str:
    """Return the output of kubectl once it has words."""
    found: list[str] = []

    async def so() -> bool:
        found[:] = [await kubectl(*arguments, config=config)]
        return words in found[0]

    await until(so, f"kubectl prints {words!r}", seen=lambda: found)
    return found[0]


def deployment() -> Json:
    """Return a Deployment of one pod."""
    box = {"name": "c", "image": "busybox"}
    template = {"metadata": {"labels": {"app": "front"}}, "spec": {"containers": [box]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "front"}}, "template": template}
    return {"metadata": {"name": "front"}, "spec": spec}


def autoscaler() -> Json:
    """Return an autoscaler that wants two pods of what the adapter reports of one."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "front"}
    resource = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "32Mi"}}
    metrics = [{"type": "Resource", "resource": resource}]
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2, "metrics": metrics}
    return {"metadata": {"name": "front"}, "spec": spec}


async def test_metrics_of_own_pods_come_up(planes: Planes, name: str, tmp_path: Path) -> None:
    """VCP-45: kubectl top and an autoscaler work; neither other pods of the namespace nor other users' use show."""
    await planes.host.make_tenant(name)
    await planes.create(name, "web")
    # On the same nodes, and in the same namespace: not mirrored.
    await planes.host.create(
        PODS, {"metadata": {"name": "foreign"}, "spec": deployment()["spec"]["template"]["spec"]}, name
    )
    async with planes.entered(name, "web") as inside:
        config = planes.kubeconfig(name, "web")
        await printed("get", "events", config=config, words=reasons.NO_METRICS)
        assert NO_API in await kubectl("top", "nodes", config=config)

        await inside.create(Namespace.resource, {"metadata": {"name": "shop"}})
        await inside.default_account("shop")
        await inside.create(DEPLOYMENTS, deployment(), "shop")
        async with measured(planes.host, tmp_path) as adapter:
            pods = await printed("top", "pods", "-A", config=config, words="front-")
            assert "foreign" not in pods

            async def bound() -> Json | None:
                (pod,) = [each for each in await inside.list(PODS, "shop") if each["metadata"]["name"] in pods]
                return pod if pod["spec"].get("nodeName") else None

            # The host may measure a pod a moment before its node is known inside.
            pod = await until(bound, "the pod has its node")
            assert [line.split() for line in pods.splitlines()[1:]] == [["shop", pod["metadata"]["name"], "7m", "64Mi"]]
            nodes = await kubectl("top", "nodes", config=config)
            # The first node inside may be another one.
            used = {line.split()[0]: line.split()[1] for line in nodes.splitlines()[1:]}
            assert used.pop(pod["spec"]["nodeName"]) == "7m"
            assert set(used.values()) <= {"0m"}
            await is_kept(inside, name)

            # Not earlier: its second pod has a use, too.
            await inside.create(AUTOSCALERS, autoscaler(), "shop")
            seen: list[Json] = []

            async def scaled() -> bool:
                seen[:] = [await inside.get(AUTOSCALERS, "front", "shop")]
                return (await inside.get(DEPLOYMENTS, "front", "shop"))["spec"]["replicas"] == 2

            await until(scaled, "the autoscaler adds a pod", seconds=2 * SECONDS, seen=lambda: seen)
            assert {user for user, _ in adapter.asked} == {f"system:serviceaccount:{MIRRORS_NAMESPACE}:{name}"}
            assert {path for _, path in adapter.asked} == {f"{ROOT}/namespaces/{name}/pods"}
        await inside.gone(API_SERVICES, NAME)
        await printed("top", "nodes", config=config, words=NO_API)


async def is_kept(inside: Api, name: str) -> None:
    """Have an administrator inside change the APIService, and look for others' pods."""
    foreign = await inside.client.request("GET", f"{ROOT}/namespaces/{name}/pods")
    assert b'"items":[]' in foreign.replace(b" ", b"")
    first = await inside.get(API_SERVICES, NAME)
    service = {"namespace": "default", "name": "kubernetes"}
    await inside.patch(API_SERVICES, NAME, {"spec": {"service": service, "insecureSkipTLSVerify": True}})

    async def is_back() -> bool:
        found = await inside.find(API_SERVICES, NAME)
        return found is not None and "service" not in found["spec"]

    await until(is_back, "the APIService is what it was")
    await inside.delete(API_SERVICES, NAME)

    async def is_new() -> bool:
        found = await inside.find(API_SERVICES, NAME)
        return found is not None and found["metadata"]["uid"] != first["metadata"]["uid"]

    await until(is_new, "the APIService is there again")

    # Without the label, it is theirs: it may name an adapter of their own, which Tenantry leaves alone.
    changed: Json = {"metadata": {"labels": {MANAGED_BY: None}}, "spec": {"versionPriority": 7}}
    await inside.patch(API_SERVICES, NAME, changed)
    await inside.patch(API_SERVICES, NAME, {"metadata": {"annotations": {"seen": "1"}}})
    assert (await inside.get(API_SERVICES, NAME))["spec"]["versionPriority"] == 7
    await inside.patch(API_SERVICES, NAME, {"metadata": {"labels": {MANAGED_BY: MANAGER}}})

    async def is_ours() -> bool:
        return (await inside.get(API_SERVICES, NAME))["spec"]["versionPriority"] == 100

    await until(is_ours, "the APIService is Tenantry's again")

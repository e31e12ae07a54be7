"""Warnings inside a virtual control plane about pods that the host will refuse, on a real cluster."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from tenantry.api.model import Resource
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH
from testkit.api import PODS, Api
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")


async def warned(inside: Api, resource: Resource, value: Json, *, method: str = "POST", dry: bool = False) -> str:
    """Write an object, and return what the API server warns of."""
    name = value.get("metadata", {}).get("name", "") if method == "PATCH" else ""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **value}
    async with inside.client.open(
        method,
        wire.path(resource, "default", name),
        query={"dryRun": "All"} if dry else {},
        body=msgspec.json.encode(body),
        content_type=MERGE_PATCH if method == "PATCH" else "application/json",
    ) as response:
        return " ".join(response.headers.getall("Warning", []))


def template(image: str) -> Json:
    containers = [{"name": "web", "image": image}]
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers, "restartPolicy": "Always"}}


def deployment(image: str, replicas: int = 0) -> Json:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template(image)}
    return {"metadata": {"name": "web"}, "spec": spec}


async def test_applied_workloads_are_warned_of_the_hosts_rules(planes: Planes, name: str, tmp_path: Path) -> None:
    """X09: at once, with the rule and who set it; the object is stored, and what is allowed has no warning."""
    await planes.host.make_tenant(name, rules={"images": {"allowed": ["busybox"]}})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        for dry in (True, False):
            told = await warned(inside, DEPLOYMENTS, deployment("nginx"), dry=dry)
            assert "the host refuses its pods" in told
            assert "images.allowed" in told
            assert f"Tenant {name}" in told.replace("'", "").replace("\\", "")
            assert "nginx" in told
        assert (await inside.get(DEPLOYMENTS, "web", "default"))["spec"]["replicas"] == 0

        assert not await warned(
            inside, DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": {"replicas": 1}}, method="PATCH"
        )
        assert not await warned(inside, DEPLOYMENTS, deployment("busybox"), method="PATCH")
        assert "nginx" in await warned(inside, DEPLOYMENTS, deployment("nginx"), method="PATCH")

        pod = {"metadata": {"name": "one"}, "spec": template("nginx")["spec"]}
        assert "the host refuses this pod" in await warned(inside, PODS, pod, dry=True)
        job = {"spec": {"template": {"spec": {**template("nginx")["spec"], "restartPolicy": "Never"}}}}
        cron: Json = {"metadata": {"name": "night"}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": job}}
        assert "images.allowed" in await warned(inside, CRON_JOBS, cron)
        assert await planes.names(PODS, name) == []
    await _explained(planes.kubeconfig(name, "web"), tmp_path, name)


async def _explained(kubeconfig: Path, folder: Path, name: str) -> None:
    """`explain denied` names the rule of the host and its source, and what would pass."""
    for image, code in (("nginx", 1), ("busybox", 0)):
        file = folder / f"{image}.json"
        file.write_bytes(msgspec.json.encode({"apiVersion": "apps/v1", "kind": "Deployment", **deployment(image)}))
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenantry", "explain", "denied", f"--kubeconfig={kubeconfig}", "-f", str(file)),
            *("-n", "default"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = (text.decode() for text in await child.communicate())
        assert child.returncode == code, out + err
        assert ("images.allowed" in out and f"Tenant '{name}'" in out) == bool(code), out

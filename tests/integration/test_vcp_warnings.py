"""Warnings inside a virtual control plane about pods that the host will refuse, on a real cluster."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH
from testkit.api import PODS, Api, until
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


async def told(inside: Api, resource: Resource, make: Callable[[str], Json], *, dry: bool = False) -> tuple[str, str]:
    """Create objects until the API server warns, which waits for the host for a second only.

    Returns:
        The name of the last object, and the warning.
    """
    names = (f"web-{number}" for number in itertools.count())

    async def so() -> tuple[str, str] | None:
        name = next(names)
        found = await warned(inside, resource, make(name), dry=dry)
        return (name, found) if found else None

    return await until(so, f"the API server warns of {resource.plural}")


def template(image: str) -> Json:
    containers = [{"name": "web", "image": image}]
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers, "restartPolicy": "Always"}}


def deployment(image: str, name: str = "web") -> Json:
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template(image)}
    return {"metadata": {"name": name}, "spec": spec}


def pod(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": template("nginx")["spec"]}


def cron_job(name: str) -> Json:
    job = {"spec": {"template": {"spec": {**template("nginx")["spec"], "restartPolicy": "Never"}}}}
    return {"metadata": {"name": name}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": job}}


async def test_applied_workloads_are_warned_of_the_hosts_rules(planes: Planes, name: str, tmp_path: Path) -> None:
    """X09: at once, with the rule and who set it; the object is stored, and what is allowed has no warning."""
    await planes.host.make_tenant(name, rules={"images": {"allowed": ["busybox"]}})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        for dry in (True, False):
            stored, words = await told(inside, DEPLOYMENTS, partial(deployment, "nginx"), dry=dry)
            assert "the host refuses its pods" in words
            assert "images.allowed" in words
            assert f"Tenant {name}" in words.replace("'", "").replace("\\", "")
            assert "nginx" in words
            assert (await inside.find(DEPLOYMENTS, stored, "default") is None) is dry

        scaled: Json = {"metadata": {"name": stored}, "spec": {"replicas": 1}}
        assert not await warned(inside, DEPLOYMENTS, scaled, method="PATCH")

        async def changed() -> str:
            assert not await warned(inside, DEPLOYMENTS, deployment("busybox", stored), method="PATCH")
            return await warned(inside, DEPLOYMENTS, deployment("nginx", stored), method="PATCH")

        assert "nginx" in await until(changed, "the API server warns of a change")
        assert "the host refuses this pod" in (await told(inside, PODS, pod, dry=True))[1]
        assert "images.allowed" in (await told(inside, CRON_JOBS, cron_job))[1]
        assert await planes.names(PODS, name) == []
    await _explained(planes.kubeconfig(name, "web"), tmp_path, name)


async def test_a_pod_inside_is_fixed_by_the_rules_that_the_host_names(
    planes: Planes, name: str, tmp_path: Path
) -> None:
    """X09: without -n, in the namespace of the context; commands about tenants name the host instead."""
    await planes.host.make_tenant(name, rules={"podSecurity": {"level": "Baseline"}})
    await planes.create(name, "web")
    async with planes.entered(name, "web"):
        config, file = planes.kubeconfig(name, "web"), tmp_path / "pod.json"
        for changed, fixable in (({"securityContext": {"privileged": True}}, True), ({"image": "nginx"}, False)):
            if not fixable:
                await planes.host.patch(
                    Tenant.resource, name, {"spec": {"rules": {"images": {"allowed": ["busybox"]}}}}
                )
            containers = [{"name": "web", "image": "busybox", **changed}]
            value = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": containers}}
            file.write_bytes(msgspec.json.encode(value))
            seen: list[str] = []
            wanted = "privileged: false" if fixable else "the values of its host's rules are not known"

            async def so(seen: list[str] = seen, wanted: str = wanted, *, at: int = int(not fixable)) -> bool:
                _, *seen[:] = await _command("explain", "denied", "-f", str(file), "--fix", config=config)
                return wanted in seen[at]

            # A host that answers late refuses nothing in a dry run, and its policies learn of rules a moment later.
            await until(so, f"it prints {wanted!r}", seen=lambda seen=seen: seen)
        code, _, told = await _command("tree", config=config)
        assert (code, "this is the API server of a virtual control plane" in told) == (3, True), told


async def _command(*words: str, config: Path) -> tuple[int, str, str]:
    """Run a command with a kubeconfig; return its exit code, its output and its messages."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", *words, f"--kubeconfig={config}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    return child.returncode or 0, out.decode(), err.decode()


async def _explained(kubeconfig: Path, folder: Path, name: str) -> None:
    """`explain denied` names the rule of the host and its source, and what would pass."""
    for image, code in (("nginx", 1), ("busybox", 0)):
        file = folder / f"{image}.json"
        file.write_bytes(msgspec.json.encode({"apiVersion": "apps/v1", "kind": "Deployment", **deployment(image)}))
        seen: list[str] = []

        async def so(file: Path = file, code: int = code, seen: list[str] = seen) -> bool:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tenantry", "explain", "denied", f"--kubeconfig={kubeconfig}", "-f", str(file)),
                *("-n", "default"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            seen[:] = [text.decode() for text in await child.communicate()]
            return child.returncode == code

        # It asks for the same warnings.
        await until(so, f"the command ends with {code}", seen=lambda seen=seen: seen)
        assert ("images.allowed" in seen[0] and f"Tenant '{name}'" in seen[0]) == bool(code), seen

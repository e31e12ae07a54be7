"""X10: tenants of Capsule, kiosk, Rancher and EdgeNet become Tenants while their pods run, and can be given back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import pytest_asyncio
import yaml

from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.kubernetes import Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from testkit.api import CRDS, PODS, SECONDS, Api, until
from testkit.imports import STORIES, ImportStory, Json
from testkit.installation import install

KINDS = Path(__file__).parent / "imports"
RECORD = "tenantry.dev/imported"


class Said(NamedTuple):
    """How the command ended, and what it printed."""

    code: int
    stdout: str
    stderr: str


class Tools:
    """A cluster with the kinds of the other tools, and `tenantry import` on it."""

    def __init__(self, api: Api, path: Path) -> None:
        self.api = api
        self._path = path

    async def run(self, *arguments: str) -> Said:
        pipe = asyncio.subprocess.PIPE
        command = ("-m", "tenantry", "import", arguments[0], "--kubeconfig", str(self._path), *arguments[1:])
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe, stderr=pipe)
        out, err = await asyncio.wait_for(process.communicate(), SECONDS)
        return Said(process.returncode or 0, out.decode(), err.decode())

    async def done(self, *arguments: str) -> Said:
        """Run it and see that it succeeds."""
        said = await self.run(*arguments)
        assert said.code == 0, said.stderr
        return said


@pytest_asyncio.fixture(scope="module")
async def tools(tenantry_home: Path) -> AsyncGenerator[Tools]:
    """A cluster with a simulated node, on which pods run, and all kinds."""
    local = LocalCluster("imports", root=tenantry_home)
    await local.up(
        UpOptions(
            throwaway=True,
            install=install,
            operator=True,
            nodes=NodePlan(groups=(NodeGroup(name="node"),)),
            timeout_seconds=3 * SECONDS,
        )
    )
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        api = Api(client)
        for file in sorted(KINDS.glob("*.yaml")):
            for kind in yaml.safe_load_all(file.read_text()):
                await api.create(CRDS, kind)
        await until(lambda: _are_served(api), "all kinds are served")
        yield Tools(api, local.kubeconfig_path)
    await local.down(purge=True)


async def _are_served(api: Api) -> bool:
    try:
        return all([await api.list(resource) == [] for story in STORIES for resource, _, _ in story.objects])
    except ApiError:
        return False


async def _set_up(tools: Tools, story: ImportStory) -> None:
    """Create what the other tool would have left, and a running pod in each namespace."""
    api = tools.api
    # By kind and name: a tenant, its quota and its namespace often have one name.
    uids: dict[tuple[str, str], str] = {}
    places = {namespace for _, _, namespace in story.objects} - {"", *story.namespaces}
    for name in places:
        await api.create(Namespace.resource, {"metadata": {"name": name}})
    for resource, value, namespace in story.objects:
        if not namespace or namespace in places:
            await _create(api, resource, value, namespace, uids)
    for name, metadata in story.namespaces.items():
        given: list[Json] = metadata.get("ownerReferences", [])
        owners = [{**owner, "uid": uids[owner["kind"], owner["name"]]} for owner in given]
        await _create(
            api, Namespace.resource, {"metadata": {"name": name, **metadata, "ownerReferences": owners}}, "", uids
        )
    for resource, value, namespace in story.objects:
        if namespace in story.namespaces:
            await _create(api, resource, value, namespace, {})
    for name in story.namespaces:
        await _run_pod(api, name, "worker")


async def _create(api: Api, resource: Resource, value: Json, namespace: str, uids: dict[tuple[str, str], str]) -> None:
    made = await api.create(resource, {key: each for key, each in value.items() if key != "status"}, namespace)
    uids[resource.kind, made["metadata"]["name"]] = made["metadata"]["uid"]
    if "status" in value:
        path = wire.path(resource, namespace, made["metadata"]["name"], "status")
        body = msgspec.json.encode({"status": value["status"]})
        await api.client.request("PATCH", path, body=body, content_type="application/merge-patch+json")


async def _run_pod(api: Api, namespace: str, name: str, cpu: str = "100m") -> None:
    resources = {each: {"cpu": cpu, "memory": "16Mi"} for each in ("requests", "limits")}
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "docker.io/library/main", "resources": resources}],
    }

    async def admitted() -> bool:
        try:
            return bool(await api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace))
        except Forbidden as error:
            if "serviceaccount" not in str(error):
                raise
            return False

    await until(admitted, f"a pod in {namespace!r}")

    async def running() -> bool:
        return (await api.get(PODS, name, namespace))["status"].get("phase") == "Running"

    await until(running, f"the pod in {namespace!r} runs")


async def _pods(api: Api, story: ImportStory) -> dict[str, tuple[str, str]]:
    """Return the uid and the start of every namespace's pod, and the uid of the namespace."""
    found: dict[str, tuple[str, str]] = {}
    for name in story.namespaces:
        pod = await api.get(PODS, "worker", name)
        found[name] = (pod["metadata"]["uid"], pod["status"]["startTime"])
        found[f"{name}/"] = ((await api.get(Namespace.resource, name))["metadata"]["uid"], "")
    return found


async def _metadata(api: Api, story: ImportStory) -> dict[str, Json]:
    found = {name: (await api.get(Namespace.resource, name))["metadata"] for name in story.namespaces}
    keys = ("labels", "annotations", "ownerReferences")
    return {name: {key: meta.get(key) or {} for key in keys} for name, meta in found.items()}


async def _versions(api: Api, story: ImportStory) -> list[str]:
    objects = [await api.get(Namespace.resource, name) for name in story.namespaces]
    objects.append(await api.get(Tenant.resource, story.tenant))
    objects += [each for each in await api.list(Subnamespace.resource) if each["metadata"]["namespace"] in story.all]
    return sorted(f"{each['metadata']['name']} {each['metadata']['resourceVersion']}" for each in objects)


async def _made_by_tenantry(api: Api, story: ImportStory) -> list[str]:
    """Return what Tenantry created in the namespaces that existed."""
    kinds = (ResourceQuota.resource, RoleBinding.resource, NetworkPolicy.resource)
    return [
        f"{namespace}/{each['metadata']['name']}"
        for namespace in story.namespaces
        for kind in kinds
        for each in await api.list(kind, namespace)
        if any("tenantry" in key for key in each["metadata"].get("labels", {}))
    ]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.source.name)
async def test_a_tenant_is_adopted_given_back_and_committed(tools: Tools, story: ImportStory) -> None:
    """X10: namespaces and pods keep their uids, the quota holds, and an undo leaves no trace."""
    api, name, tenant = tools.api, story.source.name, story.tenant
    await _set_up(tools, story)
    before, pods = await _metadata(api, story), await _pods(api, story)

    said = await tools.done(name, tenant, "-o", "json", *story.flags)
    kinds = [each["kind"] for each in msgspec.json.decode(said.stdout)["items"]]
    assert kinds[0] == "Tenant"
    for text in story.lost:
        assert text in said.stderr
    assert await api.find(Tenant.resource, tenant) is None

    await tools.done(name, tenant, "--apply", "--yes", *story.flags)
    await api.ready(tenant)
    assert await _pods(api, story) == pods
    for namespace in story.namespaces:
        meta = (await api.get(Namespace.resource, namespace))["metadata"]
        assert meta["labels"]["tenantry.dev/tenant"] == tenant
        assert {each["apiVersion"] for each in meta.get("ownerReferences", [])} <= {"tenantry.dev/v1alpha1"}
    quotas = {
        namespace: (await api.get(ResourceQuota.resource, "tenantry-quota", namespace))["spec"]["hard"]
        for namespace in story.namespaces
    }
    assert quotas == story.quotas
    with pytest.raises(Forbidden, match="exceeded quota"):
        await _run_pod(api, story.full, "more", cpu="7")

    written = await _versions(api, story)
    await tools.done(name, tenant, "--apply", "--yes", *story.flags)
    assert await _versions(api, story) == written

    await tools.done(name, tenant, "--undo", "--yes")
    assert await _metadata(api, story) == before
    assert await _pods(api, story) == pods
    assert await _made_by_tenantry(api, story) == []
    assert await api.find(Tenant.resource, tenant) is None

    await tools.done(name, tenant, "--apply", "--yes", *story.flags)
    await tools.done(name, tenant, "--commit", "--yes")
    assert await _pods(api, story) == pods
    refused = await tools.run(name, tenant, "--undo", "--yes")
    assert refused.code == 2
    assert "its import was committed" in refused.stderr
    for namespace in story.namespaces:
        assert RECORD not in (await api.get(Namespace.resource, namespace))["metadata"].get("annotations", {})

"""Credentials of virtual control planes are replaced: for a removed owner, and on request (H01)."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

import pytest

from tenantry.api.errors import TenantryError, Unauthorized
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.kube.watch import watch
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, PODS, SECONDS, SECRETS, Api, until
from testkit.planes import Planes, without_operator
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
PLANES = VirtualControlPlane.resource
ALICE: Json = {"kind": "User", "name": "alice"}
BOB: Json = {"kind": "User", "name": "bob"}


async def run(cluster: LocalCluster, *arguments: str) -> str:
    """Run a command of `tenantry vcp`, and return its messages."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", "vcp", *arguments, f"--kubeconfig={cluster.kubeconfig_path}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def is_known(connection: Connection) -> bool:
    """Return whether the API server inside knows a client."""
    async with Client(connection) as client:
        try:
            await Api(client).list(PODS, "default")
        except Unauthorized:
            return False
        return True


async def watched(connection: Connection, is_open: asyncio.Event) -> None:
    """Watch until the API server inside ends it."""
    async with Client(connection) as client:
        with suppress(TenantryError, OSError):
            async for _ in watch(client, CONFIG_MAPS, resource_version=""):
                is_open.set()


async def kept(planes: Planes, name: str) -> Connection:
    """Return what an owner keeps who has read the kubeconfig."""
    async with planes.entered(name, name):
        return kubeconfig.load([planes.kubeconfig(name, name)]).detached()


async def rotated(planes: Planes, name: str, **wanted: int) -> Json:
    """Wait until credentials are in force, and return the status."""

    async def so() -> Json | None:
        status = (await planes.host.get(PLANES, name, name))["status"]
        return status if wanted.items() <= status.get("lastRotation", {}).items() else None

    return await until(so, "the credentials are replaced", seconds=2 * SECONDS)


async def test_a_removed_owner_has_nothing_left(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: its kubeconfig is refused and its watch ends; others fetch theirs again; a rotation wakes."""
    host = planes.host
    whole = {"owners": [ALICE, BOB], "isolation": {"controlPlane": "Virtual"}}
    await host.create(Tenant.resource, {"metadata": {"name": name}, "spec": whole})
    await host.ready(name)
    bobs = await kept(planes, name)
    is_open = asyncio.Event()
    watching = asyncio.create_task(watched(bobs, is_open))
    async with asyncio.timeout(SECONDS):
        await is_open.wait()
    # One that is added changes nothing.
    more = [ALICE, BOB, {"kind": "User", "name": "carol"}]
    await host.patch(Tenant.resource, name, {"spec": {"owners": more}})

    async def is_noted() -> bool:
        return len((await host.get(PLANES, name, name))["status"]["credentials"]["owners"]) == len(more)

    await until(is_noted, "the owner is noted")
    assert await is_known(bobs)
    await host.patch(Tenant.resource, name, {"spec": {"owners": [ALICE]}})
    async with asyncio.timeout(SECONDS):
        await watching
    # He reads the new one nowhere: his right ends before it is written.
    assert await readers(host, name) == ["alice"]
    await rotated(planes, name, users=1)
    assert await readers(host, name) == ["alice"]
    assert not await is_known(bobs)
    alices = await kept(planes, name)
    assert await is_known(alices)
    await planes.ready(name, name)
    await run(plane_cluster, "sleep", name, "-n", name)
    told = await run(plane_cluster, "rotate", name, "-n", name, "--all", "--yes")
    assert "has new credentials" in told
    status = await rotated(planes, name, users=2, authorities=1)
    assert status["phase"] == PlanePhase.AWAKE
    assert status["lastRotation"]["requested"].startswith("All@")
    assert not await is_known(alices)
    assert await is_known(await kept(planes, name))


async def test_a_kubeconfig_of_an_earlier_version_is_worth_nothing(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H01: it was where members of a converted tenant may have had a watch; it is replaced once, and deleted there."""
    host = planes.host
    whole = {"owners": [ALICE], "isolation": {"controlPlane": "Virtual"}}
    await host.create(Tenant.resource, {"metadata": {"name": name}, "spec": whole})
    await host.ready(name)
    seen, former = await kept(planes, name), f"{name}-kubeconfig"
    async with without_operator(plane_cluster):
        plane = await host.get(PLANES, name, name)
        secret = await host.get(SECRETS, name, KUBECONFIGS_NAMESPACE)
        await host.delete(SECRETS, name, KUBECONFIGS_NAMESPACE)
        owner = {"apiVersion": PLANES.api_version, "kind": PLANES.kind, "name": name, "uid": plane["metadata"]["uid"]}
        meta = {"name": former, "labels": secret["metadata"]["labels"], "ownerReferences": [owner]}
        await host.create(SECRETS, {"metadata": meta, "data": secret["data"]}, name)
        status = {"kubeconfigSecret": former, "kubeconfigNamespace": None}
        await host.client.merge_patch(PLANES, name, name, {"status": status}, subresource="status")
    status = await rotated(planes, name, users=1)
    assert (status["kubeconfigNamespace"], status["kubeconfigSecret"]) == (KUBECONFIGS_NAMESPACE, name)
    await planes.ready(name, name)

    async def is_gone() -> bool:
        return await host.find(SECRETS, former, name) is None

    await until(is_gone, "the former Secret is gone")
    assert not await is_known(seen)
    assert await is_known(await kept(planes, name))
    assert status["credentials"]["users"] == 1
    await host.delete(Tenant.resource, name)


async def readers(host: Api, name: str) -> list[str]:
    """Return who may read the kubeconfig of a tenant, of those who ever could."""
    binding = await host.get(RoleBinding.resource, name, KUBECONFIGS_NAMESPACE)
    return [each["name"] for each in binding.get("subjects", [])]


PROVIDER: Json = {"issuer": "https://login.example.com", "clientId": "kubernetes"}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"rotation": {"request": "Some@1"}}, "spec.rotation.request"),
        ({"authentication": {"oidc": {**PROVIDER, "issuer": "http://login.example.com"}}}, "oidc.issuer"),
        ({"authentication": {"oidc": {**PROVIDER, "usernamePrefix": "system:"}}}, "oidc.usernamePrefix"),
        ({"authentication": {"oidc": {**PROVIDER, "groupsPrefix": "tenantry:a"}}}, "oidc.groupsPrefix"),
        ({"tokens": {"issuer": "https://a b"}}, "spec.tokens.issuer"),
        ({"audit": {"level": "All"}}, "spec.audit.level"),
        ({"fairness": {"maxReads": 1}}, "spec.fairness.maxReads"),
    ],
)
async def test_invalid_settings_are_refused(planes: Planes, spec: Json, path: str) -> None:
    """H01: one sentence with the path."""
    assert path in await refusal(planes.host, PLANES, {"metadata": {"name": "web"}, "spec": spec}, "default")


async def test_the_issuer_of_tokens_does_not_change(planes: Planes, name: str) -> None:
    """H01: tokens of pods that run would be refused."""
    host = planes.host
    await host.create(PLANES, {"metadata": {"name": name}, "spec": {}}, "default")
    for issuer in ("https://a.example", "https://b.example", ""):
        told = await refusal(host, PLANES, {"spec": {"tokens": {"issuer": issuer}}}, "default", patch=name)
        assert ("must not change once it is set" in told) is (issuer != "https://a.example")
        if not told:
            await host.patch(PLANES, name, {"spec": {"tokens": {"issuer": issuer}}}, "default")
    assert "must not change" in await refusal(host, PLANES, {"spec": {"tokens": None}}, "default", patch=name)
    await planes.delete("default", name)

"""Datastores of virtual control planes: chosen by owners and administrators, on a cluster with the operator (H02)."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, PODS, SECONDS, SECRETS, Api, until
from testkit.planes import Planes, ready
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

KIND = VirtualControlPlane.resource


def plane(name: str, **datastore: object) -> Json:
    """Return a control plane with a datastore."""
    return {"metadata": {"name": name}, "spec": {"datastore": datastore}}


async def test_owners_share_an_etcd(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H02: an owner chooses SharedEtcd; pods run; the kind stays; deletion leaves nothing of the control plane."""
    await planes.host.make_tenant(name)
    owner = replace(planes.host.client.connection, impersonate="alice")
    async with Client(owner) as client:
        await Api(client).create(KIND, plane("web", kind="SharedEtcd"), name)
        made = await planes.ready(name, "web")
        changes: list[Json] = [{"kind": "SQLite"}, {"kind": "OwnEtcd"}, {"secretRef": {"name": "x"}}]
        for change in changes:
            for user in (Api(client), planes.host):
                told = await refusal(user, KIND, {"spec": {"datastore": change}}, name, patch="web")
                assert "spec.datastore" in told
    async with planes.entered(name, "web") as inside:
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")
        containers = [{"name": "c", "image": "busybox"}]
        await inside.create(PODS, {"metadata": {"name": "one"}, "spec": {"containers": containers}}, "default")

        async def runs() -> bool:
            return (await inside.get(PODS, "one", "default")).get("status", {}).get("phase") == "Running"

        await until(runs, "the pod runs")
    folder = plane_cluster.paths.folder / "hosted" / made["metadata"]["uid"]
    assert not (folder / "state.db").exists()
    await planes.delete(name, "web")
    assert not folder.exists()


async def test_only_administrators_choose_what_leads_out(planes: Planes, name: str) -> None:
    """VCP-32: an owner has the operator connect to no address."""
    await planes.host.make_tenant(name)
    owner = replace(planes.host.client.connection, impersonate="alice")
    external: Json = {"kind": "External", "secretRef": {"name": name}}
    async with Client(owner) as client:
        alice = Api(client)
        told = await refusal(alice, KIND, plane("web", **external), name)
        assert "administrators choose External" in told
        # What an administrator has chosen, its owner keeps when other fields change.
        await planes.host.create(KIND, plane("web", **external), name)
        assert await refusal(alice, KIND, {"metadata": {"labels": {"mine": "1"}}}, name, patch="web") == ""
    told = await _problem(planes, name)
    assert f"Secret '{name}' in namespace '{SYSTEM_NAMESPACE}' does not exist" in told
    values = {"driver": "oracle", "address": "/x", "database": "d", "user": "u", "password": "word"}
    secret: Json = {"metadata": {"name": name}, "stringData": values}
    await planes.host.create(SECRETS, secret, SYSTEM_NAMESPACE)
    await planes.delete(name, "web")
    await planes.host.create(KIND, plane("web", **external), name)
    told = await _problem(planes, name)
    assert "driver" in told
    assert "word" not in told.replace("password", "")
    await planes.delete(name, "web")
    await planes.host.delete(SECRETS, name, SYSTEM_NAMESPACE)


async def _problem(planes: Planes, name: str) -> str:
    async def so() -> str:
        found = ready(await planes.host.get(KIND, "web", name))
        return found["message"] if found.get("reason") == reasons.INVALID_SPEC else ""

    return await until(so, "the datastore is invalid")


@pytest.mark.parametrize(
    "datastore",
    [{"kind": "External"}, {"kind": "SQLite", "secretRef": {"name": "a"}}, {"kind": "External", "secretRef": {}}],
)
async def test_invalid_datastores_are_refused(planes: Planes, datastore: Json) -> None:
    assert "spec.datastore.secretRef" in await refusal(planes.host, KIND, plane("web", **datastore), "default")


async def test_unknown_datastores_are_refused(planes: Planes) -> None:
    assert "spec.datastore.kind" in await refusal(planes.host, KIND, plane("web", kind="etcd"), "default")


async def test_the_command_line_chooses_a_datastore(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    await planes.host.make_tenant(name)
    command = ["vcp", "create", "web", "-n", name, "--datastore", "SharedEtcd", "--dry-run", "-o", "json"]
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", *command, "--kubeconfig", plane_cluster.kubeconfig_path),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        out, _ = await run.communicate()
    assert run.returncode == 0
    assert msgspec.json.decode(out)["spec"]["datastore"] == {"kind": "SharedEtcd"}

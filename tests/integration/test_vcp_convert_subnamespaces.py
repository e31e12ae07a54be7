"""Subnamespaces that get a control plane of their own, and return from it, while their pods run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, SECRETS, Api, until
from testkit.converting import (
    ALICE,
    DEPLOYMENTS,
    convert_command,
    converted,
    kubeconfig_of,
    ready_child,
    running,
    workload,
)
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
JOBS = Resource("batch", "v1", "jobs", "Job")
BOB: Json = {"kind": "User", "name": "bob"}


async def child_of(host: Api, parent: str, name: str, **spec: object) -> str:
    """Create a Subnamespace, wait until it is ready, and return its namespace."""
    await host.create(Subnamespace.resource, {"metadata": {"name": name}, "spec": {"owners": [BOB], **spec}}, parent)
    return await ready_child(host, parent, name)


async def test_a_subnamespace_gets_a_control_plane_and_returns(
    plane_cluster: LocalCluster, planes: Planes, name: str
) -> None:
    """H01: no pod restarts in either direction, and only the rights of its own owners change."""
    host = planes.host
    await host.make_tenant(name, owners=[ALICE], quota={"hard": {"memory": "4Gi", "pods": "9"}})
    await host.open(name)
    web = await child_of(host, name, "web", mode="Workspace", quota={"hard": {"memory": "2Gi", "pods": "4"}})
    await host.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"a": "1"}}, web)
    await host.create(SECRETS, {"metadata": {"name": "password"}, "stringData": {"password": "x"}}, web)
    await host.create(CONFIG_MAPS, {"metadata": {"name": "sibling"}, "data": {"a": "1"}}, name)
    await host.create(DEPLOYMENTS, workload("front", 2), web)
    before = {each["metadata"]["uid"] for each in await running(host, web, 2)}
    code, told = await convert_command(plane_cluster.kubeconfig_path, "sub", "web", "-n", name, "--wait")
    assert code == 0, told
    assert "has a control plane of its own" in told
    assert {each["metadata"]["uid"] for each in await running(host, web, 2)} == before
    assert await planes.names(DEPLOYMENTS, web) == []
    await ready_child(host, name, "web")
    async with planes.entered(web, "web") as inside:
        await running(inside, web, 2)
        await inside.patch(DEPLOYMENTS, "front", {"spec": {"replicas": 3}}, web)
        pods = await running(host, web, 3)
        assert await inside.find(CONFIG_MAPS, "sibling", name) is None
    now = {each["metadata"]["uid"] for each in pods}
    assert before < now

    async def has_narrow_rights() -> bool:
        return not await host.may(BOB, "create", "", "pods", web)

    await until(has_narrow_rights, "the owners work inside")
    assert await host.may(ALICE, "create", "", "pods", name)
    code, told = await convert_command(
        plane_cluster.kubeconfig_path, "sub", "web", "-n", name, "--to", "shared", "--wait"
    )
    assert code == 0, told
    after = await running(host, web, 3)
    assert {each["metadata"]["uid"] for each in after} == now
    assert [each["restartCount"] for pod in after for each in pod["status"]["containerStatuses"]] == [0] * 3
    assert await host.find(VirtualControlPlane.resource, "web", web) is None

    async def is_open() -> bool:
        labels = (await host.get(Namespace.resource, web))["metadata"]["labels"]
        is_closed = {marks.CONVERTING, marks.CONTROL_PLANE} & set(labels)
        return not is_closed and await host.may(BOB, "create", "", "pods", web)

    await until(is_open, "the owners work on the host again")
    assert not await host.may(BOB, "get", "", "configmaps", name)
    for namespace in (name, web):
        assert not [each for each in await planes.names(RoleBinding.resource, namespace) if "converter" in each]
    await host.delete(Tenant.resource, name)


async def test_what_keeps_a_subtenant_is_shown_to_its_own_owners(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H01, E05: its parent reads how many objects cannot move, an Event inside names them, and nothing changes."""
    host = planes.host
    await host.make_tenant(name, owners=[ALICE])
    await host.open(name)
    shop = await child_of(host, name, "shop", mode="Subtenant")
    job = {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "nginx"}]}},
    }
    await host.create(JOBS, {"metadata": {"name": "salaries"}, "spec": job}, shop)
    code, told = await convert_command(plane_cluster.kubeconfig_path, "sub", "shop", "-n", name, "--dry-run")
    assert (code, "salaries" in told) == (1, True), told
    # An owner of the parent requests it without seeing what would move.
    alice = tmp_path / "alice.kubeconfig"
    alice.write_text(await kubeconfig_of(plane_cluster.kubeconfig_path, name, "alice"))
    code, told = await convert_command(alice, "sub", "shop", "-n", name, "--dry-run")
    assert (code != 0, "salaries" in told) == (True, False), told
    code, told = await convert_command(alice, "sub", "shop", "-n", name)
    assert (code, "the operator checks whether it can move" in told) == (0, True), told
    journal = await converted(host, "shop", "Refused", parent=name)
    assert journal["message"] == f"cannot move: 1 Job; an Event in namespace {shop!r} names them"

    async def is_named() -> bool:
        return any("Job 'salaries' has not ended" in each["note"] for each in await host.list(EVENTS, shop))

    await until(is_named, "an Event names what cannot move")
    assert await planes.names(VirtualControlPlane.resource, shop) == []
    code, told = await convert_command(plane_cluster.kubeconfig_path, "sub", "shop", "-n", name, "--to", "shared")
    assert (code, "the conversion is undone" in told) == (0, True), told

    async def is_forgotten() -> bool:
        return "conversion" not in (await host.get(Subnamespace.resource, "shop", name))["status"]

    await until(is_forgotten, "the conversion is forgotten")
    assert await host.may(BOB, "create", "", "pods", shop)
    await host.delete(Tenant.resource, name)

"""Tenants that get a control plane of their own while their pods run."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import msgspec
from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.local.process import kill_if_same
from tenantry.local.state import read_state
from testkit.api import CONFIG_MAPS, PODS, ROLES, SECONDS, SECRETS, Api, until
from testkit.converting import (
    ALICE,
    CLAIMS,
    DEPLOYMENTS,
    EVERYTHING,
    POLICIES,
    SERVICES,
    STATEFUL_SETS,
    VIRTUAL,
    convert_command,
    converted,
    fill,
    running,
)
from testkit.planes import Planes
from testkit.secretwatches import watching_secrets

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
ADOPTED = {CLAIMS: "data", POLICIES: "own", CONFIG_MAPS: "settings", SECRETS: "password"}


async def refused(host: Api, namespace: str) -> bool:
    """Whether the policy on namespaces that move refuses a user with all rights there."""
    async with Client(replace(host.client.connection, impersonate="mallory")) as client:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late", "namespace": namespace}}
        try:
            path = wire.path(CONFIG_MAPS, namespace)
            await client.request("POST", path, query={"dryRun": "All"}, body=msgspec.json.encode(body))
        except Forbidden as error:
            return "move to a control plane of its own" in str(error)
        return False


async def seen_kubeconfigs(host: Api, name: str) -> list[str]:
    """Read the kubeconfig as a member of the namespace until that has no rights any more; return what was found."""
    found: list[str] = []
    async with Client(replace(host.client.connection, impersonate="mallory")) as client:

        async def has_no_rights() -> bool:
            try:
                await client.request("GET", wire.path(SECRETS, name, f"{name}-kubeconfig"))
            except NotFound:
                return False
            except Forbidden:
                return True
            found.append((await host.get(Tenant.resource, name))["status"]["conversion"]["step"])
            return False

        await until(has_no_rights, "the bindings of users are gone", seconds=6 * SECONDS)
    return found


async def test_a_tenant_that_runs_gets_a_control_plane(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: no pod restarts, also if the operator is killed meanwhile; afterwards all of it works inside."""
    host = planes.host
    await host.make_tenant(name, owners=[ALICE], quota={"hard": {"memory": "4Gi", "pods": "9"}})
    await host.open(name)
    await fill(host, name)
    before = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await running(host, name, 3)}
    service = await host.get(SERVICES, "front", name)
    kept = {each: (await host.get(each, called, name))["metadata"]["uid"] for each, called in ADOPTED.items()}
    # Asked from the start: the conversion may be done when the test has noticed that objects move.
    refusal = asyncio.create_task(until(lambda: refused(host, name), "writes are refused", seconds=3 * SECONDS))
    kubeconfigs = asyncio.create_task(seen_kubeconfigs(host, name))
    await host.patch(Tenant.resource, name, VIRTUAL)
    await converted(host, name, "Moving")
    state = read_state(plane_cluster.paths)
    operator = state.component("operator") if state is not None else None
    assert operator is not None
    assert kill_if_same(operator.pid, operator.start_ticks, signal.SIGKILL)
    await refusal
    journal = await converted(host, name)
    assert await kubeconfigs == [], "members of the namespace would be administrators inside"
    assert journal["startedAt"] <= journal["closedAt"] <= journal["endedAt"]
    # On the host: the same pods and Service, and nothing that users could change.
    after = await running(host, name, 3)
    assert {each["metadata"]["name"]: each["metadata"]["uid"] for each in after} == before
    assert [each["restartCount"] for pod in after for each in pod["status"]["containerStatuses"]] == [0, 0, 0]
    owners = {each["kind"] for pod in after for each in pod["metadata"]["ownerReferences"]}
    assert owners == {VirtualControlPlane.resource.kind}
    same = await host.get(SERVICES, "front", name)
    assert (same["metadata"]["uid"], same["spec"]["clusterIP"]) == (
        service["metadata"]["uid"],
        service["spec"]["clusterIP"],
    )
    assert kept == {each: (await host.get(each, called, name))["metadata"]["uid"] for each, called in ADOPTED.items()}
    for resource in (DEPLOYMENTS, STATEFUL_SETS):
        assert await planes.names(resource, name) == []
    assert "reader" not in await planes.names(ROLES, name)
    assert "notes" not in await planes.names(CONFIG_MAPS, name)

    async def has_no_rights() -> bool:
        return not await host.may({"kind": "User", "name": "mallory"}, "create", "", "pods", name)

    await until(has_no_rights, "the bindings of users are gone")
    assert "tenantry-converter" not in await planes.names(RoleBinding.resource, name)

    async def is_open() -> bool:
        return marks.CONVERTING not in (await host.get(Namespace.resource, name))["metadata"]["labels"]

    await until(is_open, "writes are allowed again")
    await host.ready(name)
    credentials = (await host.get(VirtualControlPlane.resource, name, name))["status"]["credentials"]
    assert "again" not in credentials, "no user of the host can have seen them"
    await _works_inside(planes, name, before, service["spec"]["clusterIP"])
    await host.delete(Tenant.resource, name)


async def _works_inside(planes: Planes, name: str, before: dict[str, str], address: str) -> None:
    host = planes.host
    async with planes.entered(name, name) as inside:
        names = {each["metadata"]["name"] for each in await running(inside, name, 3)}
        assert names == set(before)
        assert (await inside.get(SERVICES, "front", name))["spec"]["clusterIP"] == address
        assert (await inside.get(CONFIG_MAPS, "notes", name))["data"] == {"b": "1"}
        await inside.get(ROLES, "reader", name)
        for resource in (CLAIMS, POLICIES):
            await inside.get(resource, ADOPTED[resource], name)
        # What runs can be changed inside.
        await inside.patch(DEPLOYMENTS, "front", {"spec": {"replicas": 3}}, name)
        assert set(before.values()) < {each["metadata"]["uid"] for each in await running(host, name, 4)}
        await inside.delete(STATEFUL_SETS, "store", name)
        await inside.delete(DEPLOYMENTS, "front", name)
        await inside.delete(SERVICES, "front", name)

        async def gone() -> bool:
            return not await host.list(PODS, name) and await host.find(SERVICES, "front", name) is None

        await until(gone, "the adopted objects are gone", seconds=2 * SECONDS)


BOB = {"kind": "User", "name": "bob"}
MALLORY = {"kind": "User", "name": "mallory"}


async def test_a_watch_from_before_never_shows_a_kubeconfig(planes: Planes, name: str) -> None:
    """H01: not to a member, nor to an owner who is removed as soon as the tenant is converted; others may only get."""
    host = planes.host
    await host.make_tenant(name, owners=[ALICE, BOB])
    await host.open(name)
    await host.create(ROLES, {"metadata": {"name": "all"}, "rules": [EVERYTHING]}, name)
    role = {"kind": "Role", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": "all"}, "roleRef": role, "subjects": [MALLORY]}
    await host.create(RoleBinding.resource, body, name)
    await until(lambda: host.may(MALLORY, "watch", "", "secrets", name), "the member may watch")
    async with watching_secrets(host, "mallory", name) as seen, watching_secrets(host, "bob", name) as seen_by_owner:
        await host.patch(Tenant.resource, name, VIRTUAL)
        await converted(host, name)
        await host.ready(name)
        assert await _reads_kubeconfig(host, "bob", name)
        assert not await _reads_kubeconfig(host, "mallory", name)
        for who in (ALICE, BOB, MALLORY):
            for verb in ("list", "watch", "create", "patch", "delete"):
                assert not await host.may(who, verb, "", "secrets", KUBECONFIGS_NAMESPACE), (who, verb)
        await host.patch(Tenant.resource, name, {"spec": {"owners": [ALICE]}})

        async def is_rotated() -> bool:
            status = (await host.get(VirtualControlPlane.resource, name, name))["status"]
            return bool(status.get("lastRotation", {}).get("users") == 1)

        await until(is_rotated, "the credentials are replaced", seconds=3 * SECONDS)
        assert not await _reads_kubeconfig(host, "bob", name)
        assert await _reads_kubeconfig(host, "alice", name)
        for each, last in ((seen, "last"), (seen_by_owner, "last-of-owner")):
            await each.reaches(host, name, last)
            assert each.kubeconfigs == [], "its reader would be an administrator inside"
    await host.delete(Tenant.resource, name)


async def _reads_kubeconfig(host: Api, user: str, name: str) -> bool:
    status = (await host.get(VirtualControlPlane.resource, name, name))["status"]
    async with Client(replace(host.client.connection, impersonate=user)) as client:
        try:
            await Api(client).get(SECRETS, status["kubeconfigSecret"], status.get("kubeconfigNamespace") or name)
        except (Forbidden, NotFound):
            return False
        return True


async def test_what_cannot_move_keeps_a_tenant_as_it_is(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: the refusal names it, nothing changes, and the spec can be taken back."""
    host = planes.host
    await host.make_tenant(name, owners=[ALICE])
    await host.open(name)
    job = {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "nginx"}]}},
    }
    jobs = Resource("batch", "v1", "jobs", "Job")
    await host.create(CONFIG_MAPS, {"metadata": {"name": "notes"}}, name)
    assert (await convert_command(plane_cluster.kubeconfig_path, "tenant", name, "--dry-run"))[0] == 0
    await host.create(jobs, {"metadata": {"name": "import"}, "spec": job}, name)
    code, told = await convert_command(plane_cluster.kubeconfig_path, "tenant", name, "--dry-run")
    rows = [line.split()[:3] for line in told.splitlines()]
    assert code == 1, told
    assert ["ConfigMap", "notes", "Moved"] in rows
    assert ["Job", "import", "Refused"] in rows
    await host.patch(Tenant.resource, name, VIRTUAL)
    journal = await converted(host, name, "Refused")
    assert "Job 'import' has not ended" in journal["message"]
    assert await planes.names(VirtualControlPlane.resource, name) == []
    assert await host.may(ALICE, "create", "", "pods", name)
    await host.patch(Tenant.resource, name, {"spec": {"isolation": {"controlPlane": "Shared"}}})

    async def forgotten() -> bool:
        return "conversion" not in (await host.get(Tenant.resource, name))["status"]

    await until(forgotten, "the conversion is forgotten")
    await host.delete(Tenant.resource, name)


async def test_a_control_plane_that_does_not_start_can_be_taken_back(planes: Planes, name: str) -> None:
    """H01: before objects move, the spec of before brings everything back."""
    host = planes.host
    # No room for the control plane.
    await host.make_tenant(name, owners=[ALICE], quota={"hard": {"requests.memory": "64Mi"}})
    await host.open(name)
    await host.patch(Tenant.resource, name, VIRTUAL)
    await converted(host, name, "Preparing")
    await until(lambda: host.find(VirtualControlPlane.resource, name, name), "the control plane is created")
    assert (await host.get(Tenant.resource, name))["status"]["conversion"]["step"] == "Preparing"
    await host.patch(Tenant.resource, name, {"spec": {"isolation": {"controlPlane": "Shared"}}})

    async def is_back() -> bool:
        has_rights = await host.may(ALICE, "create", "", "pods", name)
        return has_rights and await planes.names(VirtualControlPlane.resource, name) == []

    await until(is_back, "the tenant is as before")
    found = await host.ready(name)
    assert marks.CONTROL_PLANE not in (await host.get(Namespace.resource, name))["metadata"]["labels"]
    assert found.spec.isolation.control_plane is ControlPlaneChoice.SHARED
    await host.delete(Tenant.resource, name)

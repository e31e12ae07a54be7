"""Tenants that return from their control plane to the API server of the host while their pods run."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.errors import Forbidden, ServerError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PREFIX, VirtualControlPlane
from tenantry.controllers.conversion.surroundings import DEFINITIONS
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.local.process import kill_if_same
from tenantry.local.state import read_state
from testkit.api import CONFIG_MAPS, ROLES, SECONDS, Api, tenant_json, until
from testkit.converting import (
    ALICE,
    CLAIMS,
    DEPLOYMENTS,
    EVERYTHING,
    SERVICES,
    SHARED,
    VIRTUAL,
    convert_command,
    converted,
    fill,
    running,
    workload,
)
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
WRITES: Json = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}
MOST_KILLS = 3
"""The supervisor waits longer before each start."""

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)


def uids(pods: list[Json]) -> set[str]:
    """Return the uids of pods."""
    return {each["metadata"]["uid"] for each in pods}


async def _of(host: Api, resource: Resource, namespace: str, start: str) -> Json | None:
    """Return the object of the host whose name starts so; None until there is one."""
    found = await host.list(resource, namespace)
    return next((each for each in found if each["metadata"]["name"].startswith(start)), None)


async def token_of(inside: Api, namespace: str) -> str:
    """Return a token of the ServiceAccount `default` of a namespace inside."""
    asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    answer = msgspec.json.decode(await inside.client.request("POST", path, body=msgspec.json.encode(asked)))
    return answer["status"]["token"]


async def status_of(client: Client, method: str, path: str, body: bytes | None = None) -> int:
    """Return the status with which a request is answered: 200 for all that are granted."""
    try:
        await client.request(method, path, body=body, attempts=1)
    except (Forbidden, ServerError) as error:
        return error.status
    return 200


def volume(namespace: str, claim: str) -> Json:
    """A volume for a claim."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": namespace, "name": claim},
        "hostPath": {"path": "/tmp/disk"},  # noqa: S108 - simulated nodes mount nothing
    }
    return {"metadata": {"name": f"{namespace}-disk"}, "spec": spec}


async def kill_at_each_stage(cluster: LocalCluster, host: Api, name: str) -> None:
    """Kill the operator whenever the journal reports another stage of the move; the supervisor starts it again."""
    seen = set[str]()

    async def news() -> str | None:
        found = (await host.get(Tenant.resource, name))["status"].get("conversion", {})
        if found.get("step") == "Converted" and found.get("to") == "Shared":
            return "Converted"
        stage = str(found.get("message", "")).partition(",")[0]
        return stage if found.get("step") == "Moving" and stage not in seen else None

    while (stage := await until(news, "another stage", seconds=SECONDS)) != "Converted":
        seen.add(stage)
        state = read_state(cluster.paths)
        operator = state.component("operator") if state is not None else None
        if operator is not None and len(seen) <= MOST_KILLS:
            kill_if_same(operator.pid, operator.start_ticks, signal.SIGKILL)
    assert seen


async def add(planes: Planes, cluster: LocalCluster, name: str) -> tuple[set[str], Json]:
    """Create inside what gets other names on the host; return the uids of all pods, and the Service of the host."""
    host = planes.host
    async with planes.entered(name, name) as inside:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await inside.create(CLAIMS, {"metadata": {"name": "disk"}, "spec": claim}, name)
        added = workload("later", 2)
        spec = added["spec"]["template"]["spec"]
        spec["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]
        await inside.create(DEPLOYMENTS, added, name)
        ports = {"selector": {"app": "later"}, "ports": [{"port": 80}]}
        await inside.create(SERVICES, {"metadata": {"name": "later"}, "spec": ports}, name)
        disk = await until(lambda: _of(host, CLAIMS, name, "disk-"), "the claim is on the host")
        await host.create(VOLUMES, volume(name, disk["metadata"]["name"]))
        pods = await running(host, name, 5)
        later = await until(lambda: _of(host, SERVICES, name, "later-"), "the Service is on the host")
        code, told = await convert_command(cluster.kubeconfig_path, "tenant", name, "--to", "shared", "--dry-run")
        assert (code, ["Role", "all", "Refused"] in [line.split()[:3] for line in told.splitlines()]) == (1, True), told
        # Its rights were granted by an administrator of the host.
        for resource in (RoleBinding.resource, ROLES):
            await inside.delete(resource, "all", name)
        code, told = await convert_command(cluster.kubeconfig_path, "tenant", name, "--to", "shared", "--dry-run")
        assert code == 0, told
    assert f"keeps the name '{later['metadata']['name']}'" in told
    return uids(pods), later


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "killed"])
async def test_a_tenant_returns_with_what_runs(
    plane_cluster: LocalCluster, planes: Planes, name: str, *, is_killed: bool
) -> None:
    """H01: no pod restarts on the way into a control plane and back; afterwards owners change all of it on the host."""
    host = planes.host
    await host.make_tenant(name, owners=[ALICE], quota={"hard": {"memory": "4Gi", "pods": "9"}})
    await host.open(name)
    await fill(host, name)
    await running(host, name, 3)
    front = await host.get(SERVICES, "front", name)
    await host.patch(Tenant.resource, name, VIRTUAL)
    await converted(host, name)
    await host.ready(name)
    before, later = await add(planes, plane_cluster, name)
    await host.patch(Tenant.resource, name, SHARED)
    if is_killed:
        await kill_at_each_stage(plane_cluster, host, name)
    journal = await converted(host, name, to="Shared")
    assert journal["startedAt"] <= journal["closedAt"] <= journal["endedAt"]
    after = await running(host, name, 5)
    assert uids(after) == before
    assert [each["restartCount"] for pod in after for each in pod["status"]["containerStatuses"]] == [0] * 5
    for each in after:
        assert {owner["kind"] for owner in each["metadata"]["ownerReferences"]} <= {"ReplicaSet", "StatefulSet"}
        assert not [key for key in each["metadata"]["labels"] if key.startswith(PREFIX)]
    for was in (front, later):
        same = await host.get(SERVICES, was["metadata"]["name"], name)
        assert (same["metadata"]["uid"], same["spec"]["clusterIP"]) == (
            was["metadata"]["uid"],
            was["spec"]["clusterIP"],
        )
    assert (await host.get(SERVICES, "front", name))["spec"]["selector"] == {"app": "front"}
    assert (await host.get(SERVICES, "later", name))["spec"]["selector"] == {"app": "later"}
    assert (await host.get(CONFIG_MAPS, "notes", name))["data"] == {"b": "1"}
    assert await host.find(VirtualControlPlane.resource, name, name) is None
    assert not {"tenantry-converter", "tenantry-converter-owners"} & set(await planes.names(RoleBinding.resource, name))
    await host.ready(name)

    async def is_open() -> bool:
        labels = (await host.get(Namespace.resource, name))["metadata"]["labels"]
        return not {marks.CONVERTING, marks.CONTROL_PLANE} & set(labels) and await host.may(
            ALICE, "create", "", "pods", name
        )

    await until(is_open, "the owners work on the host again")
    # The host's controllers have the pods: no rollout has begun, and replicas can change.
    await host.patch(DEPLOYMENTS, "later", {"spec": {"replicas": 3}}, name)
    assert before < uids(await running(host, name, 6))
    await host.delete(Tenant.resource, name)
    await host.delete(VOLUMES, f"{name}-disk")


async def test_no_program_writes_inside_while_objects_move_out(planes: Planes, name: str) -> None:
    """H01: neither users nor tokens of ServiceAccounts, whose writes would be lost with the control plane."""
    host = planes.host
    await host.create(Tenant.resource, tenant_json(name, owners=[ALICE], isolation={"controlPlane": "Virtual"}))
    await host.ready(name)
    await planes.ready(name, name)
    async with planes.entered(name, name) as inside:
        await inside.create(Namespace.resource, {"metadata": {"name": name}})
        await inside.default_account(name)
        await inside.create(ROLES, {"metadata": {"name": "writes"}, "rules": [WRITES]}, name)
        role = {"kind": "Role", "name": "writes", "apiGroup": "rbac.authorization.k8s.io"}
        account = {"kind": "ServiceAccount", "name": "default", "namespace": name}
        binding: Json = {"metadata": {"name": "writes"}, "roleRef": role, "subjects": [account]}
        await inside.create(RoleBinding.resource, binding, name)
        ports = {"selector": {"app": "late"}, "ports": [{"port": 80}]}
        await inside.create(SERVICES, {"metadata": {"name": "late"}, "spec": ports}, name)
        late = (await until(lambda: _of(host, SERVICES, name, "late-"), "the Service is on the host"))["metadata"]
        # The return waits for its end.
        await host.patch(SERVICES, late["name"], {"metadata": {"finalizers": ["example.dev/held"]}}, name)
        await inside.delete(SERVICES, "late", name)
        given = inside.client.connection.detached()
        token = await token_of(inside, name)
        async with Client(replace(given, certificate=None, key=None, token=token)) as program:
            path = f"/api/v1/namespaces/{name}/configmaps"

            async def answered(client: Client, note: str) -> set[int]:
                body = msgspec.json.encode({"metadata": {"name": note}})
                return {await status_of(client, "GET", path), await status_of(client, "POST", path, body)}

            assert await answered(program, "before") == {200}
            await host.patch(Tenant.resource, name, SHARED)

            async def waits() -> bool:
                journal = (await host.get(Tenant.resource, name))["status"].get("conversion", {})
                return "the end of Service" in journal.get("message", "")

            await until(waits, "objects move, and wait for the Service", seconds=2 * SECONDS)
            assert await answered(program, "during") == {503}
            assert await answered(inside.client, "during-by-user") == {503}
            await host.patch(SERVICES, late["name"], {"metadata": {"finalizers": None}}, name)
            await converted(host, name, to="Shared")
    assert {"before"} == {"before", "during", "during-by-user"} & set(await planes.names(CONFIG_MAPS, name))
    await host.delete(Tenant.resource, name)


async def test_what_cannot_return_is_listed(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: the refusal names all of it, the control plane runs on, and the spec can be taken back."""
    host = planes.host
    await host.create(Tenant.resource, tenant_json(name, owners=[ALICE], isolation={"controlPlane": "Virtual"}))
    await host.ready(name)
    await planes.ready(name, name)
    async with planes.entered(name, name) as inside:
        await inside.create(Namespace.resource, {"metadata": {"name": name}})
        await inside.default_account(name)
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "notes"}}, name)
        code, told = await convert_command(plane_cluster.kubeconfig_path, "tenant", name, "--to", "shared", "--dry-run")
        assert (code, "Refused" in told) == (0, False), told
        await inside.create(Namespace.resource, {"metadata": {"name": "shop"}})
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "left"}}, "default")
        names = {"plural": "wishes", "singular": "wish", "kind": "Wish"}
        schema = {"openAPIV3Schema": {"type": "object"}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        spec = {"group": "example.dev", "scope": "Namespaced", "names": names, "versions": [version]}
        await inside.create(DEFINITIONS, {"metadata": {"name": "wishes.example.dev"}, "spec": spec})
        await inside.create(CLUSTER_ROLES, {"metadata": {"name": "reads-all"}, "rules": []})
        role = {"kind": "ClusterRole", "name": "tenantry-mirror", "apiGroup": "rbac.authorization.k8s.io"}
        binding: Json = {"metadata": {"name": "takes"}, "roleRef": role, "subjects": []}
        await inside.create(RoleBinding.resource, binding, name)
        await inside.create(ROLES, {"metadata": {"name": "every"}, "rules": [EVERYTHING]}, name)
        code, told = await convert_command(plane_cluster.kubeconfig_path, "tenant", name, "--to", "shared", "--dry-run")
        assert code == 1, told
        rows = {tuple(line.split()[:3]) for line in told.splitlines()}
        assert rows >= {
            ("Namespace", "shop", "Moved"),
            ("ConfigMap", "default/left", "Refused"),
            ("CustomResourceDefinition", "wishes.example.dev", "Refused"),
            ("ClusterRole", "reads-all", "Refused"),
            ("RoleBinding", "takes", "Refused"),
            ("Role", "every", "Refused"),
            ("ConfigMap", "notes", "Moved"),
        }
        await host.patch(Tenant.resource, name, SHARED)
        journal = await converted(host, name, "Refused", to="Shared")
        assert "cannot move: " in journal["message"]
        assert " more, or set spec.isolation.controlPlane back to Virtual" in journal["message"]
        # It runs on, and its users work.
        await inside.patch(CONFIG_MAPS, "notes", {"data": {"a": "1"}}, name)
        assert marks.CONTROL_PLANE in (await host.get(Namespace.resource, name))["metadata"]["labels"]
        assert "notes" not in await planes.names(CONFIG_MAPS, name)
    await host.patch(Tenant.resource, name, VIRTUAL)

    async def forgotten() -> bool:
        return "conversion" not in (await host.get(Tenant.resource, name))["status"]

    await until(forgotten, "the conversion is forgotten")
    assert not {"tenantry-converter", "tenantry-converter-owners"} & set(await planes.names(RoleBinding.resource, name))
    await host.delete(Tenant.resource, name)

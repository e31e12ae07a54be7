"""Tenants that return from their control plane with several namespaces, which become Subnamespaces."""

from __future__ import annotations

from typing import Any

from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, PODS, ROLES, SECONDS, SECRETS, Api, tenant_json, until
from testkit.converting import (
    ALICE,
    DEPLOYMENTS,
    SERVICES,
    SHARED,
    convert_command,
    converted,
    ready_child,
    running,
    workload,
)
from testkit.planes import Planes

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


async def fill(inside: Api, namespace: str) -> None:
    """Create what another namespace inside has."""
    await inside.create(Namespace.resource, {"metadata": {"name": namespace}})
    await inside.default_account(namespace)
    await inside.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"a": "1"}}, namespace)
    await inside.create(SECRETS, {"metadata": {"name": "password"}, "stringData": {"password": "x"}}, namespace)
    await inside.create(ACCOUNTS, {"metadata": {"name": "robot"}}, namespace)
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await inside.create(ROLES, {"metadata": {"name": "reader"}, "rules": [rule]}, namespace)
    role = {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": namespace}
    binding: Json = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
    await inside.create(RoleBinding.resource, binding, namespace)
    spec = {"selector": {"app": "front"}, "ports": [{"port": 80}]}
    await inside.create(SERVICES, {"metadata": {"name": "front"}, "spec": spec}, namespace)
    await inside.create(DEPLOYMENTS, workload("front", 1), namespace)


async def has_no_pods(side: Api, namespace: str) -> bool:
    """Return whether no pods are in a namespace."""
    return not await side.list(PODS, namespace)


async def test_other_namespaces_become_subnamespaces(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H01: what runs there is named; scaled to 0, all of it moves, and runs again in the Subnamespace."""
    host = planes.host
    await host.create(Tenant.resource, tenant_json(name, owners=[ALICE], isolation={"controlPlane": "Virtual"}))
    await host.ready(name)
    await planes.ready(name, name)
    async with planes.entered(name, name) as inside:
        await inside.create(Namespace.resource, {"metadata": {"name": name}})
        await inside.default_account(name)
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"a": "1"}}, name)
        await inside.create(SECRETS, {"metadata": {"name": "password"}, "stringData": {"password": "x"}}, name)
        await inside.create(DEPLOYMENTS, workload("back", 1), name)
        await fill(inside, "shop")
        await running(inside, "shop", 1)
        before = [
            each["metadata"]["uid"] for each in await running(host, name, 2) if "back" in each["metadata"]["name"]
        ]
        code, told = await convert_command(plane_cluster.kubeconfig_path, "tenant", name, "--to", "shared", "--dry-run")
        rows = {tuple(line.split()[:3]) for line in told.splitlines()}
        assert code == 1, told
        assert rows >= {
            ("Deployment", "shop/front", "Refused"),
            ("Namespace", "shop", "Moved"),
            ("ConfigMap", "shop/settings", "Moved"),
        }
        assert "scale it to 0, and up again in Subnamespace 'shop' after the return" in told
        await inside.patch(DEPLOYMENTS, "front", {"spec": {"replicas": 0}}, "shop")
        await until(lambda: has_no_pods(inside, "shop"), "no pod runs", seconds=2 * SECONDS)
    await host.patch(Tenant.resource, name, SHARED)
    await converted(host, name, to="Shared")
    shop = await ready_child(host, name, "shop")
    assert (await host.get(CONFIG_MAPS, "settings", shop))["data"] == {"a": "1"}
    assert (await host.get(SERVICES, "front", shop))["spec"]["selector"] == {"app": "front"}
    binding = await host.get(RoleBinding.resource, "reader", shop)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "robot", "namespace": shop}]
    robot = {"kind": "ServiceAccount", "name": "robot", "namespace": shop}
    await until(lambda: host.may(robot, "list", "", "pods", shop), "the moved binding is in force")
    assert not await host.may(robot, "list", "", "pods", name)
    assert [each["metadata"]["uid"] for each in await running(host, name, 1)] == before
    assert await host.find(VirtualControlPlane.resource, name, name) is None
    for namespace in (name, shop):
        assert not [each for each in await planes.names(RoleBinding.resource, namespace) if "converter" in each]

    async def is_owned() -> bool:
        return await host.may(ALICE, "create", "", "pods", shop)

    await until(is_owned, "the owners work in the Subnamespace", seconds=SECONDS)
    await host.patch(DEPLOYMENTS, "front", {"spec": {"replicas": 1}}, shop)
    await running(host, shop, 1)
    await host.delete(Tenant.resource, name)

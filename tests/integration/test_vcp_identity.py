"""The identity of mirrors: what an owner reaches by impersonation, which the role of owners includes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import Forbidden
from tenantry.api.flowcontrol import FlowSchema
from tenantry.api.kubernetes import RoleBinding
from tenantry.api.marks import MANAGED_BY, MANAGER, OPERATOR_USER, OWNER_ROLE
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import MIRROR, MIRRORS_NAMESPACE, PLANE, PREFIX
from tenantry.controllers.fairness.desired import MIRRORS
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, SECONDS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.people import as_person
from testkit.planes import Planes, without_operator
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]


def as_account(person: Api, namespace: str, account: str) -> Client:
    """Return a client of a user who impersonates a ServiceAccount, as `kubectl --as` does."""
    user = f"system:serviceaccount:{namespace}:{account}"
    return Client(msgspec.structs.replace(person.client.connection, impersonate=user))


async def test_owners_do_not_act_as_the_mirror_by_impersonation(
    plane_cluster: LocalCluster, planes: Planes, name: str, tmp_path: Path
) -> None:
    """H01: neither as an account of the names that it has or had, in their own namespace, nor as the mirror itself."""
    host = planes.host
    await host.make_tenant(name)
    await planes.create(name, "web")
    secret = await host.get(SECRETS, "web-kubeconfig", name)
    marked: Json = {"metadata": {"name": "forged", "annotations": {f"{PREFIX}/name": "x"}}}
    async with as_person(plane_cluster, tmp_path, "alice") as alice, without_operator(plane_cluster):
        # All rights that an owner can give.
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OWNER_ROLE}
        subjects = [{"kind": "ServiceAccount", "name": each, "namespace": name} for each in (MIRROR, name)]
        bound: Json = {"metadata": {"name": "mine"}, "roleRef": role, "subjects": subjects}
        await alice.create(RoleBinding.resource, bound, name)
        for account in (MIRROR, name):
            async with as_account(alice, name, account) as client:
                puppet = Api(client)

                async def may(puppet: Api = puppet) -> bool:
                    return await refusal(puppet, CONFIG_MAPS, {"metadata": {"name": "plain"}}, name) == ""

                await until(may, "the impersonated account has the rights of an owner")
                for resource in (CONFIG_MAPS, SECRETS):
                    assert "is Tenantry's" in await refusal(puppet, resource, marked, name)
                unmarked: Json = {"metadata": {"labels": {PLANE: None}}}
                assert "is Tenantry's" in await refusal(puppet, SECRETS, unmarked, name, patch="web-kubeconfig")
        async with as_account(alice, MIRRORS_NAMESPACE, name) as client:
            for resource in (CONFIG_MAPS, SECRETS):
                assert "cannot impersonate" in await refusal(Api(client), resource, marked, name)
            with pytest.raises(Forbidden, match="cannot impersonate"):
                await client.delete(SECRETS, name, "web-kubeconfig")
        # Nor by its tokens, nor by writes of its account.
        asked = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        account_path = wire.path(SERVICE_ACCOUNTS, MIRRORS_NAMESPACE, name)
        with pytest.raises(Forbidden):
            await alice.client.request("POST", f"{account_path}/token", body=asked)
        with pytest.raises(Forbidden):
            await alice.client.delete(SERVICE_ACCOUNTS, MIRRORS_NAMESPACE, name)
        with pytest.raises(Forbidden, match="is Tenantry's"):
            await alice.client.delete(RoleBinding.resource, name, f"{MIRROR}-web")
    assert (await host.get(SECRETS, "web-kubeconfig", name))["metadata"]["uid"] == secret["metadata"]["uid"]
    await planes.delete(name, "web")


async def test_the_identity_of_mirrors_goes_with_the_namespace(planes: Planes, name: str) -> None:
    """H01: also that of an earlier version; only identities of mirrors are served in their priority level."""
    host = planes.host
    await host.make_tenant(name)
    former: Json = {"metadata": {"name": MIRROR, "labels": {MANAGED_BY: MANAGER}}}
    operators = msgspec.structs.replace(host.client.connection, impersonate=OPERATOR_USER)
    async with Client(operators) as client:
        await Api(client).create(SERVICE_ACCOUNTS, former, name)
    await planes.create(name, "web")
    assert await host.find(SERVICE_ACCOUNTS, MIRROR, name) is None
    schema = await host.get(FlowSchema.resource, MIRRORS)
    subjects = [each for rule in schema["spec"]["rules"] for each in rule["subjects"]]
    assert subjects == [{"kind": "ServiceAccount", "serviceAccount": {"namespace": MIRRORS_NAMESPACE, "name": "*"}}]
    assert await host.find(SERVICE_ACCOUNTS, name, MIRRORS_NAMESPACE) is not None
    await host.delete(Tenant.resource, name)

    async def gone() -> bool:
        is_left = await host.find(SERVICE_ACCOUNTS, name, MIRRORS_NAMESPACE) is not None
        return not is_left and not await planes.exists(name)

    await until(gone, "the identity is gone with the namespace", seconds=3 * SECONDS)

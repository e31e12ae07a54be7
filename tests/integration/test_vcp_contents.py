"""What the operator keeps inside a control plane with nodes of its own (H04): add-ons that are changed come back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.clustercontents.objects import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from tenantry.controllers.clustercontents.reverts import MOST_REVERTS
from tenantry.kube import wire
from testkit.api import Api, until
from testkit.planes import Planes
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

PLANES = VirtualControlPlane.resource
ROLE = "tenantry:netpol-agent"
BINDING = "tenantry:node-proxiers"


async def told(planes: Planes, name: str) -> Json:
    """Return the condition about the contents."""
    found = await planes.host.get(PLANES, "prod", name)
    none: Json = {}
    return next((each for each in found["status"]["conditions"] if each["type"] == reasons.ADD_ONS_READY), none)


async def changed(inside: Api, rules: list[Json], manager: str) -> None:
    """Change a role as another client does."""
    body = msgspec.json.encode({"rules": rules})
    query = {"fieldManager": manager}
    path = wire.path(CLUSTER_ROLES, "", ROLE)
    await inside.client.request("PATCH", path, query=query, body=body, content_type="application/merge-patch+json")


@pytest.mark.long
async def test_objects_of_the_operator_come_back_until_another_client_does_not_give_up(
    planes: Planes, name: str
) -> None:
    """H04: deleted, changed, and given another role; after three times, a condition names the client."""
    await planes.host.make_tenant(name)
    other = {"spec": {"addOns": [{"name": "CoreDNS"}]}, "metadata": {"name": "other"}}
    assert "must be empty unless nodes is Own" in await refusal(planes.host, PLANES, other, name)
    await planes.host.create(PLANES, {"metadata": {"name": "prod"}, "spec": {"nodes": "Own"}}, name)
    await planes.ready(name, "prod")
    async with planes.entered(name, "prod") as inside:

        async def reported() -> bool:
            return (await told(planes, name)).get("status") == "True"

        await until(reported, "the contents are in place")
        wanted = (await inside.get(CLUSTER_ROLES, ROLE))["rules"]
        assert wanted

        async def is_whole() -> bool:
            found = await inside.find(CLUSTER_ROLES, ROLE)
            return found is not None and found["rules"] == wanted

        await inside.delete(CLUSTER_ROLES, ROLE)
        await until(is_whole, "a role that was deleted is there again")
        # The role of a binding never changes: it is replaced.
        await inside.delete(CLUSTER_ROLE_BINDINGS, BINDING)
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}
        wrong: Json = {
            "metadata": {"name": BINDING},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [subject],
        }
        with suppress(AlreadyExists):  # the operator was faster
            await inside.create(CLUSTER_ROLE_BINDINGS, wrong)

        async def is_bound() -> bool:
            found = await inside.find(CLUSTER_ROLE_BINDINGS, BINDING)
            return found is not None and found["roleRef"]["name"] == "system:node-proxier"

        await until(is_bound, "the binding has its role again")
        for _ in range(MOST_REVERTS):
            await changed(inside, [], "argocd")
            await until(is_whole, "a role that was changed is as before")
        await changed(inside, [], "argocd")

        async def is_left() -> bool:
            found = await told(planes, name)
            return found["reason"] == reasons.DRIFTED and "'argocd'" in found["message"]

        await until(is_left, "the condition names the client")
        assert f"ClusterRole {ROLE}" in (await told(planes, name))["message"]
        assert not (await inside.get(CLUSTER_ROLES, ROLE)).get("rules")
        # What the message says: the object is deleted, and comes back.
        await inside.delete(CLUSTER_ROLES, ROLE)
        await until(is_whole, "the role is there again")
        await until(reported, "the contents are in place again")
        # Users take an add-on over.
        mode = {"spec": {"addOns": [{"name": "NetworkPolicy", "mode": "None"}]}}
        await planes.host.patch(PLANES, "prod", mode, name)

        async def is_theirs() -> bool:
            return "NetworkPolicy" not in (await told(planes, name))["message"]

        await until(is_theirs, "the add-on is not kept any more")
        await changed(inside, [], "argocd")
        await planes.host.patch(PLANES, "prod", {"spec": {"addOns": None}}, name)
        await until(is_whole, "the add-on is kept again")

"""Nodes that their owners bring read their own view only."""

from __future__ import annotations

import asyncio

import pytest

from tenantry.api import marks
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRoleBinding
from tenantry.api.node import Node
from tenantry.api.nodeview import NodeView, earlier_bindings
from tenantry.controllers.nodeviews.desired import CONDITION
from tenantry.local.cluster import LocalCluster
from tenantry.world.netpol.objects import NAMESPACES, POLICIES
from tenantry.world.netpol.services import ENDPOINT_SLICES
from testkit.api import PODS, Api, until
from testkit.contributions import clean_up, offer
from testkit.requests import People

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")
READ_BEFORE = (PODS, NAMESPACES, Node.resource, POLICIES, ENDPOINT_SLICES)
"""What kube-proxy and the NetworkPolicy agent list with rights of their own. Kubernetes lets kubelets list Services."""


async def test_a_contributed_node_reads_only_its_own_view(
    api: Api, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19: nothing of other tenants, and no view of another node."""
    await api.make_tenant(name)
    (node, _), (other, _) = await asyncio.gather(offer(tenancy, name), offer(tenancy, name))
    itself = await people.node(node)
    await itself.create(Node.resource, {"metadata": {"name": node}})

    async def reads() -> bool:
        try:
            return bool(await itself.client.list(NodeView, selectors={"fieldSelector": f"metadata.name={node}"}))
        except Forbidden:
            return False

    await until(reads, "the node reads its view")
    for resource in READ_BEFORE:
        with pytest.raises(Forbidden):
            await itself.list(resource)
    await until(lambda: api.find(NodeView.resource, other), "the other node has a view")
    for refused in (itself.get(NodeView.resource, other), itself.list(NodeView.resource)):
        with pytest.raises(Forbidden):
            await refused
    with pytest.raises(Forbidden):
        await itself.patch(NodeView.resource, node, {"spec": {"digest": "0"}})
    await asyncio.gather(clean_up(api, node), clean_up(api, other))

    async def gone() -> bool:
        return await api.find(NodeView.resource, node) is None

    await until(gone, "the view goes with the record")


async def test_rights_of_an_earlier_version_are_reported_until_they_are_removed(
    api: Api, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19: a node that joined before keeps working; an administrator decides when it reads only its view."""
    await api.make_tenant(name)
    node, _ = await offer(tenancy, name)
    itself = await people.node(node)
    await itself.create(Node.resource, {"metadata": {"name": node}})
    # As `tenantry node contribute` of an earlier version made it.
    subject = {"kind": "User", "name": f"system:node:{node}", "apiGroup": RBAC_GROUP}
    role = {"kind": "ClusterRole", "name": "system:node-proxier", "apiGroup": RBAC_GROUP}
    for earlier in earlier_bindings(node):
        meta = {"name": earlier, "labels": {marks.MANAGED_BY: marks.MANAGER}}
        await api.create(ClusterRoleBinding.resource, {"metadata": meta, "roleRef": role, "subjects": [subject]})

    async def status() -> str:
        found = (await api.get(Node.resource, node)).get("status", {}).get("conditions", [])
        return next((each["status"] for each in found if each["type"] == CONDITION), "")

    async def is_reported() -> bool:
        return await status() == "False"

    await until(is_reported, "the condition reports the earlier rights")

    async def reads() -> bool:
        try:
            await itself.list(ENDPOINT_SLICES)
        except Forbidden:  # the authorizer sees the bindings a moment after the operator
            return False
        return True

    await until(reads, "the earlier rights are in force")
    for earlier in earlier_bindings(node):
        await api.delete(ClusterRoleBinding.resource, earlier)

    async def is_over() -> bool:
        return await status() == "True"

    await until(is_over, "the condition is met")
    await clean_up(api, node)

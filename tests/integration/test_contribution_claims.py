"""Nodes that their owners bring, in claims and slices of tenants."""

from __future__ import annotations

import datetime as dt
from functools import partial

import pytest

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.node import Node
from tenantry.api.slice import Slice, SliceClaim
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.clock import rfc3339
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, until
from testkit.contributions import clean_up, offer
from testkit.pool import Pool, claim, free, state

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")


async def test_the_owners_tenant_has_the_first_claim(api: Api, pool: Pool, name: str) -> None:
    """E19: of nodes that do, a tenant gets those that were contributed for it, and others get them last."""
    first, _, third = await pool.add(3)
    other = f"{name}-o"
    await api.make_tenant(name)
    await api.make_tenant(other)
    await api.patch(Node.resource, third, {"metadata": {"labels": {marks.CONTRIBUTED_BY: name}}})
    await api.patch(Node.resource, first, {"metadata": {"labels": {marks.CONTRIBUTED_BY: "forged"}}})
    await pool.heard()
    await claim(api, name, "web", selector=pool.selector)
    assert (await state(api, name, "web", "Reserved"))["status"]["nodes"] == [third]
    await claim(api, other, "web", selector=pool.selector, count=2)
    assert (await state(api, other, "web", "Reserved"))["status"]["nodes"] == sorted(pool.nodes[:2])
    for each in (name, other):
        await api.delete(SliceClaim.resource, "web", each)
    await free(pool, pool.nodes)


async def test_a_slice_gives_up_a_node_that_its_owner_takes_back(api: Api, pool: Pool, name: str) -> None:
    """E19: the node goes back to all, and the slice has another one instead."""
    first, second = await pool.add(2)
    await api.make_tenant(name)
    await claim(api, name, "web", selector=pool.selector, users="Everybody", nodeNames=[first, second])
    assert (await state(api, name, "web", "Bound"))["status"]["nodes"] == [first]
    now = rfc3339(dt.datetime.now(dt.UTC))
    patch = {"metadata": {"annotations": {marks.TAKEN_BACK: now}}, "spec": {"unschedulable": True}}
    await api.patch(Node.resource, first, patch)
    await free(pool, [first])

    async def replaced() -> bool:
        found = await api.get(SliceClaim.resource, "web", name)
        return bool(found["status"].get("nodes") == [second] and found["status"]["state"] == "Bound")

    await until(replaced, "the slice has the other node")
    await api.delete(SliceClaim.resource, "web", name)
    await free(pool, [second])


@pytest.mark.long
async def test_a_contributed_node_adds_what_was_agreed_on_inside_its_claim_only(
    api: Api, tenancy: LocalCluster, pool: Pool, name: str
) -> None:
    """X03, E19: a tenant with a smaller quota claims the node that it brought; at the end, the quota shrinks first."""
    await api.make_tenant(name, quota={"hard": {"cpu": 2}})
    await pool.add(1)
    node, _ = await offer(tenancy, name, "--capacity=cpu=3")
    await pool.join(node, cpu="1000")
    await claim(api, name, "web", nodeNames=[node], users="Everybody")
    bound = await state(api, name, "web", "Bound")
    made = bound["status"]["slice"]

    async def has(cpus: str) -> bool:
        found = await api.get(ResourceQuota.resource, QUOTA, name)
        return bool(found["status"].get("hard", {}).get("requests.cpu") == cpus)

    await until(partial(has, "5"), "the agreed capacity is added")
    assert "charge" not in (await api.get(Slice.resource, made))["spec"]
    await api.delete(SliceClaim.resource, "web", name)

    async def unlabelled() -> bool:
        labels = (await api.get(Namespace.resource, name))["metadata"]["labels"]
        # Read after the label: a quota that shrinks later would be seen as it was.
        return marks.SLICE not in labels

    await until(unlabelled, "the namespace has no slice any more")
    assert await has("2")
    await free(pool, [node])
    await clean_up(api, node)

"""Tenants with nodes of their own on a real control plane with simulated nodes: isolation.nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace
from tenantry.api.slice import SliceClaim
from tenantry.api.tenant import Tenant
from testkit.api import PODS, Api, tenant_json, until
from testkit.operators import Operator
from testkit.pool import Pool, claim, free, state
from testkit.refusals import refusal, tried
from testkit.requests import People
from testkit.trees import Trees, subtenant

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
POD: Json = {
    "metadata": {"name": "first"},
    "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]},
}
WAITS = "has no nodes yet: pods of Tenant "


def own(pool: Pool, count: int = 1) -> Json:
    """Return the isolation of a tenant with nodes of a pool."""
    return {"nodes": "Slice", "slice": {"count": count, "selector": pool.selector}}


async def refused(api: Api, namespace: str) -> None:
    """Wait until pods of a namespace are refused, because it has no nodes: policies see its labels a moment later."""
    told = ""

    async def so() -> bool:
        nonlocal told
        told = await refusal(api, PODS, POD, namespace)
        return WAITS in told

    await until(so, f"pods of {namespace} are refused", seen=lambda: told)


async def admitted(api: Api, namespace: str, slice_: str) -> None:
    """Wait until pods of a namespace are admitted, and are bound to a slice, or to none for ""."""
    seen: object = None

    async def so() -> bool:
        nonlocal seen
        try:
            seen = (await tried(api, PODS, POD, namespace))["spec"].get("nodeSelector", {}).get(marks.SLICE, "")
        except Forbidden as error:
            seen = str(error)
        return seen == slice_

    await until(so, f"pods of {namespace} run on {slice_!r}", seen=lambda: seen)


async def test_pods_of_a_tenant_run_on_its_own_nodes_only(api: Api, pool: Pool, trees: Trees, name: str) -> None:
    """E12, E13: refused before the nodes are Bound, and in the whole tree; then on them; then anywhere again."""
    await pool.add(2)
    await api.create(Tenant.resource, tenant_json(name, isolation=own(pool, 3)))
    waits = await api.condition(name, reasons.NODES_READY, holds=False, reason=reasons.NODES_INSUFFICIENT)
    told = {each.type: each for each in waits.status.conditions}
    assert told[reasons.READY].message == told[reasons.NODES_READY].message
    assert "3 nodes are asked for, and 2 can be had" in told[reasons.READY].message
    await refused(api, name)
    await api.patch(Tenant.resource, name, {"spec": {"isolation": own(pool, 2)}})
    ready = await api.ready(name)
    assert ready.status.isolation_class == "soft"
    await api.open(name)
    bound = await state(api, name, name, "Bound")
    slice_ = bound["status"]["slice"]
    assert sorted(bound["status"]["nodes"]) == sorted(pool.nodes)
    await admitted(api, name, slice_)
    assert (await api.create(PODS, POD, name))["spec"]["nodeSelector"] == {marks.SLICE: slice_}
    web = await trees.make(name, "web")
    await admitted(api, web, slice_)
    # A Subtenant does not use the nodes of its parent: without a claim of its own, it has none.
    customer = await trees.make(name, "customer", subtenant("bob"))
    await refused(api, customer)
    # A nearer claim that gets no nodes is no way to those of all tenants.
    await claim(api, web, "many", count=400, users="Everybody")
    await refused(api, web)
    await api.delete(SliceClaim.resource, "many", web)
    await admitted(api, web, slice_)
    await api.patch(Tenant.resource, name, {"spec": {"isolation": {"nodes": None, "slice": None}}})
    await api.gone(SliceClaim.resource, name, name)
    await api.delete(PODS, "first", name)
    await free(pool, pool.nodes)
    for namespace in (name, web, customer):
        await admitted(api, namespace, "")
    assert reasons.NODES_READY not in {each.type for each in (await api.ready(name)).status.conditions}


async def test_a_quota_that_is_too_small_is_reported_by_the_tenant(api: Api, pool: Pool, name: str) -> None:
    """E12, X03: the nodes are charged like those of any claim; a larger quota lets the tenant become Ready."""
    await pool.add(1)
    await api.create(Tenant.resource, tenant_json(name, isolation=own(pool), quota={"hard": {"cpu": 4}}))
    waits = await api.condition(name, reasons.READY, holds=False, reason=reasons.QUOTA_INSUFFICIENT)
    told = next(each.message for each in waits.status.conditions if each.type == reasons.NODES_READY)
    assert f"SliceClaim '{name}/{name}': " in told
    assert "requests.cpu: 8 requested, 4 available" in told
    await api.patch(Tenant.resource, name, {"spec": {"quota": {"hard": {"cpu": 10}}}})
    await api.condition(name, reasons.NODES_READY, holds=True, reason=reasons.NODES_BOUND)
    await api.ready(name)


async def test_owners_do_not_change_the_nodes_of_their_tenant(
    api: Api, pool: Pool, people: People, operator: Operator, name: str
) -> None:
    """E12: neither while the operator runs, nor while it is stopped; what an administrator changes is restored."""
    await pool.add(2)
    await api.make_tenant(name, isolation=own(pool))
    await state(api, name, name, "Bound")
    alice = await people.person("alice")
    await operator.stop()
    for patch in (
        {"spec": {"count": 2}},
        {"spec": {"selector": None}},
        {"spec": {"users": "Subnamespaces"}},
        {"spec": {"mode": "Manual"}},
        {"spec": {"expiresAt": "2031-01-01T00:00:00Z"}},
        {"metadata": {"labels": {marks.TENANT: None}}},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"finalizers": ["example.com/held"]}},
    ):
        with pytest.raises(Forbidden, match=r"determines it; an administrator changes it there|must not be set"):
            await alice.patch(SliceClaim.resource, name, patch, name)
    with pytest.raises(Forbidden, match=r"determines it; an administrator changes it there"):
        await alice.delete(SliceClaim.resource, name, name)
    with pytest.raises(Forbidden):
        await alice.patch(Namespace.resource, name, {"metadata": {"labels": {marks.OWN_NODES: None}}})
    # Other claims stay the owner's, within the quota.
    await claim(alice, name, "more", selector=pool.selector)
    await alice.delete(SliceClaim.resource, "more", name)
    await api.patch(SliceClaim.resource, name, {"spec": {"count": 2, "users": "Subnamespaces"}}, name)
    await operator.start()

    async def is_restored() -> bool:
        spec = (await api.get(SliceClaim.resource, name, name))["spec"]
        return (spec.get("count", 1), spec["users"]) == (1, "Everybody")

    await until(is_restored, "the claim is as the Tenant says")
    await state(api, name, name, "Bound")
    await api.ready(name)

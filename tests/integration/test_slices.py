"""Slices on a real control plane with simulated nodes: claimed, emptied, bound, and given back."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, Invalid, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.node import Node
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.engine.clock import rfc3339
from testkit.api import PODS, Api, stays, until
from testkit.clock import ManualClock
from testkit.pool import Pool, claim, free, is_let_in, message, node_writer, slice_marks, state
from testkit.refusals import tried
from testkit.requests import People
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]

SUBTENANT = {"mode": "Subtenant", "owners": [{"kind": "User", "name": "bob"}]}


async def test_a_claim_is_bound_and_given_back(api: Api, pool: Pool, name: str) -> None:
    """E12, E13: nodes are marked and tainted, the namespace's pods bound to them, and all of it ends with the claim."""
    await pool.add(3)
    await api.make_tenant(name)
    await claim(api, name, "web", count=2, selector=pool.selector, users="Everybody")
    bound = await state(api, name, "web", "Bound", reasons.NODES_BOUND)
    slice_, nodes = bound["status"]["slice"], bound["status"]["nodes"]
    assert nodes == pool.nodes[:2]
    assert bound["status"]["namespaces"] == [name]
    for each in nodes:
        assert slice_marks(await pool.node(each)) == (slice_, slice_, {"NoSchedule", "NoExecute"})
    assert slice_marks(await pool.node(pool.nodes[2])) == ("", "", set())
    made = await api.get(Slice.resource, slice_)
    assert (made["status"]["state"], made["spec"]["tenant"]) == ("Bound", name)

    async def is_labelled() -> bool:
        return (await api.get(Namespace.resource, name))["metadata"]["labels"].get(marks.SLICE) == slice_

    await until(is_labelled, "the namespace has its slice")
    await api.delete(SliceClaim.resource, "web", name)
    await free(pool, nodes)
    await api.gone(Slice.resource, slice_)
    assert not await is_labelled()


async def test_two_claims_race_for_one_node(api: Api, pool: Pool, name: str) -> None:
    """E12: one has it; the other waits, says who has it, and gets it when that ends."""
    (node,) = await pool.add(1)
    await asyncio.gather(api.make_tenant(name), api.make_tenant(f"{name}-b"))
    places = [name, f"{name}-b"]
    await asyncio.gather(*(claim(api, each, "web", nodeNames=[node], users="Everybody") for each in places))

    async def decided() -> list[Json] | None:
        found = [await api.get(SliceClaim.resource, "web", each) for each in places]
        states = sorted(each.get("status", {}).get("state", "") for each in found)
        if states != ["Bound", "Pending"]:
            return None
        won, waits = sorted(found, key=lambda each: each["status"]["state"])
        # Pending is what it is before the operator has looked at it, too.
        return [won, waits] if waits["status"].get("conditions") else None

    won, waits = await until(decided, "one of the two has the node")
    assert won["status"]["nodes"] == [node]
    assert "nodes" not in waits["status"]
    assert f"in slice '{won['status']['slice']}'" in message(waits)
    assert slice_marks(await pool.node(node))[0] == won["status"]["slice"]
    await api.delete(SliceClaim.resource, "web", won["metadata"]["namespace"])
    after = await state(api, waits["metadata"]["namespace"], "web", "Bound")
    assert after["status"]["nodes"] == [node]


async def test_what_cannot_be_had_is_pending_with_the_reason(api: Api, pool: Pool, name: str) -> None:
    """E12: the nearest that would fit; no control planes; nothing for suspended tenants."""
    await pool.add(2, cpu="4")
    await api.make_tenant(name)
    await claim(api, name, "many", count=5, selector=pool.selector)
    waits = await state(api, name, "many", "Pending", reasons.NODES_INSUFFICIENT)
    assert "5 nodes are asked for, and 2 can be had: spec.count 2 would fit" in message(waits)
    await claim(api, name, "large", selector=pool.selector, perNode={"cpu": "6"})
    waits = await state(api, name, "large", "Pending", reasons.NODES_INSUFFICIENT)
    assert "2 has too little cpu: 4" in message(waits)
    master = {"node-role.kubernetes.io/control-plane": ""}
    (node,) = await pool.add(1, **master)
    await claim(api, name, "master", nodeNames=[node])
    waits = await state(api, name, "master", "Pending", reasons.NODES_INSUFFICIENT)
    assert "1 runs the control plane" in message(waits)
    await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
    await api.condition(name, reasons.SUSPENDED, holds=True)
    await api.patch(SliceClaim.resource, "many", {"spec": {"count": 1}}, name)
    await state(api, name, "many", "Pending", reasons.TENANT_SUSPENDED)
    await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})
    await state(api, name, "many", "Reserved", reasons.NODES_RESERVED)


async def test_a_grace_period_is_at_most_what_an_administrator_allows(api: Api, pool: Pool, name: str) -> None:
    """E12: more is refused when it is asked for; a claim that has a period from before may be changed otherwise."""
    await pool.add(1)
    await api.make_tenant(name)

    async def refused() -> str:
        try:
            await claim(api, name, "slow", selector=pool.selector, gracePeriodSeconds=7200)
        except Forbidden as error:
            return str(error)
        # The policy does not know yet what is allowed: the claim itself says so.
        waits = await state(api, name, "slow", "Pending", reasons.INVALID_SPEC)
        assert "spec.gracePeriodSeconds must be at most 3600" in message(waits)
        await api.patch(SliceClaim.resource, "slow", {"spec": {"count": 2}}, name)
        await api.delete(SliceClaim.resource, "slow", name)
        return ""

    told = await until(refused, "a long grace period is refused")
    assert "spec.gracePeriodSeconds must be at most 3600, which is spec.slices.maxGracePeriodSeconds" in told
    await claim(api, name, "slow", selector=pool.selector, gracePeriodSeconds=3600)
    await state(api, name, "slow", "Reserved")
    with pytest.raises(Forbidden, match=r"must be at most 3600"):
        await api.patch(SliceClaim.resource, "slow", {"spec": {"gracePeriodSeconds": 3601}}, name)


async def test_the_last_node_stays_shared_unless_an_administrator_decides_otherwise(
    api: Api, pool: Pool, name: str
) -> None:
    """H06: a tenant without a quota of CPU does not drive all others, and the cluster's DNS, from the last node."""
    await pool.add(2)
    await api.make_tenant(name)
    # Were the pool's two not the last ones, they could be had.
    async with _cordoned(api, pool):
        await _last_two(api, pool, name)


@asynccontextmanager
async def _cordoned(api: Api, pool: Pool) -> AsyncGenerator[None]:
    """Cordon every node that is not the pool's to be claimed."""
    found = await api.list(Node.resource)
    usable = {node["metadata"]["name"] for node in found if not node["spec"].get("unschedulable")}
    others = usable.difference(pool.nodes)
    try:
        await _cordon(api, others, value=True)
        await pool.heard()
        yield
    finally:
        await _cordon(api, others, value=None)


async def _cordon(api: Api, nodes: Iterable[str], *, value: bool | None) -> None:
    for each in nodes:
        with suppress(NotFound):
            await api.patch(Node.resource, each, {"spec": {"unschedulable": value}})


async def _last_two(api: Api, pool: Pool, name: str) -> None:
    await claim(api, name, "all", count=2, selector=pool.selector)
    waits = await state(api, name, "all", "Pending", reasons.NODES_INSUFFICIENT)
    assert "1 kept for all tenants, by spec.slices.sharedNodes of TenancyDefaults: 1" in message(waits)
    spec = {"slices": {"sharedNodes": 0}}
    await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": spec})
    try:
        await state(api, name, "all", "Reserved")
    finally:
        await api.delete(TenancyDefaults.resource, "default")

    async def kept() -> bool:
        return (await api.get(SliceClaim.resource, "all", name))["status"]["nodes"] == sorted(pool.nodes)

    await stays(kept, "what a claim has is its own, however few are left", seconds=0.5)


async def test_a_manual_claim_waits_for_an_administrator(api: Api, pool: Pool, name: str) -> None:
    """E13: an administrator makes the Slice, and takes the nodes back by deleting it."""
    await pool.add(1)
    await api.make_tenant(name)
    await claim(api, name, "web", mode="Manual", selector=pool.selector, users="Everybody")
    waits = await state(api, name, "web", "Pending", reasons.AWAITING_ADMINISTRATOR)
    slice_, meta = waits["status"]["slice"], waits["metadata"]
    assert slice_ in message(waits)
    reference = {"namespace": name, "name": "web", "uid": meta["uid"]}
    await api.create(Slice.resource, {"metadata": {"name": slice_}, "spec": {"claim": reference, "tenant": name}})
    await state(api, name, "web", "Bound")
    await api.delete(Slice.resource, slice_)
    await free(pool, pool.nodes)
    await state(api, name, "web", "Pending", reasons.AWAITING_ADMINISTRATOR)


async def test_a_subnamespace_uses_a_claim_by_its_name(api: Api, trees: Trees, pool: Pool, name: str) -> None:
    """E13: Reserved until a namespace uses it; namespaces below use it, too, except Subtenants."""
    await pool.add(1)
    await api.make_tenant(name)
    team = await trees.make(name, "team")
    inner = await trees.make(team, "inner")
    shop = await trees.make(team, "shop", SUBTENANT)
    await claim(api, name, "web", selector=pool.selector)
    await state(api, name, "web", "Reserved", reasons.NODES_RESERVED)
    assert slice_marks(await pool.node(pool.nodes[0]))[1:] == ("", {"NoSchedule"})
    await api.patch(Subnamespace.resource, "team", {"spec": {"sliceClaimName": "web"}}, name)
    bound = await state(api, name, "web", "Bound")
    assert bound["status"]["namespaces"] == sorted([team, inner])
    labels = [(await api.get(Namespace.resource, each))["metadata"]["labels"] for each in (team, inner, shop, name)]
    slice_ = bound["status"]["slice"]
    assert [each.get(marks.SLICE) for each in labels] == [slice_, slice_, None, None]
    await api.patch(Subnamespace.resource, "team", {"spec": {"sliceClaimName": None}}, name)
    await state(api, name, "web", "Reserved")
    assert marks.SLICE not in (await api.get(Namespace.resource, team))["metadata"]["labels"]


async def test_pods_are_bound_at_admission_and_others_do_not_tolerate(api: Api, pool: Pool, name: str) -> None:
    """E12, E13: whatever a pod says it goes to its slice; others' tolerations are refused; marks are the operator's."""
    await pool.add(1)
    rules = {"scheduling": {"nodeSelectors": ["disk"], "tolerations": ["gpu"]}}
    await asyncio.gather(api.make_tenant(name, rules=rules), api.make_tenant(f"{name}-b"))
    await claim(api, name, "web", selector=pool.selector, users="Everybody")
    bound = await state(api, name, "web", "Bound")
    slice_ = bound["status"]["slice"]
    toleration = {"key": marks.SLICE, "operator": "Equal", "value": slice_}

    for each in (name, f"{name}-b"):
        await tried(api, PODS, _pod("first"), each)  # their rules are known from now on
    await is_let_in(api, name, slice_, _pod("first"))
    spec = (await api.create(PODS, _pod("first"), name))["spec"]
    assert spec["nodeSelector"] == {marks.SLICE: slice_}
    assert toleration in spec["tolerations"]
    own = {"nodeSelector": {marks.SLICE: "other", "a": "b"}, "tolerations": [toleration]}
    with pytest.raises(Forbidden, match=r"selects nodes by 'a'"):
        await api.create(PODS, _pod("more", **own), name)
    made = await api.create(PODS, _pod("other", nodeSelector={marks.SLICE: "other"}, tolerations=[toleration]), name)
    assert made["spec"]["nodeSelector"] == {marks.SLICE: slice_}
    assert [each for each in made["spec"]["tolerations"] if each["key"] == marks.SLICE] == [toleration]
    for bad in (toleration, {"key": marks.SLICE, "operator": "Exists"}, {"operator": "Exists"}):
        for namespace in (name, f"{name}-b"):
            if namespace == name and bad is toleration:
                continue
            with pytest.raises(Forbidden, match=r"tolerat"):
                await api.create(PODS, _pod("bad", tolerations=[bad]), namespace)
    for bad in (toleration, {"key": marks.SLICE, "operator": "Exists"}):
        with pytest.raises(Forbidden, match=r"must not tolerate tenantry.dev/slice"):
            await api.create(PODS, _pod("bad", tolerations=[bad]), "default")


async def test_a_kubelet_does_not_change_whose_its_node_is(api: Api, people: People, pool: Pool, name: str) -> None:
    """E12: labels, annotations and taints of slices are the operator's alone, on nodes that are made, too."""
    await pool.add(1)
    await api.make_tenant(name)
    await claim(api, name, "web", selector=pool.selector, users="Everybody")
    await state(api, name, "web", "Bound")
    node = pool.nodes[0]
    taken_away: list[Json] = [
        {"metadata": {"labels": {marks.SLICE: None}}},
        {"metadata": {"labels": {marks.SLICE_RESERVED: "other"}}},
        {"metadata": {"annotations": {marks.SLICE_CLAIM: "a/b/c"}}},
        {"spec": {"taints": None}},
    ]
    async with node_writer(api, people, f"{name}-agent", node) as agent:
        for patch in taken_away:
            with pytest.raises(Forbidden, match=r"must not be changed: the operator sets them"):
                await agent.patch(Node.resource, node, patch)
        with pytest.raises(Forbidden, match=r"must not be changed"):
            await agent.create(Node.resource, {"metadata": {"name": f"{name}-new", "labels": {marks.SLICE: "web"}}})


@pytest_asyncio.fixture
async def ticking(clock: ManualClock) -> AsyncGenerator[ManualClock]:
    """The clock goes on by itself, too: what is to be tried again waits for it."""

    async def tick() -> None:
        while True:
            clock.advance(0.5)
            await asyncio.sleep(0.03)

    task = asyncio.create_task(tick())
    yield clock
    task.cancel()


async def test_a_claim_ends_by_itself(api: Api, pool: Pool, ticking: ManualClock, name: str) -> None:
    """X05: warned of a day ahead, given back at the end, and had again where it is renewed."""
    await pool.add(1)
    await api.make_tenant(name)
    ends = rfc3339(ticking.now() + dt.timedelta(hours=30))
    await claim(api, name, "web", selector=pool.selector, users="Everybody", expiresAt=ends)

    async def bound() -> bool:
        found = await api.get(SliceClaim.resource, "web", name)
        return found.get("status", {}).get("state") == "Bound"

    await until(bound, "it is bound")
    ticking.advance(8 * 3600)
    warned = await until(lambda: _expiring(api, name), "it is warned of")
    assert warned["reason"] == reasons.EXPIRES_SOON
    ticking.advance(23 * 3600)

    async def freed() -> bool:
        return slice_marks(await pool.node(pool.nodes[0])) == ("", "", set())

    await until(freed, "the node is given back")
    await state(api, name, "web", "Pending", reasons.EXPIRED)
    later = rfc3339(ticking.now() + dt.timedelta(hours=30))
    await api.patch(SliceClaim.resource, "web", {"spec": {"expiresAt": later}}, name)
    await until(bound, "it is bound again")


async def _expiring(api: Api, namespace: str) -> Json | None:
    found = await api.get(SliceClaim.resource, "web", namespace)
    told = [each for each in found["status"]["conditions"] if each["type"] == reasons.EXPIRING]
    return told[0] if told else None


async def test_claims_are_looked_at_when_they_are_made(api: Api, name: str) -> None:
    """E12, X05: outside of tenants, in the past, selectors that mean nothing, and names that are too long."""
    await api.make_tenant(name)
    with pytest.raises(Forbidden, match=r"does not belong to a tenant"):
        await claim(api, "default", name)
    with pytest.raises(Forbidden, match=r"spec.expiresAt must be in the future"):
        await claim(api, name, "past", expiresAt="2020-01-01T00:00:00Z")
    bad: list[Json] = [
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}},
        {"count": 0},
        {"gracePeriodSeconds": 86401},
        {"perNode": {"cpu": "lots"}},
        {"total": {"pods/x/y": "1"}},
    ]
    for spec in bad:
        with pytest.raises(Invalid):
            await claim(api, name, "bad", **spec)
    with pytest.raises(Invalid, match=r"at most 46"):
        await claim(api, name, "a" * 47)


def _pod(name: str, **spec: object) -> Json:
    container = {"name": "main", "image": "example.com/app:1"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}

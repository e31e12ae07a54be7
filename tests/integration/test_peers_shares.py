"""Shares of a tenant's quota at a peer, the Lease by which one home writes there, and silence (X03, L13, L14)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Json, Resource
from tenantry.api.offloading import OFFLOADING, NamespaceMap, NamespaceOffloading
from tenantry.api.peercluster import CONTENDER, PEERS_NAMESPACE, PeerCluster, node_name
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.engine.clock import SystemClock, rfc3339_micro
from tenantry.engine.events import Event
from tenantry.engine.lease import Lease
from tenantry.mirror.things import NODES
from testkit.api import PODS, Api, until
from testkit.peerings import Peering, federated, linked, offloading, peering, placed
from testkit.planes import without_operator
from testkit.tcplink import LinkState

pytestmark = pytest.mark.long
"""Each pair of clusters costs minutes on a busy machine; `make test` has test_peers.py and docs/federation.md."""

CPU = "requests.cpu"


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with a simulated node, connected."""
    async with peering(tenantry_home, "share", "--nodes", "1") as found:
        await found.connect()
        yield found


async def _records(api: Api, tenant: str) -> list[Json]:
    found = await api.find(TenantResourceQuota.resource, tenant)
    status: Json = (found or {}).get("status") or {}
    return status.get("clusters") or []


async def _hard(api: Api, namespace: str) -> str:
    """Return the CPUs of the ResourceQuota of a namespace."""
    return (await api.get(ResourceQuota.resource, QUOTA, namespace))["spec"]["hard"].get(CPU, "")


async def test_a_share_leaves_the_quota_at_home_and_comes_back(both: Peering) -> None:
    """X03: recorded before the peer has it, and given back when the peer has confirmed it."""
    tenant = federated("moved", both.peer_name)
    tenant["spec"]["quota"] = {"hard": {"cpu": "4"}}
    await both.home.create(Tenant.resource, tenant)
    await both.home.ready("moved")
    wanted = offloading("moved", both.peer_name)
    wanted["spec"]["share"] = {"hard": {"cpu": "3"}}
    await both.home.create(NamespaceOffloading.resource, wanted, "moved")
    there = await both.accepted("moved")
    seen: dict[str, object] = {}

    async def given(cpus: str, at_home: str, at_peer: str) -> bool:
        seen["records"] = records = await _records(both.home, "moved")
        seen["home"], seen["peer"] = await _hard(both.home, "moved"), await _hard(both.peer, there)
        held = [(each["held"], each["given"]) for each in records]
        wanted = [({CPU: cpus}, {CPU: cpus})] if cpus != "0" else []
        return held == wanted and (seen["home"], seen["peer"]) == (at_home, at_peer)

    # One CPU follows the pods; the other ones are the share.
    await until(lambda: given("3", "1", "4"), "the share is at the peer", seen=lambda: seen)
    shown = await both.run("quota", "moved", "--cluster", both.home_name)
    assert both.peer_name in shown
    assert "HELD" in shown

    offload = NamespaceOffloading.resource
    await both.home.patch(offload, OFFLOADING, {"spec": {"share": {"hard": {"cpu": "1"}}}}, "moved")
    await until(lambda: given("1", "3", "2"), "a smaller share goes back in part", seen=lambda: seen)
    await both.home.patch(offload, OFFLOADING, {"spec": {"share": {"hard": {"cpu": "4500m"}}}}, "moved")

    async def refused() -> bool:
        found = await both.home.get(offload, OFFLOADING, "moved")
        seen["conditions"] = conditions = found["status"]["conditions"]
        return any("spec.share.hard: requests.cpu must be at most" in each["message"] for each in conditions)

    await until(refused, "a share above the quota of the tenant is refused", seen=lambda: seen)
    await both.home.delete(offload, OFFLOADING, "moved")
    await both.home.gone(offload, OFFLOADING, "moved")

    async def back() -> bool:
        seen["records"] = await _records(both.home, "moved")
        seen["home"] = await _hard(both.home, "moved")
        return not seen["records"] and seen["home"] == "4"

    await until(back, "the share is at home again", seen=lambda: seen)
    left = (await both.home.get(NamespaceMap.resource, both.peer_name)).get("status", {})
    assert not left.get("shares")


async def test_the_sum_of_the_shares_is_bounded_by_the_quota_of_the_tenant(both: Peering) -> None:
    """X03: the second one waits, with the reason."""
    tenant = federated("greedy", both.peer_name)
    tenant["spec"]["quota"] = {"hard": {"cpu": "2"}}
    await both.home.create(Tenant.resource, tenant)
    await both.home.ready("greedy")
    sub: Json = {
        "metadata": {"name": "team"},
        "spec": {"mode": "Workspace", "owners": [{"kind": "User", "name": "ada"}], "quota": {"hard": {"cpu": "1500m"}}},
    }
    await both.home.create(Subnamespace.resource, sub, "greedy")

    async def assigned() -> bool:
        status: Json = (await both.home.get(Subnamespace.resource, "team", "greedy")).get("status") or {}
        quota: Json = status.get("quota") or {}
        return bool(quota.get("assigned"))

    # Its share first: the one at the peer must find what is left.
    await until(assigned, "the Subnamespace has its share")
    wanted = offloading("greedy", both.peer_name)
    wanted["spec"]["share"] = {"hard": {"cpu": "1"}}
    await both.home.create(NamespaceOffloading.resource, wanted, "greedy")
    seen: dict[str, object] = {}

    async def short() -> bool:
        found = await both.home.get(NamespaceOffloading.resource, OFFLOADING, "greedy")
        status: Json = found.get("status") or {}
        conditions: list[Json] = status.get("conditions") or []
        seen["conditions"] = conditions
        ready = [each for each in conditions if each["type"] == reasons.READY]
        return bool(ready) and ready[0]["reason"] == reasons.QUOTA_INSUFFICIENT

    await until(short, "the share waits for quota", seen=lambda: seen)
    assert await _records(both.home, "greedy") == []


async def test_a_second_home_with_the_same_id_stops_the_first_one_and_both_sides_report_it(both: Peering) -> None:
    """L13: the first one writes again when the Lease of the other one has expired."""
    lease, clock = Lease.resource, SystemClock()

    async def known() -> str:
        return (await both.peer.get(PeerCluster.resource, both.home_name))["status"].get("guestId", "")

    home_id = await until(known, "the peer knows the id of the home")
    found = await both.peer.get(lease, both.home_name, PEERS_NAMESPACE)
    holder, _, instance = found["spec"]["holderIdentity"].partition("/")
    assert holder == home_id
    assert (await both.home.get(PeerCluster.resource, both.peer_name))["status"]["instances"] == [instance]
    foreign = {"spec": {"holderIdentity": f"{home_id}/copy", "renewTime": rfc3339_micro(clock.now())}}
    await both.peer.patch(lease, both.home_name, foreign, PEERS_NAMESPACE)
    seen: dict[str, object] = {}

    async def twice(api: Api, name: str, *, is_so: bool = True) -> bool:
        status = (await api.get(PeerCluster.resource, name))["status"]
        seen[name] = types = {each["type"] for each in status["conditions"]}
        return (reasons.HOME_TWICE in types) == is_so

    await until(lambda: twice(both.home, both.peer_name), "the home reports it", seen=lambda: seen)
    await until(lambda: twice(both.peer, both.home_name), "the peer reports it", seen=lambda: seen)
    waits = (await both.peer.get(lease, both.home_name, PEERS_NAMESPACE))["metadata"]["annotations"]
    assert waits[CONTENDER] == f"{home_id}/{instance}"

    async def over() -> bool:
        spec = (await both.peer.get(lease, both.home_name, PEERS_NAMESPACE))["spec"]
        return spec["holderIdentity"] == f"{home_id}/{instance}"

    await until(over, "the home has the Lease again", seconds=90)
    await until(lambda: twice(both.home, both.peer_name, is_so=False), "the home writes again", seen=lambda: seen)
    await until(
        lambda: twice(both.peer, both.home_name, is_so=False), "the peer reports nothing", seen=lambda: seen, seconds=90
    )
    assert msgspec.convert(await both.peer.get(lease, both.home_name, PEERS_NAMESPACE), Lease)


async def test_a_guest_that_was_suspended_for_its_silence_is_back_when_another_replica_of_its_home_starts(
    both: Peering,
) -> None:
    """L13: what it has at the peer is kept, and nothing is reported as a home that exists twice."""
    there = await both.offload("silent")
    await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"leaseSeconds": 60}}})
    seen: dict[str, object] = {}

    async def suspended(*, is_so: bool) -> bool:
        seen["spec"] = spec = (await both.peer.get(Tenant.resource, both.tenant))["spec"]
        return spec.get("suspended", False) is is_so

    async with without_operator(both.cluster(both.home_name)):
        await until(lambda: suspended(is_so=True), "the guest is suspended", seen=lambda: seen, seconds=120)
    await until(lambda: suspended(is_so=False), "the guest is served again", seen=lambda: seen, seconds=120)
    await both.home.create(PODS, placed("silent", "web"), "silent")
    await both.pod("web", "silent")
    assert await both.peer.find(PODS, "web", there) is not None
    for api, name in ((both.home, both.peer_name), (both.peer, both.home_name)):
        status = (await api.get(PeerCluster.resource, name))["status"]
        assert reasons.HOME_TWICE not in {each["type"] for each in status["conditions"]}
    await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"leaseSeconds": None}}})


async def _given_up(both: Peering) -> list[str]:
    """Return the notes of the events about peers that were given up."""
    events = await both.home.list(Event.resource, "default")
    return [each["note"] for each in events if each["reason"] == reasons.PEER_GIVEN_UP]


async def test_a_home_that_does_not_hold_its_lease_is_removed_without_the_peer(both: Peering) -> None:
    """L14: another home with its id works there; what it has at the peer is left alone."""
    there = await both.offload("copied")
    before = len(await _given_up(both))
    holder = (await both.peer.get(Lease.resource, both.home_name, PEERS_NAMESPACE))["spec"]["holderIdentity"]
    home_id, _, _ = holder.partition("/")
    foreign = {"spec": {"holderIdentity": f"{home_id}/copy", "renewTime": rfc3339_micro(SystemClock().now())}}
    await both.peer.patch(Lease.resource, both.home_name, foreign, PEERS_NAMESPACE)

    async def twice() -> bool:
        status = (await both.home.get(PeerCluster.resource, both.peer_name))["status"]
        return reasons.HOME_TWICE in {each["type"] for each in status["conditions"]}

    await until(twice, "the home reports that it does not hold its Lease")
    await both.run("peer", "delete", both.peer_name, "--cluster", both.home_name, "--yes")
    assert await both.home.find(NODES, node_name(both.peer_name)) is None
    assert not (await both.peer.get(Namespace.resource, there))["metadata"].get("deletionTimestamp")
    notes = (await _given_up(both))[before:]
    assert all("nothing could be written at the peer" in each for each in notes)
    assert len(notes) == 1
    await both.connect()


async def test_a_peer_that_answers_and_ends_nothing_does_not_keep_the_namespaces_of_the_home(both: Peering) -> None:
    """L14: its operator is stopped, so that no Subnamespace ends; the event names what may be left."""
    there = await both.offload("abiding")
    before = len(await _given_up(both))
    called = both.peer_name
    async with without_operator(both.cluster(called)):
        await both.run("peer", "delete", called, "--cluster", both.home_name, "--yes", "--now", "--timeout", "100s")
        assert await both.home.find(NODES, node_name(called)) is None
        assert await both.peer.find(Namespace.resource, there) is not None
        (note,) = (await _given_up(both))[before:]
        assert "abiding" in note
        assert "the peer did not end them" in note
        await both.home.delete(NamespaceOffloading.resource, OFFLOADING, "abiding")
        await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "abiding")
    # It ends what the home has deleted there.
    await both.peer.gone(Namespace.resource, there)
    await both.connect()


async def test_a_peer_on_a_link_that_is_half_open_becomes_unknown_and_later_its_node_not_ready(both: Peering) -> None:
    """L13: no connection breaks, so that only the lack of answers shows it; it is back with the link."""
    seen: dict[str, Json] = {}

    async def becomes(resource: Resource, name: str, condition: str, wanted: str) -> None:
        async def so() -> bool:
            status = (await both.home.get(resource, name))["status"]
            seen[name] = found = {each["type"]: each["status"] for each in status["conditions"]}
            return found.get(condition) == wanted

        await until(so, f"{condition} of {name!r} is {wanted}", seen=lambda: seen, seconds=90)

    node, called = node_name(both.peer_name), both.peer_name
    async with linked(both) as link:
        await becomes(NODES, node, "Ready", "True")
        link.become(LinkState.HALF_OPEN)
        await becomes(PeerCluster.resource, called, reasons.REACHABLE, "Unknown")
        # A short silence does not count.
        status = (await both.home.get(NODES, node))["status"]
        assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
        await becomes(NODES, node, "Ready", "False")
        link.become(LinkState.OPEN)
        await becomes(NODES, node, "Ready", "True")
        await becomes(PeerCluster.resource, called, reasons.REACHABLE, "True")
    await both.connect()

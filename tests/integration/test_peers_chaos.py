"""A home and a peer whose link is cut, delayed, half-opened and reset, while people change everything (L13, X03).

    CHAOS_SEED=7 CHAOS_SECONDS=60 pytest tests/integration/test_peers_chaos.py

At most one pod ever exists at the peer for a pod at home, and the quotas at home and the shares sum up to no more than
the whole at any time. When the link is whole again, both sides become equal; when the peering ends, nothing is left.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import ApiError, NotFound
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import Json, Resource
from tenantry.api.offloading import OFFLOADING, NamespaceMap, NamespaceOffloading
from tenantry.api.peercluster import PREFIX, PeerCluster, node_name
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.kube import wire
from tenantry.mirror.things import NODES
from tenantry.world.shares.amounts import thousandths
from testkit.api import PODS, Api, until
from testkit.peerings import Peering, federated, linked, offloading, peering, placed
from testkit.tcplink import LinkState, TcpLink

SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
SECONDS = float(os.environ.get("CHAOS_SECONDS", "12"))
SETTLE_SECONDS = 180.0
SPACE, CPU = "chaos", "requests.cpu"
WHOLE = 4
"""CPUs of the tenant."""
MOST_PODS = 8


@pytest_asyncio.fixture
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with a simulated node."""
    async with peering(tenantry_home, "storm", "--nodes", "1") as found:
        yield found


class Observer:
    """Looks at both sides past the link, and records what must never be."""

    def __init__(self, both: Peering, there: str) -> None:
        self._both = both
        self._there = there
        self.breaches: set[str] = set()
        self.looks = 0
        self.shares: set[int] = set()
        self._below: dict[str, set[str]] = {}

    @property
    def mirrored(self) -> int:
        """Return how many pods at home have had one at the peer."""
        return len(self._below)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._pods()
            await self._sum()
            self.looks += 1
            await asyncio.sleep(0.05)

    async def _pods(self) -> None:
        for each in await self._both.peer.list(PODS, self._there):
            meta = each["metadata"]
            above = meta.get("annotations", {}).get(f"{PREFIX}/uid", "")
            self._below.setdefault(above, set()).add(meta["uid"])
        twice = {above: found for above, found in self._below.items() if len(found) > 1}
        self.breaches |= {f"pod {above} had {sorted(found)} at the peer" for above, found in twice.items()}

    async def _sum(self) -> None:
        home = self._both.home
        before = await self._held()
        at_peer = thousandths(await _cpu(self._both.peer, self._there)) - thousandths(1)
        after, version = await self._held(), await _revision(home)
        if at_peer > max(before, after):
            self.breaches.add(f"the peer has {at_peer} of {before}, then {after}")
        with suppress(ApiError):  # compacted
            records = await _at(home, TenantResourceQuota.resource, "", version)
            held = sum(_held_of(each) for each in records if each["metadata"]["name"] == SPACE)
            quotas = await _at(home, ResourceQuota.resource, SPACE, version)
            (quota,) = (each for each in quotas if each["metadata"]["name"] == QUOTA)
            hard = thousandths(quota["spec"]["hard"].get(CPU, "0"))
            self.shares.add(held)
            if hard + held > thousandths(WHOLE):
                self.breaches.add(f"{hard} at home and {held} at the peer, of {WHOLE} CPUs")

    async def _held(self) -> int:
        return _held_of(await self._both.home.get(TenantResourceQuota.resource, SPACE))


def _held_of(found: Json) -> int:
    status: Json = found.get("status") or {}
    return sum(thousandths(each["held"].get(CPU, "0")) for each in status.get("clusters") or ())


async def _cpu(api: Api, namespace: str) -> str:
    return (await api.get(ResourceQuota.resource, QUOTA, namespace))["spec"]["hard"].get(CPU, "0")


async def _revision(api: Api) -> str:
    """Return the revision of the API server's store."""
    data = await api.client.request("GET", f"{wire.path(Namespace.resource)}?limit=1")
    return msgspec.json.decode(data)["metadata"]["resourceVersion"]


async def _at(api: Api, resource: Resource, namespace: str, version: str) -> list[Json]:
    """Return objects as they were at one revision, which is the same for all kinds."""
    asked = f"{wire.path(resource, namespace)}?resourceVersion={version}&resourceVersionMatch=Exact"
    return msgspec.json.decode(await api.client.request("GET", asked))["items"]


class People:
    """Change pods and the share at home, and delete pods at the peer."""

    def __init__(self, both: Peering, there: str, chance: random.Random) -> None:
        self._both = both
        self._there = there
        self._chance = chance
        self._made = 0
        self.done = 0

    async def run(self, end: float) -> None:
        """Change something until time is up."""
        verbs: list[Callable[[], Awaitable[object]]] = [self._make, self._delete, self._delete_there, self._share]
        while time.monotonic() < end:
            with suppress(ApiError):  # refused, or gone
                await self._chance.choices(verbs, weights=[5, 2, 2, 2])[0]()
                self.done += 1
            await asyncio.sleep(self._chance.uniform(0.05, 0.3))

    async def _make(self) -> None:
        # Names come again with other uids.
        name = f"p-{self._made % MOST_PODS}"
        self._made += 1
        await self._both.home.create(PODS, placed(SPACE, name, terminationGracePeriodSeconds=1), SPACE)

    async def _delete(self) -> None:
        await self._both.home.delete(PODS, f"p-{self._chance.randrange(MOST_PODS)}", SPACE)

    async def _delete_there(self) -> None:
        await self._both.peer.delete(PODS, f"p-{self._chance.randrange(MOST_PODS)}", self._there)

    async def _share(self) -> None:
        share = {"hard": {"cpu": str(self._chance.randint(0, 3))}}
        await self._both.home.patch(NamespaceOffloading.resource, OFFLOADING, {"spec": {"share": share}}, SPACE)


async def _disturb(link: TcpLink, chance: random.Random, end: float) -> int:
    """Change the state of the link until time is up; return how often."""
    times = 0
    while time.monotonic() < end:
        link.become(chance.choice([each for each in LinkState if each is not link.state]))
        if chance.random() < 0.2:
            link.reset()
        times += 1
        await asyncio.sleep(chance.uniform(0.3, 3.0))
    return times


async def _equal(both: Peering, there: str, seen: dict[str, object]) -> bool:
    """Return whether both sides have the same pods by uid, and what the NamespaceOffloading says."""
    pods = [each for each in await both.home.list(PODS, SPACE) if each["status"].get("phase") != "Failed"]
    every = {each["metadata"]["name"] for each in pods}
    above = {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in pods
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    }
    below = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {}).get(f"{PREFIX}/uid")
        for each in await both.peer.list(PODS, there)
    }
    wanted = (await both.home.get(NamespaceOffloading.resource, OFFLOADING, SPACE))["spec"]["share"]["hard"]["cpu"]
    status: Json = (await both.home.get(TenantResourceQuota.resource, SPACE))["status"]
    records = [(each["held"], each.get("given", {})) for each in status.get("clusters") or ()]
    share = [({CPU: wanted}, {CPU: wanted})] if wanted != "0" else []
    at_home, at_peer = await _cpu(both.home, SPACE), await _cpu(both.peer, there)
    seen.update(above=above, every=every, below=below, wanted=wanted, records=records, home=at_home, peer=at_peer)
    is_whole = (int(at_home), int(at_peer)) == (WHOLE - int(wanted), 1 + int(wanted))
    return above == below and every == set(above) and records == share and is_whole


@pytest.mark.long
async def test_both_sides_keep_the_invariants_on_a_bad_link_and_become_equal(both: Peering) -> None:
    """L13, L14, X03: seeded, so that a failure can be looked at again, as far as two clusters can repeat it."""
    print(f"CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    seen: dict[str, object] = {}
    async with linked(both) as link:
        tenant = federated(SPACE, both.peer_name)
        tenant["spec"]["quota"] = {"hard": {"cpu": str(WHOLE)}}
        await both.home.create(Tenant.resource, tenant)
        await both.home.ready(SPACE)
        wanted = offloading(SPACE, both.peer_name, cpu="1", pods="20")
        wanted["spec"]["share"] = {"hard": {"cpu": "1"}}
        await both.home.create(NamespaceOffloading.resource, wanted, SPACE)
        there = await both.accepted(SPACE)
        observer, people = Observer(both, there), People(both, there, chance)
        end = time.monotonic() + SECONDS
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(observer.run())
            disturbing = group.create_task(_disturb(link, random.Random(SEED + 1), end))
            await people.run(end)
            times = await disturbing
            link.become(LinkState.OPEN)
            try:
                await until(
                    lambda: _equal(both, there, seen), "both sides are equal", seconds=SETTLE_SECONDS, seen=lambda: seen
                )
            finally:
                watching.cancel()
        print(f"{people.done} changes, {times} states of the link, {observer.mirrored} pods, {observer.looks} looks")
        assert observer.breaches == set()
        assert min(people.done, observer.looks) > 10
        assert min(times, observer.mirrored, len(observer.shares)) > 1
        await both.run("peer", "delete", both.peer_name, "--cluster", both.home_name, "--yes", "--now")
        await both.peer.gone(Namespace.resource, there)
        await both.run("peer", "delete", both.home_name, "--cluster", both.peer_name, "--yes")
    left: list[tuple[Api, Resource, str]] = [
        (both.home, NODES, node_name(both.peer_name)),
        (both.home, NamespaceMap.resource, both.peer_name),
        (both.home, PeerCluster.resource, both.peer_name),
        (both.peer, Tenant.resource, both.tenant),
        (both.peer, Namespace.resource, both.tenant),
    ]
    for api, resource, name in left:
        await api.gone(resource, name)
    with suppress(NotFound):
        await both.home.delete(NamespaceOffloading.resource, OFFLOADING, SPACE)
        await both.home.gone(NamespaceOffloading.resource, OFFLOADING, SPACE)
    status: Json = (await both.home.get(TenantResourceQuota.resource, SPACE))["status"]
    assert not status.get("clusters")
    assert await _cpu(both.home, SPACE) == str(WHOLE)

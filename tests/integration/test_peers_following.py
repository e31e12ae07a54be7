"""The quota of a namespace at a peer follows its pods (X03)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Json
from tenantry.api.offloading import OFFLOADING, NamespaceOffloading
from tenantry.api.tenant import Tenant
from tenantry.controllers.peering.link.following import FOLLOWS
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.world.shares.amounts import read
from tenantry.world.shares.following import step_to
from testkit.api import PODS, until
from testkit.peerings import Peering, federated, offloading, peering, placed

pytestmark = pytest.mark.long
"""Each pair of clusters costs minutes on a busy machine; `make test` has test_peers.py and docs/federation.md."""

CPU, MEMORY = "requests.cpu", "requests.memory"


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with simulated nodes, connected."""
    async with peering(tenantry_home, "follow", "--nodes", "2") as found:
        await found.connect()
        yield found


async def _offload(both: Peering, name: str, **more: Json) -> str:
    """Make a tenant whose namespace exists at the peer, too, and states no quota; return the namespace there."""
    await both.home.create(Tenant.resource, federated(name, both.peer_name))
    await both.home.ready(name)
    wanted = offloading(name, both.peer_name)
    wanted["spec"] = {"clusterSelector": wanted["spec"]["clusterSelector"], **more}
    await both.home.create(NamespaceOffloading.resource, wanted, name)
    return await both.accepted(name)


async def _hard(both: Peering, place: str) -> Json:
    return (await both.peer.get(ResourceQuota.resource, QUOTA, place))["spec"]["hard"]


async def _refusals(both: Peering, namespace: str) -> list[str]:
    """Return the words that pods show which the peer refuses."""
    conditions = [each for pod in await both.home.list(PODS, namespace) for each in pod["status"].get("conditions", ())]
    return [each["message"] for each in conditions if each.get("reason") == reasons.PEER_REFUSED]


async def _fill(both: Peering, namespace: str, count: int, **more: Json) -> None:
    """Create pods at home, all at once, and wait until they run."""
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(both.home.create(PODS, placed(namespace, f"web-{number}", **more), namespace))
    for number in range(count):
        await both.pod(f"web-{number}", namespace)


async def test_the_quota_at_the_peer_follows_the_pods_in_steps(both: Peering) -> None:
    """Up before a pod is sent, in few writes; what the pods do not need is left for others."""
    there = await _offload(both, "grows")
    assert (await _hard(both, there))["pods"] == "1"
    await _fill(both, "grows", 40)
    assert await _refusals(both, "grows") == []
    sub = await both.mapped("grows")
    need, hard = read({"pods": "40", CPU: "4", MEMORY: "1280Mi"}), read(sub["spec"]["quota"]["hard"])
    assert hard == {key: step_to(key, value) for key, value in need.items()}
    assert read(await _hard(both, there)) == hard
    assert read((await both.workspace("grows"))["spec"]["quota"]["hard"]) == hard
    # The first generation made it; each further one is a step, of the 11 from 1 pod to 40.
    assert sub["metadata"]["generation"] <= 11
    assert sub["metadata"]["annotations"][FOLLOWS]


async def test_pods_that_request_nothing_run_with_the_defaults_of_the_peer(both: Peering) -> None:
    """What the LimitRange of the peer adds is known from its refusal, and counted."""
    there = await _offload(both, "plain")
    await _fill(both, "plain", 6, container={"resources": {}})
    # A refusal by which the home learns of the defaults is not shown.
    assert await _refusals(both, "plain") == []
    used = (await both.peer.get(ResourceQuota.resource, QUOTA, there))["status"]["used"]
    assert used["pods"] == "6"


async def test_without_room_at_the_peer_pods_wait_with_its_words_and_run_when_there_is_room(both: Peering) -> None:
    """Those that fit run; no back-off passes before the others do."""
    free = read(await _hard(both, both.tenant))[CPU]
    await both.offload("hog", cpu=f"{free - 4000}m", memory="1Gi", pods="5")
    await _offload(both, "tight")
    # Two of three fit.
    cpu = f"{read(await _hard(both, both.tenant))[CPU] // 2}m"
    for number in range(3):
        resources = {"requests": {"cpu": cpu, "memory": "32Mi"}}
        await both.home.create(PODS, placed("tight", f"web-{number}", container={"resources": resources}), "tight")
    seen: Json = {}

    async def run(count: int) -> bool:
        seen["words"] = words = await _refusals(both, "tight")
        phases = [each["status"]["phase"] for each in await both.home.list(PODS, "tight")]
        seen["phases"] = phases
        is_told = sum("exceeded quota" in each for each in words) == 3 - count
        return phases.count("Running") == count and is_told

    await until(lambda: run(2), "two pods run, and one shows the words of the peer", seen=lambda: seen)
    less = {"spec": {"quota": {"hard": {"cpu": "1"}}}}
    await both.home.patch(NamespaceOffloading.resource, OFFLOADING, less, "hog")
    await until(lambda: run(3), "all pods run", seen=lambda: seen)
    for each in ("tight", "hog"):
        await both.home.delete(NamespaceOffloading.resource, OFFLOADING, each)
        await both.home.gone(NamespaceOffloading.resource, OFFLOADING, each)


async def test_a_share_is_beside_what_follows_pods(both: Peering) -> None:
    tenant = federated("both", both.peer_name)
    tenant["spec"]["quota"] = {"hard": {"cpu": "8", "pods": "20"}}
    await both.home.create(Tenant.resource, tenant)
    await both.home.ready("both")
    wanted = offloading("both", both.peer_name)
    wanted["spec"] |= {"quota": {}, "share": {"hard": {"cpu": "2"}}}
    await both.home.create(NamespaceOffloading.resource, wanted, "both")
    there = await both.accepted("both")
    seen: Json = {}

    async def has(pods: int) -> bool:
        seen["hard"] = hard = read(await _hard(both, there))
        return hard[CPU] == 2000 + step_to(CPU, 100 * pods)

    await until(lambda: has(0), "the share is at the peer", seen=lambda: seen)
    await _fill(both, "both", 10)
    assert await _refusals(both, "both") == []
    await until(lambda: has(10), "the quota follows the pods, beside the share", seen=lambda: seen)
    await both.home.delete(NamespaceOffloading.resource, OFFLOADING, "both")
    await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "both")

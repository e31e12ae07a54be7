"""A peer that does not answer, and comes back or is given up (L01, L06, L13, X03)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, Resource
from tenantry.api.offloading import OFFLOADING, NamespaceMap, NamespaceOffloading
from tenantry.api.peercluster import GIVE_UP, PeerCluster, node_name
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from testkit.api import PODS, until
from testkit.peerings import Peering, federated, linked, offloading, peering, placed
from testkit.tcplink import LinkState, TcpLink

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
LONG = 100.0


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with a simulated node."""
    async with peering(tenantry_home, "cut", "--nodes", "1") as found:
        yield found


@pytest_asyncio.fixture(scope="module")
async def link(both: Peering) -> AsyncIterator[TcpLink]:
    """The link between them."""
    async with linked(both) as found:
        yield found


async def _ready(both: Peering, resource: Resource, name: str, namespace: str = "") -> str:
    found = await both.home.get(resource, name, namespace)
    conditions = {each["type"]: each["status"] for each in found["status"].get("conditions", ())}
    return conditions.get(reasons.READY, "")


async def _reachable(both: Peering) -> str:
    found = await both.home.get(PeerCluster.resource, both.peer_name)
    return {each["type"]: each["status"] for each in found["status"]["conditions"]}[reasons.REACHABLE]


def _impatient(namespace: str, name: str) -> Json:
    """Return a pod at a peer that Kubernetes deletes as soon as its Node is not ready."""
    found = placed(namespace, name)
    for taint in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{taint}"
        tolerated = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        found["spec"].setdefault("tolerations", []).append(tolerated)
    return found


async def _uids(both: Peering, there: str, namespace: str, *names: str) -> tuple[dict[str, str], dict[str, str]]:
    """Wait until pods run; return their uids at home and at the peer."""
    above = {name: (await both.pod(name, namespace))["metadata"]["uid"] for name in names}
    return above, {name: (await both.peer.get(PODS, name, there))["metadata"]["uid"] for name in names}


async def _silent(both: Peering) -> None:
    """Wait until the Node is not ready."""
    seen: dict[str, str] = {}

    async def so() -> bool:
        seen["node"] = await _ready(both, NODES, node_name(both.peer_name))
        return seen["node"] == "False"

    await until(so, "the Node is not ready", seconds=LONG, seen=lambda: seen)


async def _back(both: Peering) -> None:
    """Wait until the Node is ready."""
    seen: dict[str, str] = {}

    async def so() -> bool:
        seen["node"] = await _ready(both, NODES, node_name(both.peer_name))
        return seen["node"] == "True"

    await until(so, "the Node is ready again", seconds=LONG, seen=lambda: seen)


async def _terminating(both: Peering, name: str, namespace: str) -> None:
    async def so() -> bool:
        return "deletionTimestamp" in (await both.home.get(PODS, name, namespace))["metadata"]

    await until(so, f"pod {name!r}, whose toleration has ended, is Terminating", seconds=LONG)


@pytest.mark.long
async def test_silence_deletes_nothing_and_pods_go_when_the_peer_confirms(both: Peering, link: TcpLink) -> None:
    """L13: at most one pod runs for a uid, and what outlived its toleration is gone on both sides after the return."""
    there = await both.offload("silent")
    await both.home.create(PODS, placed("silent", "stays"), "silent")
    await both.home.create(PODS, _impatient("silent", "goes"), "silent")
    above, below = await _uids(both, there, "silent", "stays", "goes")
    seen: dict[str, object] = {}

    link.become(LinkState.HALF_OPEN)

    async def unknown() -> bool:
        seen["reachable"] = found = await _reachable(both)
        return found == "Unknown"

    await until(unknown, "the home reports that it does not know", seen=lambda: seen)
    await _silent(both)

    async def not_ready() -> bool:
        seen["pod"] = found = await _ready(both, PODS, "stays", "silent")
        return found == "False"

    await until(not_ready, "the pods of the Node are not ready", seconds=LONG, seen=lambda: seen)
    await _terminating(both, "goes", "silent")
    found = (await both.home.get(PODS, "goes", "silent"))["metadata"]
    assert found["uid"] == above["goes"]
    assert "deletionTimestamp" not in (await both.home.get(PODS, "stays", "silent"))["metadata"]
    # Nothing has reached the peer.
    for name, uid in below.items():
        meta = (await both.peer.get(PODS, name, there))["metadata"]
        assert (meta["uid"], "deletionTimestamp" in meta) == (uid, False)

    link.become(LinkState.OPEN)
    await both.home.gone(PODS, "goes", "silent")
    await both.peer.gone(PODS, "goes", there)
    await _back(both)

    async def ready() -> bool:
        seen["pod"] = found = await _ready(both, PODS, "stays", "silent")
        return found == "True"

    await until(ready, "the pod that stayed is ready again", seen=lambda: seen)
    assert await _uids(both, there, "silent", "stays") == ({"stays": above["stays"]}, {"stays": below["stays"]})


@pytest.mark.long
async def test_pods_of_a_peer_that_is_given_up_are_replaced_and_deleted_there_when_it_is_back(
    both: Peering, link: TcpLink
) -> None:
    """L13, X03: what they may still use at the peer is no quota of others until the peer shows that they are gone."""
    tenant = federated("lost", both.peer_name)
    tenant["spec"]["quota"] = {"hard": {"cpu": "300m", "memory": "1Gi", "pods": "10"}}
    await both.home.create(Tenant.resource, tenant)
    await both.home.ready("lost")
    await both.home.create(NamespaceOffloading.resource, offloading("lost", both.peer_name, cpu="200m"), "lost")
    there = await both.accepted("lost")
    refused = await both.call("peer", "give-up", both.peer_name, "--cluster", both.home_name, "--yes")
    assert (refused.returncode, "the peer answers" in refused.stderr) == (1, True), refused
    for make in (placed("lost", "stays"), _impatient("lost", "goes")):
        await both.home.create(PODS, make, "lost")
    _, below = await _uids(both, there, "lost", "stays", "goes")
    seen: dict[str, object] = {}

    link.become(LinkState.CUT)
    await _silent(both)
    await _terminating(both, "goes", "lost")
    # 200m of 300m are in use by pods that are let go, and the quota has to hold 200m before.
    waits = await both.call("peer", "give-up", both.peer_name, "--cluster", both.home_name, "--yes")
    assert (waits.returncode, "pods wait" in waits.stderr) == (1, True), waits
    await both.home.patch(Tenant.resource, "lost", {"spec": {"quota": {"hard": {"cpu": "500m"}}}})
    for name in ("stays", "goes"):
        await both.home.gone(PODS, name, "lost")
    done = await both.run("peer", "give-up", both.peer_name, "--cluster", both.home_name, "--yes")
    # Those that other tests have left there, too.
    let_go = re.search(r"([0-9]+) pods were let go", done)
    assert let_go is not None, done
    assert int(let_go[1]) >= len(below)
    # One that replaces a pod has its name, and another uid; it runs at home.
    local = placed("lost", "goes")
    del local["spec"]["nodeSelector"]
    await both.home.create(PODS, local, "lost")
    await both.pod("goes", "lost")

    async def held() -> list[Json]:
        status: Json = (await both.home.get(TenantResourceQuota.resource, "lost"))["status"]
        seen["held"] = found = [each for each in status.get("clusters", ()) if each["peer"] == both.peer_name]
        return found

    (record,) = await held()
    assert record["held"]["requests.cpu"] == "200m"
    assert not record.get("given")
    for name, uid in below.items():
        assert (await both.peer.get(PODS, name, there))["metadata"]["uid"] == uid

    link.become(LinkState.OPEN)
    for name in below:
        await both.peer.gone(PODS, name, there)
    await _back(both)

    async def forgotten() -> bool:
        status: Json = (await both.home.get(NamespaceMap.resource, both.peer_name))["status"]
        seen["map"] = status
        return not await held() and not status.get("lost") and not status.get("giveUp")

    await until(forgotten, "nothing is held for them any more", seen=lambda: seen)
    notes = (await both.home.get(PeerCluster.resource, both.peer_name))["metadata"].get("annotations", {})
    assert GIVE_UP not in notes
    assert (await both.pod("goes", "lost"))["spec"]["nodeName"] != node_name(both.peer_name)
    await both.home.create(PODS, placed("lost", "again"), "lost")
    await both.pod("again", "lost")


@pytest.mark.long
async def test_a_namespaceoffloading_that_forgets_ends_without_the_peer(both: Peering, link: TcpLink) -> None:
    """L02: and what is left there ends when the peer is back; one that does not forget waits."""
    there = {name: await both.offload(name) for name in ("forgets", "waits")}
    for name in there:
        await both.home.create(PODS, placed(name, "web"), name)
        await both.pod("web", name)
    forget = {"spec": {"forgetUnreachable": True}}
    await both.home.patch(NamespaceOffloading.resource, OFFLOADING, forget, "forgets")

    link.become(LinkState.CUT)
    await _silent(both)
    for name in there:
        await both.home.delete(NamespaceOffloading.resource, OFFLOADING, name)
    await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "forgets")
    await both.home.gone(PODS, "web", "forgets")
    clusters = (await both.home.get(NamespaceOffloading.resource, OFFLOADING, "waits"))["status"]["clusters"]
    assert [(each["name"], each["phase"]) for each in clusters] == [(both.peer_name, "Terminating")]
    for namespace in there.values():
        assert await both.peer.find(PODS, "web", namespace) is not None

    link.become(LinkState.OPEN)
    for namespace in there.values():
        await both.peer.gone(Namespace.resource, namespace)
    await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "waits")
    await _back(both)

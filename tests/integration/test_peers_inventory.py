"""What other programs read about this cluster and its peers: ClusterProperty, ClusterProfile (KEP-2149, KEP-4322)."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.clusterinventory import (
    CLUSTER_ID,
    CLUSTER_MANAGER,
    CONTROL_PLANE_HEALTHY,
    PROFILES_NAMESPACE,
    ClusterProfile,
    ClusterProperty,
)
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json
from tenantry.api.peercluster import PEERS_NAMESPACE, PeerCluster
from tenantry.engine.lease import Lease
from tenantry.install import clusterinventory
from testkit.api import CRDS, EVENTS, SECRETS, Api, until
from testkit.peerings import Peering, linked, peering
from testkit.tcplink import LinkState, TcpLink

pytestmark = pytest.mark.long
"""Each pair of clusters costs minutes on a busy machine; `make test` has test_peers.py and docs/federation.md."""

PROFILES, PROPERTIES = ClusterProfile.resource, ClusterProperty.resource
LONG = 60.0
NOWHERE = "https://127.0.0.1:1"


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with a simulated node."""
    async with peering(tenantry_home, "list", "--nodes", "1") as found:
        yield found


@pytest_asyncio.fixture(scope="module")
async def link(both: Peering) -> AsyncIterator[TcpLink]:
    """The link between them."""
    async with linked(both) as found:
        yield found


async def _uid(api: Api) -> str:
    return (await api.get(Namespace.resource, "kube-system"))["metadata"]["uid"]


async def _healthy(both: Peering, status: str) -> Json:
    """Wait until the ClusterProfile of the peer has a health; return it."""
    seen: Json = {}

    async def so() -> Json | None:
        found = await both.home.find(PROFILES, both.peer_name, PROFILES_NAMESPACE)
        seen["profile"] = found
        shown: Json = (found or {}).get("status") or {}
        known: list[Json] = shown.get("conditions", [])
        health: dict[str, str] = {each["type"]: each["status"] for each in known}
        return found if health.get(CONTROL_PLANE_HEALTHY) == status else None

    return await until(so, f"the ClusterProfile is {CONTROL_PLANE_HEALTHY}={status}", seconds=LONG, seen=lambda: seen)


async def _inventoried(both: Peering, name: str, reason: str) -> Json:
    """Wait until a PeerCluster reports on its ClusterProfile, "" for not at all; return the condition."""
    seen: Json = {}

    async def so() -> Json | None:
        status: Json = (await both.home.get(PeerCluster.resource, name)).get("status") or {}
        seen["conditions"] = {each["type"]: each for each in status.get("conditions", ())}
        told: Json = seen["conditions"].get(reasons.INVENTORIED, {"reason": ""})
        return told if told["reason"] == reason and seen["conditions"] else None

    return await until(so, f"PeerCluster {name!r} reports {reason!r}", seconds=LONG, seen=lambda: seen)


async def _renewal(both: Peering) -> str:
    """Return when the home renewed its Lease at the peer."""
    return (await both.peer.get(Lease.resource, both.home_name, PEERS_NAMESPACE))["spec"]["renewTime"]


def _nowhere(name: str) -> Json:
    """Return a PeerCluster whose peer never answers."""
    host = {"server": NOWHERE, "ca": "none", "guest": "home", "credentialsSecretName": f"{name}-token"}
    return {"metadata": {"name": name}, "spec": {"host": host}}


def _foreign(name: str) -> Json:
    """Return a ClusterProfile of another program, which has copied the label of Tenantry."""
    spec = {"displayName": "theirs", "clusterManager": {"name": "karmada"}}
    return {"metadata": {"name": name, "labels": {CLUSTER_MANAGER: "tenantry"}}, "spec": spec}


def _facts(profile: Json) -> dict[str, str]:
    return {each["name"]: each["value"] for each in profile["status"]["properties"]}


async def test_a_profile_shows_the_real_peer_and_loses_its_health_with_the_link(both: Peering, link: TcpLink) -> None:
    """KEP-4322: id, version and offer are those of the peer, and no credential is part of it."""
    found = await _healthy(both, "True")
    version = msgspec.json.decode(await both.peer.client.request("GET", "/version"))["gitVersion"]
    uid = await _uid(both.peer)
    facts = _facts(found)
    assert found["status"]["version"] == {"kubernetes": version}
    assert (facts[CLUSTER_ID], facts["offer.federation.tenantry.dev/pods"]) == (uid, "200")
    half: Json = (await both.home.get(PeerCluster.resource, both.peer_name))["spec"]["host"]
    (access,) = found["status"]["accessProviders"]
    assert (access["cluster"]["server"], set(access["cluster"])) == (
        half["server"],
        {"server", "certificate-authority-data"},
    )
    secret = await both.home.get(SECRETS, half["credentialsSecretName"], PEERS_NAMESPACE)
    assert all(value not in str(found) for value in secret["data"].values())
    assert (await _inventoried(both, both.peer_name, reasons.PROFILE_WRITTEN))["status"] == "True"

    # The peer is asked every five seconds, and the Lease renewed every ten: neither is written into the profile.
    renewed = await _renewal(both)

    async def later() -> bool:
        return await _renewal(both) != renewed

    before = await both.home.get(PROFILES, both.peer_name, PROFILES_NAMESPACE)
    await until(later, "the home renews its Lease", seconds=LONG)
    assert await both.home.get(PROFILES, both.peer_name, PROFILES_NAMESPACE) == before

    link.become(LinkState.CUT)
    lost = await _healthy(both, "Unknown")
    assert _facts(lost) == facts
    link.become(LinkState.OPEN)
    await _healthy(both, "True")


async def test_both_clusters_have_their_id_as_a_property_which_no_one_changes(both: Peering) -> None:
    """KEP-2149: it is created, and a value that a person has chosen stays."""
    for api in (both.home, both.peer):
        uid = await _uid(api)

        async def so(api: Api = api, uid: str = uid) -> bool:
            found = await api.find(PROPERTIES, CLUSTER_ID)
            return found is not None and found["spec"]["value"] == uid

        await until(so, "the cluster has its id as a property")
    await both.peer.patch(PROPERTIES, CLUSTER_ID, {"spec": {"value": "europe"}})
    seen: Json = {}

    async def reported() -> bool:
        seen["events"] = found = await both.peer.list(EVENTS, "default")
        return any(each["reason"] == reasons.CLUSTER_ID_DIFFERS for each in found)

    await until(reported, "the operator reports the other value", seen=lambda: seen)
    assert (await both.peer.get(PROPERTIES, CLUSTER_ID))["spec"]["value"] == "europe"
    await both.peer.delete(PROPERTIES, CLUSTER_ID)

    async def again() -> bool:
        found = await both.peer.find(PROPERTIES, CLUSTER_ID)
        return found is not None and found["spec"]["value"] == await _uid(both.peer)

    await until(again, "a property that was deleted is written again")


async def test_a_profile_of_another_program_stays_and_is_reported(both: Peering) -> None:
    theirs = await both.home.create(PROFILES, _foreign("taken"), PROFILES_NAMESPACE)
    await both.home.create(PeerCluster.resource, _nowhere("taken"))
    told = await _inventoried(both, "taken", reasons.OBJECT_EXISTS)
    assert "'karmada'" in told["message"]
    assert await both.home.get(PROFILES, "taken", PROFILES_NAMESPACE) == theirs
    await both.home.delete(PROFILES, "taken", PROFILES_NAMESPACE)
    await _inventoried(both, "taken", reasons.PROFILE_WRITTEN)
    ours = await both.home.get(PROFILES, "taken", PROFILES_NAMESPACE)
    assert ours["spec"]["clusterManager"]["name"] == "tenantry"
    await both.home.delete(PROFILES, "taken", PROFILES_NAMESPACE)

    async def again() -> bool:
        return await both.home.find(PROFILES, "taken", PROFILES_NAMESPACE) is not None

    await until(again, "a profile that was deleted is written again")
    await both.home.delete(PeerCluster.resource, "taken")
    await both.home.gone(PROFILES, "taken", PROFILES_NAMESPACE)


async def test_tenants_and_homes_read_neither_kind(both: Peering, link: TcpLink) -> None:
    """A tenant does not learn which peers others use, and a home not which other homes a cluster serves."""
    del link  # it connects the clusters
    there = await both.offload("curious")
    ada = {"kind": "User", "name": "ada"}
    guest = {"kind": "ServiceAccount", "name": both.home_name, "namespace": PEERS_NAMESPACE}
    for api, who, namespace in ((both.home, ada, "curious"), (both.peer, guest, there)):
        assert await api.may(who, "get", "", "configmaps", namespace)
        for verb in ("get", "list", "watch", "create", "patch", "delete"):
            assert not await api.may(who, verb, PROFILES.group, PROFILES.plural, PROFILES_NAMESPACE)
            assert not await api.may(who, verb, PROFILES.group, PROFILES.plural, namespace)
            assert not await api.may(who, verb, PROPERTIES.group, PROPERTIES.plural)


async def test_the_profile_comes_and_goes_with_its_kind_also_with_its_first_release(both: Peering) -> None:
    """An administrator may install the definitions of their projects, which later releases change."""
    ours = clusterinventory.definitions()
    older = copy.deepcopy(ours[1])
    schema: Json = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del schema["accessProviders"]
    schema["properties"]["items"]["required"].append("lastObservedTime")
    await both.home.create(PeerCluster.resource, _nowhere("early"))
    await _inventoried(both, "early", reasons.PROFILE_WRITTEN)
    await _without_kinds(both)
    await _inventoried(both, "early", "")
    for each in (ours[0], older):
        await both.home.create(CRDS, each)
    await _inventoried(both, "early", reasons.PROFILE_WRITTEN)
    found = await both.home.get(PROFILES, "early", PROFILES_NAMESPACE)
    assert [each["type"] for each in found["status"]["conditions"]] == [CONTROL_PLANE_HEALTHY]

    async def so() -> bool:
        return await both.home.find(PROPERTIES, CLUSTER_ID) is not None

    await until(so, "the property is there again")
    await _without_kinds(both)
    for each in ours:
        await both.home.create(CRDS, each)
    await _inventoried(both, "early", reasons.PROFILE_WRITTEN)
    await both.home.delete(PeerCluster.resource, "early")
    await both.home.gone(PROFILES, "early", PROFILES_NAMESPACE)


async def _without_kinds(both: Peering) -> None:
    """Delete both kinds at home, with their objects."""
    for resource in (PROFILES, PROPERTIES):
        await both.home.delete(CRDS, resource.full_name)
        await both.home.gone(CRDS, resource.full_name)

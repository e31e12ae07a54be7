"""What follows the pods of a namespace to a peer, and what comes back: Services, events; and Secrets that do not."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.model import Json, Resource
from tenantry.api.offloading import OFFLOADING, NamespaceOffloading
from tenantry.api.peercluster import PREFIX
from tenantry.mirror.kinds import services
from testkit.api import CONFIG_MAPS, PODS, SECRETS, Api, until
from testkit.peerings import Peering, peering, placed

pytestmark = pytest.mark.long
"""Each pair of clusters costs minutes on a busy machine; `make test` has test_peers.py and docs/federation.md."""

SERVICES = services.RESOURCE
EVENTS = Resource("", "v1", "events", "Event")
ALL: Json = {"spec": {"reflection": {"services": "All"}}}
NONE: Json = {"spec": {"reflection": {"services": "None"}}}


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with a simulated node, connected."""
    async with peering(tenantry_home, "kinds", "--nodes", "1") as found:
        await found.connect()
        yield found


def service(name: str, **spec: object) -> Json:
    """Return a Service of the pods of a name."""
    ports = [{"port": 80, "targetPort": 8080}]
    return {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports, **spec}}


async def appears(api: Api, resource: Resource, name: str, namespace: str) -> Json:
    """Wait for an object, and return it."""

    async def so() -> Json | None:
        return await api.find(resource, name, namespace)

    return await until(so, f"{resource.plural} {name!r} is there")


async def test_services_follow_a_namespace_that_reflects_them_and_end_when_it_does_not(both: Peering) -> None:
    """L08: pods at the peer find pods at the peer, by the same names; each side has its own addresses."""
    there = await both.offload("shop")
    for each in (service("web"), service("db", clusterIP="None")):
        await both.home.create(SERVICES, each, "shop")
    await both.home.patch(NamespaceOffloading.resource, OFFLOADING, ALL, "shop")
    below = await appears(both.peer, SERVICES, "web", there)
    assert below["spec"]["selector"] == {"app": "web"}
    assert below["spec"]["type"] == "ClusterIP"
    assert below["metadata"]["annotations"][f"{PREFIX}/name"] == "web"
    assert (await appears(both.peer, SERVICES, "db", there))["spec"]["clusterIP"] == "None"

    await both.home.patch(SERVICES, "web", {"spec": {"ports": [{"port": 81, "targetPort": 8080}]}}, "shop")

    async def followed() -> bool:
        return (await both.peer.get(SERVICES, "web", there))["spec"]["ports"][0]["port"] == 81

    await until(followed, "a changed Service follows")
    assert (await both.peer.get(SERVICES, "web", there))["spec"]["clusterIP"] == below["spec"]["clusterIP"]
    await both.home.delete(SERVICES, "db", "shop")
    await both.peer.gone(SERVICES, "db", there)
    # Nothing that the peer writes comes up.
    await both.peer.patch(SERVICES, "web", {"spec": {"sessionAffinity": "ClientIP"}}, there)

    async def restored() -> bool:
        return (await both.peer.get(SERVICES, "web", there))["spec"]["sessionAffinity"] == "None"

    await until(restored, "the Service at the peer is as its home has it")
    assert (await both.home.get(SERVICES, "web", "shop"))["spec"]["sessionAffinity"] == "None"
    await both.home.patch(NamespaceOffloading.resource, OFFLOADING, NONE, "shop")
    await both.peer.gone(SERVICES, "web", there)
    assert await both.home.find(SERVICES, "web", "shop") is not None


async def test_services_of_other_namespaces_and_those_that_lead_outside_stay_at_home(both: Peering) -> None:
    """L08: an event says which field."""
    quiet, there = await both.offload("quiet"), await both.offload("loud")
    await both.home.patch(NamespaceOffloading.resource, OFFLOADING, ALL, "loud")
    await both.home.create(SERVICES, service("web"), "quiet")
    bare = {"metadata": {"name": "bare"}, "spec": {"ports": [{"port": 80}]}}
    for each in (bare, service("last")):
        await both.home.create(SERVICES, each, "loud")
    await appears(both.peer, SERVICES, "last", there)

    async def told() -> bool:
        found = await both.home.list(EVENTS, "loud")
        return any(
            each["involvedObject"]["name"] == "bare"
            and each["reason"] == reasons.NOT_FEDERABLE
            and "spec.selector" in each["message"]
            for each in found
        )

    await until(told, "an event of the Service says why it stays")
    assert [each["metadata"]["name"] for each in await both.peer.list(SERVICES, there)] == ["last"]
    assert await both.peer.list(SERVICES, quiet) == []
    # One that becomes such a Service does not keep its last form there.
    await both.home.patch(SERVICES, "last", {"spec": {"selector": None}}, "loud")
    await both.peer.gone(SERVICES, "last", there)


async def test_events_of_a_pod_at_the_peer_are_those_of_its_pod_at_home(both: Peering) -> None:
    """L06: the names of the peer are replaced, and nothing of its text moves a cursor."""
    there = await both.offload("told")
    await both.home.create(PODS, placed("told", "web"), "told")
    pod = await both.pod("web", "told")
    below = await both.peer.get(PODS, "web", there)
    about = {"kind": "Pod", "apiVersion": "v1", **{key: below["metadata"][key] for key in ("name", "namespace", "uid")}}
    lie = {"message": f"\x1b[2J{there}/web is well", "reason": "Lie", "type": "Normal"}
    now = below["status"]["startTime"]
    for name, uid in (("own", below["metadata"]["uid"]), ("other", pod["metadata"]["uid"])):
        event = {"metadata": {"name": name}, "involvedObject": {**about, "uid": uid}, "lastTimestamp": now, **lie}
        await both.peer.create(EVENTS, {**event, "source": {"component": name}}, there)

    async def shown() -> list[Json]:
        found = await both.home.list(EVENTS, "told")
        return [each for each in found if each["reason"] == "Lie"]

    (found,) = await until(shown, "the event is shown at home")
    assert found["involvedObject"]["uid"] == pod["metadata"]["uid"]
    assert found["message"] == r"\x1b[2Jtold/web is well"
    assert found["source"]["component"] == "own"


async def test_what_no_pod_names_never_reaches_the_peer(both: Peering) -> None:
    """L06: the test searches all Secrets, ConfigMaps and pods of the peer."""
    await both.offload("vault")
    canary = "canary-5f1d0c9be7"
    await both.home.create(SECRETS, {"metadata": {"name": "canary"}, "stringData": {"key": canary}}, "vault")
    await both.home.create(CONFIG_MAPS, {"metadata": {"name": "canary"}, "data": {"key": canary}}, "vault")
    await both.home.create(SECRETS, {"metadata": {"name": "named"}, "stringData": {"key": "named"}}, "vault")
    named = {"envFrom": [{"secretRef": {"name": "named"}}]}
    await both.home.create(PODS, placed("vault", "web", container=named), "vault")
    await both.pod("web", "vault")
    everything = [*await both.peer.list(SECRETS), *await both.peer.list(CONFIG_MAPS), *await both.peer.list(PODS)]
    text = msgspec.json.encode(everything)
    assert base64.b64encode(b"named") in text, "what a pod names is there"
    assert canary.encode() not in text
    assert base64.b64encode(canary.encode()) not in text

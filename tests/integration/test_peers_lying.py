"""A peer that lies about itself, its pods and what it offers (design: a hostile peer), from inside its answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import CLUSTER_UID, PROPOSED_LABELS
from tenantry.api.model import Json
from tenantry.api.peercluster import PeerCluster, node_name
from tenantry.controllers.peering.guests.offers import OFFER_KEY
from tenantry.kube import kubeconfig
from tenantry.mirror.things import NODES
from testkit.api import EVENTS, PODS, until
from testkit.lyingpeer import Lie, LyingPeer
from testkit.peerings import Peering, peering, placed

pytestmark = pytest.mark.long
"""Each pair of clusters costs minutes on a busy machine; `make test` has test_peers.py and docs/federation.md."""

MEGABYTE = 2**20
SPACE = "shop"


class Pair:
    """A home, and a peer that it reaches through a liar."""

    def __init__(self, both: Peering, liar: LyingPeer) -> None:
        self.both = both
        self.liar = liar
        self.there = ""

    async def condition(self) -> Json:
        """Return the condition Ready of the PeerCluster; {} if there is none."""
        status: Json = (await self.both.home.get(PeerCluster.resource, self.both.peer_name)).get("status") or {}
        conditions: list[Json] = status.get("conditions") or []
        none: Json = {}
        return next((each for each in conditions if each["type"] == reasons.READY), none)

    async def node(self) -> Json:
        """Return the Node of the peer."""
        return await self.both.home.get(NODES, node_name(self.both.peer_name))

    async def is_used(self) -> bool:
        """Return whether the peer is Ready, and answers through the liar."""
        return self.liar.asked > 0 and (await self.condition()).get("status") == "True"


@pytest_asyncio.fixture(scope="module")
async def pair(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """A home with a namespace at the peer, whose answers pass through the liar, which is honest at first."""
    async with peering(tenantry_home, "lies", "--nodes", "1") as both:
        await both.connect()
        target = kubeconfig.load([both.cluster(both.peer_name).kubeconfig_path])
        async with LyingPeer(target, tmp_path_factory.mktemp("liar")).running() as liar:
            there = {"server": f"https://127.0.0.1:{liar.port}", "ca": liar.ca}
            await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": there}})
            found = Pair(both, liar)
            await until(found.is_used, "the peer is reached through the liar")
            found.there = await both.offload(SPACE)
            yield found


def of_namespaces(field: str, key: str, text: str) -> Lie:
    """Return a lie about the metadata of the namespace by which a peer says what it is."""

    def lie(_path: str, value: Json) -> None:
        if value.get("kind") == "Namespace":
            value["metadata"].setdefault(field, {})[key] = text

    return lie


def old_version(path: str, value: Json) -> None:
    """Say that the peer is an old Kubernetes."""
    if path == "/version":
        value.update(major="1", minor="24", gitVersion="v1.24.0")


async def test_a_peer_that_is_the_home_another_cluster_or_too_old_is_not_used(pair: Pair) -> None:
    """PEER-67: the condition says which, and the peer is used again when it is itself."""
    kube_system = await pair.both.home.get(Namespace.resource, "kube-system")
    lies = {
        reasons.PEER_IS_HOME: of_namespaces("labels", CLUSTER_UID, kube_system["metadata"]["uid"]),
        reasons.PEER_CHANGED: of_namespaces("labels", CLUSTER_UID, str(uuid4())),
        reasons.PEER_TOO_OLD: old_version,
    }
    for reason, lie in lies.items():
        pair.liar.tell(lie)

        async def is_noticed(reason: str = reason) -> bool:
            return (await pair.condition()).get("reason") == reason

        await until(is_noticed, f"the home sees {reason}", seen=lambda: pair.liar.told)
        pair.liar.tell()
        await until(pair.is_used, "the peer is used again")


def of_pods(change: Lie) -> Lie:
    """Return a lie about pods only."""

    def lie(path: str, value: Json) -> None:
        if "/pods" in path and "status" in value and "containers" in value.get("spec", {}):
            change(path, value)

    return lie


def swollen(_path: str, value: Json) -> None:
    """Report long texts, and containers, conditions and addresses that are none of the pod's."""
    status = value["status"]
    status["message"] = status["reason"] = "x" * 10_000
    condition = {"status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "y" * 1500, "reason": "a"}
    status.setdefault("conditions", []).extend({**condition, "type": f"example.com/{n}"} for n in range(100))
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    container = {"image": "a", "imageID": "b" * 5000, "ready": True, "restartCount": 0, "state": running}
    status["containerStatuses"] = [{"name": name, **container} for name in ("other", "web", "web")]
    status["podIP"], status["podIPs"] = "10.0.0.1", [{"ip": f"10.0.0.{n}"} for n in range(250)]
    status["hostIP"], status["hostIPs"] = "10.0.0.1", [{"ip": "10.0.0.1"}] * 250


def huge(_path: str, value: Json) -> None:
    """Report a status of a megabyte."""
    value["status"]["message"] = "x" * MEGABYTE


def impossible(_path: str, value: Json) -> None:
    """Report what no API server accepts."""
    value["status"]["startTime"] = "soon"


async def test_the_status_of_a_pod_that_a_peer_makes_up_is_bounded(pair: Pair) -> None:
    """PEER-11: of long texts and lists, the home keeps what a pod can have, and no address."""
    pair.liar.tell(of_pods(swollen))
    await pair.both.home.create(PODS, placed(SPACE, "swollen"), SPACE)
    found = await pair.both.pod("swollen", SPACE)
    status = found["status"]
    assert [each["name"] for each in status["containerStatuses"]] == ["web"]
    assert not status.keys() & {"podIP", "podIPs", "hostIP", "hostIPs"}
    assert status["message"] == "x" * 1024
    assert len(status["conditions"]) <= 64
    assert max(len(each.get("message", "")) for each in status["conditions"]) == 1024
    pair.liar.tell()


@pytest.mark.parametrize(("lie", "words"), [(huge, "a pod of more than 256 KiB"), (impossible, "is refused: .*soon")])
async def test_a_status_that_cannot_be_shown_is_reported_and_holds_no_other_pod_up(
    pair: Pair, lie: Lie, words: str
) -> None:
    """PEER-11: an event says why; other pods run, and this one as soon as the peer is honest."""
    name = lie.__name__
    pair.liar.tell(of_pods(lambda path, value: lie(path, value) if value["metadata"].get("name") == name else None))
    for each in (name, f"beside-{name}"):
        await pair.both.home.create(PODS, placed(SPACE, each), SPACE)
    await pair.both.pod(f"beside-{name}", SPACE)

    notes: list[str] = []

    async def is_told() -> bool:
        events = await pair.both.home.list(EVENTS, SPACE)
        notes[:] = [each.get("note", "") for each in events if each["regarding"]["name"] == name]
        return any(re.search(words, each) for each in notes)

    await until(is_told, "an event says why", seen=lambda: notes)
    assert (await pair.both.home.get(PODS, name, SPACE))["status"]["phase"] == "Pending"
    pair.liar.tell()
    # A change there, because what has the same resourceVersion is not read again.
    await pair.both.peer.patch(PODS, name, {"metadata": {"annotations": {"example.com/honest": "true"}}}, pair.there)
    await pair.both.pod(name, SPACE)


async def test_an_offer_and_labels_that_are_made_up_change_no_node(pair: Pair) -> None:
    """PEER-22, PEER-14: amounts that cannot be, and labels that name another node, are left out."""
    before = await pair.node()

    def offer(_path: str, value: Json) -> None:
        if OFFER_KEY in (value.get("data") or {}):
            value["data"][OFFER_KEY] = f'{{"hard": {{"cpu": "1e{"9" * 15}", "memory": "-1"}}}}'

    marks = "kubernetes.io/hostname=node-1,tenantry.dev/tenant=acme,node-role.kubernetes.io/control-plane=,a=b\x1b[2J"

    pair.liar.tell(offer, of_namespaces("annotations", PROPOSED_LABELS, marks))
    try:

        async def are_told() -> bool:
            return pair.liar.told > 4

        await until(are_told, "the home has asked several times")
        await until(pair.is_used, "the peer is used")
        after = await pair.node()
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert after["status"]["capacity"] == before["status"]["capacity"]
    finally:
        pair.liar.tell()

"""Nodes that are shown before pods run on them: those of a choice, and no others without pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import SLICE
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node
from tenantry.controllers import watched
from tenantry.controllers.virtualcontrolplane.slicenodes import SliceNodes
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import cachedpods, nodes, shownnodes
from tenantry.mirror.nodenames import LowerNode
from tenantry.mirror.shownnodes import ShownNodes
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES, PODS
from tenantry.mirror.uppernodes import UpperNodes
from testkit.mirroring import PROFILE, upper_pod
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

RACKS = {
    name: LowerNode(name=name, uid=f"u-{name}", hostname=name, allocatable={"cpu": "8"})
    for name in ("rack-1", "rack-2", "rack-3")
}
NAMES = {name: nodes.upper_name(PROFILE.owner_uid, name, each.uid) for name, each in RACKS.items()}


class _Choice:
    """The chosen nodes, as the test says."""

    def __init__(self) -> None:
        self.now: set[str] = set()

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """Return none."""
        assert keys() == [shownnodes.KEY]
        return []

    def names(self) -> Collection[str]:
        """Return them."""
        return self.now


async def _node(name: str) -> Json:
    return {"metadata": {"name": name}, "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}}


async def _not_noticed(addresses: Sequence[str]) -> None:
    """Do nothing."""


class _Pods:
    """Holds the watch of the upper pods."""

    name = "pods"
    kind = cachedpods.CachedPod

    def watches(self) -> list[Watch]:
        """Return it."""
        return [Watch(resource=PODS, decode=cachedpods.decoder(PROFILE.prefix), keys=lambda _: ())]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


def test_chosen_nodes_are_there_and_others_go_once_no_pod_runs_there() -> None:
    """H07: also one whose host node is gone; one that users delete comes back; no choice changes nothing."""
    upper, choice, racks = World(), _Choice(), dict(RACKS)
    upper.create(Namespace(metadata=ObjectMeta(name="shop")))
    upper.put_in(NODES, {"metadata": {"name": "mine"}, "status": {"addresses": []}})
    pod = upper_pod(nodeName=NAMES["rack-1"])
    upper.put_in(PODS, {**pod, "status": {"phase": "Running"}})
    below = WorldCluster(World(), [])
    cluster = WorldCluster(upper, [_Pods()])
    side = LowerSide(cluster=below, writer=below.writer, node=_node, nodes=racks, reason="Refused")
    shown = ShownNodes(UpperNodes(PROFILE, cluster, side, _not_noticed), choice)
    cluster.lane.controllers[shown.name] = shown
    for watch in shown.watches():
        cluster.listen(cluster.lane.listener(shown.name, watch))

    def names(seconds: float = 60.0) -> set[str]:
        cluster.wake(ShownNodes, shownnodes.KEY)
        cluster.settle(seconds)
        return {each["metadata"]["name"] for each in upper.list(NODES)} - {"mine"}

    assert names() == set()
    choice.now = {"rack-1", "rack-2"}
    assert names() == {NAMES["rack-1"], NAMES["rack-2"]}
    upper.delete(NODES, NAMES["rack-2"])
    assert names() == {NAMES["rack-1"], NAMES["rack-2"]}
    choice.now = {"rack-3"}
    assert names(0.0) == {NAMES["rack-1"], NAMES["rack-3"]}, "a pod runs on the first"
    upper.patch(PODS, f"shop/{pod['metadata']['name']}", {"status": {"phase": "Succeeded"}})
    assert names() == {NAMES["rack-3"]}
    choice.now = {"rack-1"}
    del racks["rack-3"]
    assert names() == {NAMES["rack-1"]}
    choice.now = set()
    assert names() == {NAMES["rack-1"]}
    assert [each["metadata"]["name"] for each in upper.list(NODES) if each["metadata"]["name"] == "mine"] == ["mine"]


class _Home:
    """Holds the watches of the host."""

    name = "home"
    kind = Namespace

    def watches(self) -> list[Watch]:
        """Return them."""
        return [watched.watch(Namespace.resource, lambda _: ()), watched.nodes(lambda _: ())]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


def test_the_nodes_of_the_slice_of_the_namespace_are_chosen() -> None:
    """H07: none for a namespace without a slice, where every node without one would match."""
    host = World()
    for name, labels in (("acme", {SLICE: "acme-web"}), ("plain", {})):
        host.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    for name, labels in (("a", {SLICE: "acme-web"}), ("b", {SLICE: "acme-web"}), ("c", {SLICE: "other"}), ("d", {})):
        host.create(Node(metadata=ObjectMeta(name=name, labels=labels)))
    home = WorldCluster(host, [_Home()])
    assert set(SliceNodes("acme", home).names()) == {"a", "b"}
    assert set(SliceNodes("plain", home).names()) == set()
    assert set(SliceNodes("gone", home).names()) == set()

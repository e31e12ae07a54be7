"""What the quota has left: of the host's ResourceQuotas, for nodes and in the ConfigMap inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.model import ObjectMeta
from tenantry.controllers.virtualcontrolplane import remainder
from tenantry.engine.cluster import Watch
from tenantry.engine.observed import ObservedQuota, observe
from tenantry.mirror import cachedpods, nodes, nodesizes
from tenantry.mirror.nodenames import LowerNode
from tenantry.mirror.nodesizes import NodeSizes
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES, PODS
from tenantry.mirror.uppernodes import UpperNodes
from testkit.mirroring import PROFILE, upper_pod
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

RACKS = {
    name: LowerNode(name=name, uid=f"u-{name}", hostname=name, allocatable={"cpu": "8", "memory": "16Gi"})
    for name in ("rack-1", "rack-2")
}
NAMES = {name: nodes.upper_name(PROFILE.owner_uid, name, each.uid) for name, each in RACKS.items()}


def quota(hard: Json, used: Json, *, in_force: Json | None = None, **spec: object) -> ObservedQuota:
    """Return a ResourceQuota as it is cached."""
    status = {"hard": hard if in_force is None else in_force, "used": used}
    meta = {"name": "tenantry", "namespace": "acme", "resourceVersion": "1"}
    found = {"metadata": meta, "spec": {"hard": hard, **spec}, "status": status}
    seen = observe(ResourceQuota.resource, msgspec.json.encode(found))
    assert isinstance(seen, ObservedQuota)
    return seen


def test_the_least_of_all_quotas_is_left() -> None:
    found = remainder.remaining(
        [
            quota({"requests.cpu": "4", "limits.cpu": "8", "pods": "20"}, {"requests.cpu": "500m", "pods": "3"}),
            quota({"cpu": "2", "requests.cpu": "3", "count/pods": "5"}, {"requests.cpu": "3500m", "count/pods": "1"}),
            quota({"requests.memory": "1Gi", "services": "5"}, {}),
            quota({"pods": "1"}, {"pods": "1"}, scopes=["BestEffort"]),
            quota({"pods": "1"}, {"pods": "1"}, scopeSelector={"matchExpressions": []}),
            quota({"requests.storage": "1Gi"}, {}, in_force={}),
        ]
    )
    assert found == {
        "requests.cpu": Fraction(-1, 2),
        "limits.cpu": 8,
        "pods": 17,
        "cpu": 2,
        "count/pods": 4,
        "requests.memory": 2**30,
        "services": 5,
        "requests.storage": 2**30,
    }
    assert remainder.by_resource(found) == {"cpu": Fraction(-1, 2), "pods": 4, "memory": 2**30, "storage": 2**30}
    text = remainder.config_map(found)["data"]["remaining"]
    assert text.splitlines()[0] == "count/pods: '4'"
    assert "requests.cpu: '0'" in text
    assert "requests.memory: '1Gi'" in text


class _Bounds:
    """What pods may still take, as the test says."""

    def __init__(self) -> None:
        self.now: dict[str, Fraction] = {}

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """Return none."""
        assert keys() == [nodesizes.KEY]
        return []

    async def left(self) -> Mapping[str, Fraction]:
        """Return it."""
        return self.now


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


async def _not_noticed(addresses: Sequence[str]) -> None:
    """Do nothing."""


def node(name: str, **allocatable: str) -> Json:
    """Return an upper Node."""
    status = {"capacity": {"cpu": "8"}, "allocatable": allocatable}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


async def test_nodes_have_what_is_left_and_come_back() -> None:
    """Own pods count on their node; Nodes of users stay; what users write goes; equal amounts are not written."""
    upper, bounds = World(), _Bounds()
    upper.create(Namespace(metadata=ObjectMeta(name="shop")))
    for name in NAMES.values():
        upper.put_in(NODES, node(name, cpu="8", memory="16Gi"))
    upper.put_in(NODES, node("rack-1", cpu="64"))
    pod = upper_pod(nodeName=NAMES["rack-1"], containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}])
    upper.put_in(PODS, pod)
    above = WorldCluster(upper, [])
    side = LowerSide(cluster=above, writer=above.writer, node=_no_node, nodes=RACKS, reason="Refused")
    own = UpperNodes(PROFILE, above, side, _not_noticed)
    controller = NodeSizes(above, side, own, bounds)
    decode = cachedpods.decoder(PROFILE.prefix)
    above.listen(above.lane.listener("pods", Watch(resource=PODS, decode=decode, keys=lambda _: ())))
    for watch in controller.watches():
        above.listen(above.lane.listener(controller.name, watch))

    async def sizes() -> list[Json]:
        above.manual_clock.advance(nodesizes.PAUSE_SECONDS)
        above.look()
        assert await controller.reconcile(above, nodesizes.KEY, 1) is None
        return [upper.get(NODES, name)["status"]["allocatable"] for name in (*NAMES.values(), "rack-1")]

    everything = {"cpu": "8", "memory": "16Gi"}
    assert await sizes() == [everything, everything, {"cpu": "64"}]
    bounds.now = {"cpu": Fraction(1, 2), "memory": Fraction(2**30), "pods": Fraction(7)}
    wanted = [{"cpu": "1500m", "memory": "1Gi"}, {"cpu": "500m", "memory": "1Gi"}, {"cpu": "64"}]
    assert await sizes() == wanted
    revision = upper.revision
    assert await sizes() == wanted
    assert upper.revision == revision
    assert 0 < (await controller.reconcile(above, nodesizes.KEY, 1) or 0) <= nodesizes.PAUSE_SECONDS

    upper.patch(NODES, NAMES["rack-2"], {"status": {"allocatable": {"cpu": "99"}}})
    assert await sizes() == wanted
    bounds.now = {"cpu": Fraction(-1)}
    assert await sizes() == [{"cpu": "1", "memory": "16Gi"}, {"cpu": "0", "memory": "16Gi"}, {"cpu": "64"}]

"""The destinations of a control plane: its own pods and nodes, whatever users write into Nodes and pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tenantry.api.contribution import PREFIX as CONTRIBUTED
from tenantry.controllers.virtualcontrolplane.destinations import BY_ADDRESS, Destinations, addresses_of
from tenantry.engine.cache import Cache
from tenantry.hosting.destinations import Destination, Direct, Kubelet, Refused
from tenantry.mirror import nodes
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES, Thing
from tenantry.mirror.uppernodes import UpperNodes
from testkit.mirroring import PROFILE
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

ADDRESS = "10.1.0.7"


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


async def _not_noticed(addresses: Sequence[str]) -> None:
    """Do nothing."""


def rule(*pods: Thing, upper: Sequence[Json] = ()) -> Destinations:
    """Return the rule of a control plane with these lower pods and upper nodes."""
    world = World()
    for each in upper:
        world.put_in(NODES, each)
    cluster = WorldCluster(world, [])
    side = LowerSide(cluster=cluster, writer=cluster.writer, node=_no_node, reason="Refused")
    own = UpperNodes(PROFILE, cluster, side, _not_noticed)
    cluster.listen(cluster.lane.listener("nodes", own.watch()))
    lower: Cache[Thing] = Cache({BY_ADDRESS: addresses_of})
    for pod in pods:
        lower.put(pod)
    return Destinations(PROFILE, Cache[Thing](), lower, own)


def pod(name: str = "web", *, namespace: str = PROFILE.namespace, owner: str = PROFILE.owner_uid, **spec: Any) -> Thing:  # noqa: ANN401 - any field
    """Return a running lower pod."""
    labels = {PROFILE.mark("owner"): owner}
    found = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
        "status": {"phase": "Running", "podIPs": [{"ip": ADDRESS}]},
    }
    return Thing(f"{namespace}/{name}", 1, found)


def node(name: str, address: str) -> Json:
    """Return an upper Node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


OWN = str(nodes.ADDRESSES.network_address + 9)


@pytest.mark.parametrize(
    ("found", "host", "port", "wanted"),
    [
        (rule(pod()), ADDRESS, 443, Direct(address=ADDRESS, port=443)),
        (rule(), ADDRESS, 443, Refused),
        (rule(pod(owner="u-other")), ADDRESS, 443, Refused),
        # Its address may be a new one of the other pod, or a lie.
        (rule(pod(), pod("db", owner="u-other")), ADDRESS, 443, Refused),
        # The owners of another namespace write marks there.
        (rule(pod(namespace="elsewhere")), ADDRESS, 443, Refused),
        (rule(pod(hostNetwork=True)), ADDRESS, 443, Refused),
        (rule(pod(nodeName=f"{CONTRIBUTED}1")), ADDRESS, 443, Refused),
        (rule(upper=[node("a", OWN)]), OWN, 10250, Kubelet(node="a")),
        (rule(upper=[node("a", OWN)]), OWN, 22, Refused),
        (rule(upper=[node("a", "127.0.0.1")]), "127.0.0.1", 10250, Refused),
        (rule(upper=[node("a", "x,DNS:y")]), "x,DNS:y", 10250, Refused),
        (rule(upper=[node("a", "")]), "", 10250, Refused),
    ],
)
def test_destinations(found: Destinations, host: str, port: int, wanted: Destination | type[Refused]) -> None:
    destination = found.decide(host, port)
    assert destination == wanted if not isinstance(wanted, type) else isinstance(destination, wanted)

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
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES
from tenantry.mirror.uppernodes import UpperNodes
from testkit.mirroring import PROFILE, cached
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

ADDRESS = "10.1.0.7"


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


async def _not_noticed(addresses: Sequence[str]) -> None:
    """Do nothing."""


def rule(*pods: CachedPod, upper: Sequence[Json] = ()) -> Destinations:
    """Return the rule of a control plane with these lower pods and upper nodes."""
    world = World()
    for each in upper:
        world.put_in(NODES, each)
    cluster = WorldCluster(world, [])
    side = LowerSide(cluster=cluster, writer=cluster.writer, node=_no_node, nodes={}, reason="Refused")
    own = UpperNodes(PROFILE, cluster, side, _not_noticed)
    cluster.listen(cluster.lane.listener("nodes", own.watch()))
    lower: Cache[CachedPod] = Cache({BY_ADDRESS: addresses_of})
    for pod in pods:
        lower.put(pod)
    return Destinations(PROFILE, Cache[CachedPod](), lower, own)


def pod(
    name: str = "web", *, namespace: str = PROFILE.namespace, owner: str = PROFILE.owner_uid, **spec: object
) -> CachedPod:
    """Return a running lower pod."""
    labels = {PROFILE.mark("owner"): owner}
    found = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
        "status": {"phase": "Running", "podIPs": [{"ip": ADDRESS}]},
    }
    return cached(found)


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


@pytest.mark.parametrize(
    "host", ["198.18.0.2", "169.254.169.254", "127.0.0.1", "10.96.0.1", "kubernetes.default", "::1"]
)
def test_nothing_else_is_reached(host: str) -> None:
    """H01: metadata, loopback, Services, names: whatever the control plane is told to connect to."""
    assert isinstance(rule(pod()).decide(host, 443), Refused)


def test_a_stream_goes_to_the_mirrored_pod_of_that_node_only() -> None:
    """H01: not to a pod that has no lower one, is on another node, or is of an earlier pod of the name."""
    above: Cache[CachedPod] = Cache()
    below: Cache[CachedPod] = Cache({BY_ADDRESS: addresses_of})
    for name in ("mine", "late", "old"):
        meta = {"namespace": "default", "name": name, "uid": f"u-{name}"}
        above.put(cached({"metadata": meta, "spec": {"nodeName": "node-1"}}))
    for name, uid in (("mine", "u-mine"), ("old", "u-older")):
        lower = PROFILE.lower_name("Pod", "default", name)
        meta = {"namespace": PROFILE.namespace, "name": lower, "annotations": {PROFILE.mark("uid"): uid}}
        below.put(cached({"metadata": meta}))
    found = rule()
    found = Destinations(PROFILE, above, below, found._nodes)  # pyright: ignore[reportPrivateUsage]
    assert found.locate("default", "mine", "node-1") == (
        PROFILE.namespace,
        PROFILE.lower_name("Pod", "default", "mine"),
    )
    for namespace, name, node_ in (
        ("default", "mine", "node-2"),
        ("default", "late", "node-1"),
        ("default", "old", "node-1"),
        ("default", "theirs", "node-1"),
        ("other", "mine", "node-1"),
    ):
        assert found.locate(namespace, name, node_) is None

"""What no gate dials: the host's nodes, API servers, Services and pods, as they are now; and spec.egress as a rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import NODE_ADDRESSES
from tenantry.api.node import Node
from tenantry.api.planeegress import PlaneEgress
from tenantry.api.tenancydefaults import NAME, TenancyDefaults
from tenantry.controllers.virtualcontrolplane.destinations import Destinations
from tenantry.controllers.virtualcontrolplane.egress import ENDPOINT_SLICES, SERVICE_CIDRS, HostRanges, rule
from tenantry.engine.cache import Cache
from tenantry.hosting.destinations import Refused
from tenantry.hosting.heads import HttpRefusal
from tenantry.hosting.outside import networks
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.endpoints import BY_ADDRESS, addresses_of
from tenantry.mirror.kinds.services import addresses
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import Thing
from tenantry.mirror.uppernodes import UpperNodes
from testkit.mirroring import PROFILE
from testkit.model import Json, World
from testkit.worldcluster import WorldCluster


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


async def _not_noticed(addresses: Sequence[str]) -> None:
    """Do nothing."""


def destinations() -> Destinations:
    """Return the rule of a control plane without pods, nodes and spec.egress."""
    cluster = WorldCluster(World(), [])
    side = LowerSide(cluster=cluster, writer=cluster.writer, node=_no_node, nodes={}, reason="Refused")
    pods: Cache[CachedPod] = Cache({BY_ADDRESS: addresses_of})
    services: Cache[Thing] = Cache({BY_ADDRESS: addresses})
    nodes = UpperNodes(PROFILE, cluster, side, _not_noticed)
    return Destinations(PROFILE, Cache[CachedPod](), pods, services, nodes, lambda: rule(PlaneEgress(), ()))


OPEN = PlaneEgress(allowed_cidrs=("0.0.0.0/0", "10.0.0.0/8", "192.168.0.0/16"), allowed_hosts=("*.example.com",))


class Surrounded:
    """A host whose ranges are read.

    Args:
        world: Its objects.
        server: The URL of its API server.
    """

    def __init__(self, world: World, server: str = "https://192.168.5.5:6443") -> None:
        self._cluster = WorldCluster(world, [])
        self._ranges = HostRanges(server)
        for each in (*self._ranges.of_home(), *self._ranges.of_lower()):
            self._cluster.listen(self._cluster.lane.listener("ranges", each))

    def is_kept(self, address: str) -> bool:
        """Return whether an address is refused although everything is allowed."""
        self._cluster.settle(0)
        kept = self._ranges.networks(self._cluster, self._cluster)
        assert kept is self._ranges.networks(self._cluster, self._cluster), "computed once for each change"
        return bool(rule(OPEN, kept).refusal_of_host(address))


def _node(address: str, **more: Json) -> Json:
    addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": "n"}]
    return {
        "metadata": {"name": "n", **more},
        "spec": {"podCIDRs": ["10.2.0.0/24"]},
        "status": {"addresses": addresses},
    }


def _world() -> World:
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": "default"}})
    world.put_in(Node.resource, _node("192.168.1.1", annotations={NODE_ADDRESSES: "34.5.6.7"}))
    world.put_in(SERVICE_CIDRS, {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}})
    endpoints = [{"addresses": ["192.168.9.9"]}]
    world.put_in(ENDPOINT_SLICES, {"metadata": {"name": "kubernetes", "namespace": "default"}, "endpoints": endpoints})
    network = {"keptCidrs": ["192.168.77.0/24"]}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": NAME}, "spec": {"network": network}})
    return world


@pytest.mark.parametrize(
    "address",
    [
        "192.168.1.1",  # a node
        "34.5.6.7",  # an address of a node that an administrator has recorded
        "10.2.0.9",  # a pod
        "10.96.0.1",  # a Service
        "192.168.9.9",  # behind the Service of the API server
        "192.168.5.5",  # where the operator reaches it
        "192.168.77.7",  # of TenancyDefaults
    ],
)
def test_the_hosts_own_addresses_are_kept(address: str) -> None:
    """VCP-4: although spec.egress has them."""
    assert Surrounded(_world()).is_kept(address)
    assert not Surrounded(World(), "https://127.0.0.1:6443").is_kept(address)


def test_a_new_address_of_a_node_is_kept_at_once() -> None:
    world = _world()
    host = Surrounded(world)
    assert not host.is_kept("192.168.1.2")
    world.patch(Node.resource, "n", {"status": _node("192.168.1.2")["status"]})
    assert host.is_kept("192.168.1.2")


def test_what_is_not_a_cidr_opens_nothing() -> None:
    """An object of an earlier schema, or one that was changed in etcd."""
    egress = PlaneEgress(allowed_cidrs=("10.1.2.3", "x", "::ffff:10.0.0.0/104", "10.7.0.0/16"))
    assert rule(egress, ()).cidrs == networks(("10.7.0.0/16",))


def test_by_default_nothing_is_allowed_and_the_refusal_says_who_can() -> None:
    for host in ("hooks.example.com", "8.8.8.8"):
        assert rule(PlaneEgress(), ()).refusal_of_host(host).endswith("in spec.egress of the VirtualControlPlane")


def test_the_whole_refusal_of_a_long_address_reaches_the_user() -> None:
    """Go programs report only the phrase of a refused CONNECT, which is cut."""
    address = "2600:1111:2222:3333:4444:5555:6666:7777"
    reason = destinations().decide(address, 65535)
    assert isinstance(reason, Refused)
    phrase = HttpRefusal(403, reason.reason).response().partition(b"\r\n")[0]
    assert phrase.endswith(b"in spec.egress of the VirtualControlPlane")

"""The hosts outside of the cluster that the gates may reach: `spec.egress`, less what belongs to the host.

nodes, ServiceCIDRs, TenancyDefaults, API servers ─► HostRanges ─┐
VirtualControlPlane.spec.egress ─────────────────────────────────┴─► OutsideRule
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.planeegress import PlaneEgress
from tenantry.api.planenetwork import PlaneNetwork
from tenantry.api.tenancydefaults import NAME, TenancyDefaults
from tenantry.controllers import watched
from tenantry.controllers.virtualcontrolplane import servicenetwork
from tenantry.controllers.virtualcontrolplane.servicenetwork import ServiceNetwork
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.hosting.outside import OutsideRule, networks
from tenantry.mirror import things
from tenantry.mirror.shapes import items
from tenantry.mirror.things import Thing
from tenantry.world.addresses import Network, addresses_of, strict

SERVICE_CIDRS = Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", namespaced=False)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
_API_SERVERS = {"fieldSelector": "metadata.namespace=default,metadata.name=kubernetes"}

ADVICE = "an administrator of the host can allow it in spec.egress of the VirtualControlPlane"


def rule(egress: PlaneEgress, kept: tuple[Network, ...]) -> OutsideRule:
    """Return the rule of a control plane.

    Args:
        egress: Of its spec. What is not valid, as in an object of an earlier schema, opens nothing.
        kept: The ranges of the host.
    """
    cidrs = tuple(found for each in egress.allowed_cidrs if (found := strict(each)) is not None)
    issuers = (urlsplit(each).hostname or "" for each in egress.issuers)
    hosts = (*egress.allowed_hosts, *filter(None, issuers))
    return OutsideRule(cidrs=cidrs, hosts=hosts, kept=kept, advice=ADVICE)


class HostRanges:
    """The addresses of the host's nodes, API servers, Services and pods; computed when one of them has changed.

    Args:
        server: The URL at which the operator reaches the host's API server.
    """

    def __init__(self, server: str) -> None:
        self._server = urlsplit(server).hostname or ""
        self._found: tuple[Network, ...] | None = None

    def of_home(self) -> list[Watch]:
        """Return the watches of the cluster that the operator runs in."""
        return [watched.nodes(self._node_changed), watched.defaults(self._changed)]

    def of_lower(self) -> list[Watch]:
        """Return the watches of the cluster with the mirrored objects: the same API server, with caches of its own."""
        return [
            Watch(resource=SERVICE_CIDRS, decode=things.whole, keys=self._changed),
            Watch(resource=ENDPOINT_SLICES, decode=things.whole, keys=self._changed, selectors=_API_SERVERS),
        ]

    def networks(self, home: Cluster, lower: Cluster) -> tuple[Network, ...]:
        """Return the ranges.

        Args:
            home: Has the caches of `of_home`.
            lower: Has the caches of `of_lower`.
        """
        if self._found is None:
            self._found = networks(dict.fromkeys(self._read(home, lower)))
        return self._found

    def services(self, home: Cluster, lower: Cluster, network: PlaneNetwork) -> ServiceNetwork:
        """Return the addresses of Services inside of a control plane.

        Args:
            home: As for `networks`.
            lower: As for `networks`.
            network: Of its spec.
        """
        kept = self.networks(home, lower) if network.pod_range or network.service_range else ()
        return servicenetwork.of(network, lower.cache(SERVICE_CIDRS), kept)

    def _read(self, home: Cluster, lower: Cluster) -> Iterable[str]:
        yield self._server
        nodes: Cache[Node] = home.cache(Node.resource)
        for node in nodes:
            yield from _of_node(node)
        defaults: TenancyDefaults | None = home.cache(TenancyDefaults.resource).get(NAME)
        if defaults is not None:
            yield from defaults.spec.network.kept_cidrs
            yield from defaults.spec.network.dns_addresses
        service_cidrs: Cache[Thing] = lower.cache(SERVICE_CIDRS)
        for each in service_cidrs:
            yield from map(str, each.spec.get("cidrs") or ())
        slices: Cache[Thing] = lower.cache(ENDPOINT_SLICES)
        for each in slices:
            for endpoint in items(each.object, "endpoints"):
                yield from map(str, endpoint.get("addresses") or ())

    def _node_changed(self, change: Change[Node]) -> Iterable[str]:
        # Not for every heartbeat.
        before, after = change.before, change.after
        if before is None or after is None or _of_node(before) != _of_node(after):
            self._found = None
        return ()

    def _changed(self, change: object) -> Iterable[str]:  # noqa: ARG002 - any change
        self._found = None
        return ()


def _of_node(node: Node) -> frozenset[str]:
    return addresses_of(node) | {each for each in (node.spec.pod_cidr, *node.spec.pod_cidrs) if each}

"""Real nodes of this machine and the hosted control planes that they serve: what they run, and where they reach them.

    node ─► bridge address : internal port ─┬► the only process of the control plane
                                            └► port of nodes: endpoint proxy ─► any of several processes

At the port of users, the endpoint proxy wakes a control plane for each connection. Kubelets connect again and again: at
these ports, they find nothing while it sleeps. The kernel leads to the one or the other, so that kubelets and the
Service `kubernetes`, whose endpoint the first process writes, keep their address when the number of processes changes.
"""

from __future__ import annotations

import functools
import ipaddress

from msgspec.structs import replace

from tenantry.api.errors import LocalError
from tenantry.hosting import plane as hosting
from tenantry.hosting.noderuntime import STORAGE_USER, NodeEndpoint, NodeRuntime
from tenantry.hosting.plane import HostedPlane
from tenantry.local import build, components, hostedfolders
from tenantry.local.hostedprocess import HostedProcess
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import addons, planebridges, volumes
from tenantry.local.real.planebridges import ClusterNames
from tenantry.local.real.settings import coredns_image
from tenantry.local.spec import read_spec
from tenantry.world.addresses import is_overlapping

_DNS = 10
"""Which address of the range of Services CoreDNS has inside."""


def runtime(paths: ClusterPaths) -> NodeRuntime | None:
    """Return what the real nodes of a cluster can run; None if it has none."""
    spec = read_spec(paths)
    if spec is None or spec.real is None:
        return None
    return NodeRuntime(
        handlers=addons.RUNTIMES,
        dns_image=_dns_image(),
        storage_class=volumes.CLASS,
        provisioner=volumes.PROVISIONER,
        storage_user=STORAGE_USER,
    )


@functools.cache
def _dns_image() -> str:
    """Return the image of CoreDNS that nodes have; "" for none. Once, because its name is a digest of its sources."""
    dns = build.built(build.DNS)
    return coredns_image(dns.folder.name) if dns is not None else ""


def reached(paths: ClusterPaths, plane: HostedPlane) -> HostedPlane:
    """Return a control plane with the address of its bridge, at which real nodes reach it; its bridge is laid.

    Raises:
        LocalError: No addresses are free, its ranges cannot be those of real nodes, or the kernel refuses.
    """
    if not plane.has_nodes:
        return plane
    services = ipaddress.ip_network(plane.service_range.partition(",")[0])
    cluster = ClusterNames(dns=str(services[_DNS]), domain=plane.domain)
    bridge = planebridges.ensure(paths, hostedfolders.of(paths, plane.uid), cluster, plane.pod_range)
    if bridge is None:
        return plane
    addresses = bridge.addresses
    if is_overlapping(services, ipaddress.ip_network(addresses.whole)):
        raise LocalError(
            f"spec.network.serviceRange {services} must not overlap {addresses.whole}, which the nodes of this cluster"
            " and their pods have: choose another range; the field does not change, so create another object"
        )
    # Each machine has its range of pods already.
    return replace(plane, advertised=addresses.bridge, names=(*plane.names, addresses.bridge), pod_range="")


def endpoint(paths: ClusterPaths, uid: str, process: HostedProcess) -> NodeEndpoint:
    """Let nodes reach the processes of a control plane, and return where.

    Without real nodes, this is loopback: what has a token can join from this machine.

    Args:
        paths: The cluster's.
        uid: The uid of the control plane.
        process: How it runs.

    Raises:
        LocalError: The kernel refuses.
        OSError: Its authorities cannot be read.
    """
    own = ClusterPaths(hostedfolders.of(paths, uid))
    bridge = planebridges.admit(own.folder, process.internal, process.of_any)
    server = (
        f"https://{components.LOOPBACK}:{process.of_any or process.internal}"
        if bridge is None
        else f"https://{bridge.addresses.bridge}:{process.internal}"
    )
    return NodeEndpoint(server=server, ca=(own.pki / hosting.TRUSTED).read_text())

"""Where the outgoing connections of a control plane with nodes of its own may go: pure.

    10.113.1.2:10250   kubelet of a machine that was handed over     admitted
    10.113.2.7:8443    in the range of the pods of that machine      admitted: webhooks, APIServices, proxies
    192.0.0.8:443      where nodes open their tunnels                admitted: the gate plays it (nodetunnels.py)
    anything else      a Node, a Service or an EndpointSlice inside  refused, unless spec.egress allows it

An address of a machine from outside leads through the tunnel of this machine, and is never dialled here: its owner has
written it. Without a tunnel, it is refused, unless an administrator allows the address in spec.egress.

The NodeHandovers of the host name the machines. An address inside is a text of administrators who are not trusted: it
is never a reason to dial it. Simulated nodes have no network.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

import msgspec
from msgspec import UNSET

from tenantry.api.nodehandover import HandoverStage, NodeHandover
from tenantry.controllers.virtualcontrolplane.destinations import beyond
from tenantry.hosting import tunnelapi
from tenantry.hosting.destinations import Destination, Direct, Refused, TunnelEntry, Tunnelled
from tenantry.hosting.outside import OutsideRule, canonical
from tenantry.mirror.nodes import KUBELET_PORT
from tenantry.world.addresses import Network, strict

_THERE = frozenset({HandoverStage.JOINING, HandoverStage.JOINED, HandoverStage.RETURNING})
"""The stages in which a machine runs for its control plane. Before and after, it is wiped, or the host's."""

_LACKS = "is not an address of this cluster that can be reached: neither a kubelet nor a pod of one of its machines"


class OwnMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that runs for a control plane.

    Args:
        name: The name of its node.
        addresses: Its addresses.
        pods: The range of its pods; None for none.
        is_outside: It is from outside of the host's networks.
    """

    name: str
    addresses: frozenset[str]
    pods: Network | None
    is_outside: bool = False


def machines(handovers: Iterable[NodeHandover], uid: str) -> list[OwnMachine]:
    """Return the machines that run for a control plane.

    Args:
        handovers: All of them.
        uid: The uid of the VirtualControlPlane.
    """
    own = (each for each in handovers if each.spec.plane.uid == uid and each.status.stage in _THERE)
    found = [
        OwnMachine(
            name=each.metadata.name,
            addresses=frozenset(filter(_is_of_a_machine, each.status.addresses)),
            pods=strict(each.status.pod_range),
            is_outside=each.spec.contributed is not UNSET,
        )
        for each in own
    ]
    # Those of the host first: no entry of a tenant takes an address of theirs.
    return sorted(found, key=lambda each: (each.is_outside, each.name))


def _is_of_a_machine(address: str) -> bool:
    found = canonical(address)
    return found is not None and not (found.is_loopback or found.is_link_local or found.is_unspecified)


def of_own_nodes(
    outside: Callable[[], OutsideRule],
    known: Callable[[], Iterable[OwnMachine]],
    has_tunnel: Callable[[str], bool] = lambda _: False,
) -> Callable[[str, int], Destination]:
    """Return the rule of a control plane with nodes of its own.

    Args:
        outside: Returns the rule for hosts outside of the cluster.
        known: Returns its machines.
        has_tunnel: Returns whether the tunnel of a node is open.
    """

    def led(machine: OwnMachine, host: str, address: str, port: int) -> Destination:
        if not machine.is_outside:
            return Direct(address=address, port=port)
        if has_tunnel(machine.name):
            return Tunnelled(node=machine.name, address=address, port=port)
        lacks = f"is of node {machine.name}, whose tunnel is not open: does `tenantry node-tunnel` run there?"
        return beyond(host, port, outside(), lacks)

    def decide(host: str, port: int) -> Destination:
        if (host, port) == (tunnelapi.ADDRESS, tunnelapi.PORT):
            return TunnelEntry()
        address = canonical(host)
        for each in known() if address is not None else ():
            if str(address) in each.addresses:
                if port == KUBELET_PORT:
                    return led(each, host, str(address), port)
                return Refused(reason=f"{host}:{port} is a node, of which only the kubelet is reached")
            if each.pods is not None and address is not None and ipaddress.ip_address(address) in each.pods:
                return led(each, host, str(address), port)
        return beyond(host, port, outside(), _LACKS)

    return decide

"""Which addresses of pods the agent believes: a kubelet reports them, so its report is input (E19, H06). Pure.

A pod that has the address of another tenant's pod takes over its NetworkPolicies, and a pod that has the address of a
node lets others reach the node. So an address counts only if the record of the pod's node allows it::

    the node has ranges            inside of them, and not the node's own address there
    a contributed node without     none: the operator or Kubernetes gives it ranges
    another node without           none of other nodes' ranges, and no address of a node

The ranges are `Node.spec.podCIDRs`, which the policy `tenantry-contributed-nodes` keeps every kubelet from writing.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from tenantry.api.contribution import is_contributed
from tenantry.world.addresses import gateways
from tenantry.world.netpol import blocks
from tenantry.world.netpol.objects import NetworkState, NodeRecord, PodEndpoint


class AddressRanges:
    """Ranges of both families, for fast look-ups."""

    def __init__(self, cidrs: Iterable[str]) -> None:
        found: dict[int, list[blocks.Range]] = {4: [], 6: []}
        for cidr in cidrs:
            # An administrator's annotation may hold anything.
            with suppress(ValueError):
                family, own = blocks.addresses(cidr)
                found[family].append(own)
        self._ranges = {family: blocks.merged(ranges) for family, ranges in found.items()}

    def has(self, address: str) -> bool:
        """Return whether an address is in one of the ranges."""
        family, number = _number(address)
        ranges = self._ranges[family]
        at = bisect_right(ranges, (number, 1 << 128)) - 1
        return at >= 0 and number <= ranges[at][1]


class AddressRecords:
    """The records of all nodes."""

    def __init__(self, nodes: Iterable[NodeRecord]) -> None:
        known = list(nodes)
        self._own = {
            node.key: (AddressRanges(node.ranges), AddressRanges(map(gateways, node.ranges)))
            for node in known
            if node.ranges
        }
        self._taken = AddressRanges(cidr for node in known for cidr in (*node.ranges, *node.addresses))

    def admits(self, node: str, address: str) -> bool:
        """Return whether a pod of a node may have an address."""
        own = self._own.get(node)
        if own is not None:
            inside, gateway = own
            return inside.has(address) and not gateway.has(address)
        return not is_contributed(node) and not self._taken.has(address)


def foreign(world: NetworkState) -> list[tuple[PodEndpoint, str]]:
    """Return the addresses that do not count, each with the pod that has it, sorted."""
    records = AddressRecords(world.nodes)
    found = ((pod, each) for pod in world.pods for each in pod.addresses if not records.admits(pod.node, each))
    return sorted(found, key=lambda each: (each[0].key, each[1]))


# Every table looks up the same addresses again.
@lru_cache(maxsize=65_536)
def _number(address: str) -> tuple[int, int]:
    parsed = ipaddress.ip_address(address)
    return parsed.version, int(parsed)

"""A control plane with nodes of its own: where its connections may go, and what follows it. The glue.

    NodeHandovers of the host ─► JoinController ─► Nodes inside
    connection of the API server ─► decide ─► refused, or a host that administrators allow

A simulated node has no kubelet, and its pods have no network. An address that a Node, a pod or a Service inside names
is a text that administrators inside have written: none of them is ever dialled.
"""

from __future__ import annotations

from collections.abc import Callable

from tenantry.controllers.virtualcontrolplane.destinations import beyond
from tenantry.hosting.destinations import Destination
from tenantry.hosting.outside import OutsideRule

_LACKS = "is not an address of this cluster that can be reached: its nodes are simulated, and have no network"


def rule_of(outside: Callable[[], OutsideRule]) -> Callable[[str, int], Destination]:
    """Return what the gate asks.

    Args:
        outside: Returns the rule for hosts outside of the cluster.
    """

    def decide(host: str, port: int) -> Destination:
        return beyond(host, port, outside(), _LACKS)

    return decide

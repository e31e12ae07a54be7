"""The bandwidth of a node among its extended resources, so that the scheduler divides it (E09): pure.

The labels `tenantry.dev/ingress-mbps` and `tenantry.dev/egress-mbps` set the bandwidth of a node (default:
`DEFAULT_MBPS`). Source: Kubernetes, "Advertise Extended Resources for a Node".
"""

from __future__ import annotations

from tenantry.api.marks import EGRESS_MBPS, INGRESS_MBPS
from tenantry.api.node import Node
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.world.quantity import parse

DEFAULT_MBPS = "10000"
"""The bandwidth of a node without labels, in megabits a second and in each direction."""


def missing(node: Node) -> dict[str, str]:
    """Return what a node should advertise and does not: resource to whole megabits a second."""
    wanted: dict[str, str] = {}
    for resource in (INGRESS_MBPS, EGRESS_MBPS):
        said = node.metadata.labels.get(resource, "")
        wanted[resource] = said if said.isascii() and said.isdigit() else DEFAULT_MBPS
    has = node.status.capacity
    # The API server writes quantities in its own way: 10000 is 10k.
    return {key: mbps for key, mbps in wanted.items() if key not in has or parse(has[key]) != parse(mbps)}


def plan(node: Node) -> Plan:
    """Return the write by which a node advertises its bandwidth."""
    lacks = missing(node)
    if not lacks:
        return Plan()
    # kubelet derives allocatable from capacity some time later, and a simulated node never does.
    body = {"status": {"capacity": lacks, "allocatable": lacks}}
    asked = request.patch(Node.resource, "", node.metadata.name, body, subresource="status")
    return Plan(writes=(DirectWrite(request=asked),))

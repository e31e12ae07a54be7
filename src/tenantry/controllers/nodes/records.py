"""Whether the addresses of a node are recorded, as a condition of the Node (H06): pure.

The operator keeps tenants' pods away from the addresses of nodes, and our NetworkPolicy agent believes a pod's address
only within the range of its node. Without a range, both depend on what the kubelet reports. The condition shows that::

    podCIDRs, or the annotation `tenantry.dev/node-addresses`    True, if the condition was False before
    a contributed node, and one that stands for a peer           none: policies hold it to its record
    any other node                                               False; the message says what an administrator sets

A node that always had a record has no condition: most clusters need no write.
"""

from __future__ import annotations

import datetime as dt

from tenantry.api import reasons
from tenantry.api.contribution import is_contributed
from tenantry.api.marks import NODE_ADDRESSES
from tenantry.api.node import Node, NodeCondition
from tenantry.api.peercluster import PEER
from tenantry.controllers import nodecondition
from tenantry.engine.plan import Plan

CONDITION = "TenantryAddressesRecorded"

_MISSING = (
    "spec.podCIDRs is empty, so tenants are not kept from the gateway of its pods, and its kubelet may report any"
    f" address for them: let Kubernetes assign podCIDRs, or set the annotation {NODE_ADDRESSES} to the node's own"
    " addresses in the network of its pods"
)
_PRESENT = "the addresses of the node are recorded"


def plan(node: Node, now: dt.datetime) -> Plan:
    """Return the write by which a node says whether its addresses are recorded."""
    # What runs at a peer has no address here.
    is_judged = not is_contributed(node.metadata.name) and PEER not in node.metadata.labels
    return Plan() if not is_judged else nodecondition.plan(node, _wanted(node), now)


def _wanted(node: Node) -> NodeCondition:
    if node.spec.pod_cidrs or node.metadata.annotations.get(NODE_ADDRESSES, ""):
        return NodeCondition(type=CONDITION, status="True", reason=reasons.ADDRESSES_RECORDED, message=_PRESENT)
    return NodeCondition(type=CONDITION, status="False", reason=reasons.NO_RECORD, message=_MISSING)

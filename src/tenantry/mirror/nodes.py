"""The nodes of the upper side: a Node for each lower node that a pod runs on, under a name of its own. Pure.

An upper Node is a fact, not a member: no program renews its lease, and its address leads to the gate, which plays its
kubelet. Its size is the lower node's.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection

from tenantry.api.model import Json
from tenantry.mirror.shapes import items, part

ADDRESSES = ipaddress.IPv4Network("198.18.0.0/15")
"""The addresses of upper nodes, of the range for benchmarks (RFC 2544): no machine has them."""

KUBELET_PORT = 10250
NOT_READY = "node.kubernetes.io/not-ready"
"""The taint that keeps pods of DaemonSets from a new node (Kubernetes: "Admission Control", TaintNodesByCondition)."""

_LABELS = ("kubernetes.io/os", "kubernetes.io/arch", "topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_INFO = {
    "architecture": "",
    "bootID": "",
    "containerRuntimeVersion": "",
    "kernelVersion": "",
    "kubeProxyVersion": "",
    "kubeletVersion": "",
    "machineID": "",
    "operatingSystem": "",
    "osImage": "",
    "systemUUID": "",
}
_KEPT = ("architecture", "kubeletVersion", "operatingSystem")


def upper_name(owner_uid: str, lower: str, lower_uid: str) -> str:
    """Return the upper name of a lower node: it reveals nothing of the lower name, and stays the same.

    Args:
        owner_uid: The uid that all lower objects of one upper side have in common.
        lower: The name of the lower node.
        lower_uid: Its uid. Users of the upper side do not know it, so they cannot find the upper name of a lower name
            that they guess: a pod that selects the node by its upper name would confirm the guess.
    """
    return f"node-{hashlib.sha256(f'{owner_uid}/{lower}/{lower_uid}'.encode()).hexdigest()[:12]}"


def address(name: str, taken: Collection[str]) -> str:
    """Return a free address for an upper node.

    Args:
        name: Its upper name.
        taken: The addresses of other upper nodes.
    """
    size = ADDRESSES.num_addresses - 2
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    tried = (str(ADDRESSES.network_address + 1 + (first + step) % size) for step in range(size))
    return next(each for each in tried if each not in taken)


def node(name: str, lower: Json, address_: str, now: str) -> Json:
    """Return the upper Node of a lower one.

    Args:
        name: Its upper name.
        lower: The lower Node.
        address_: Its address.
        now: The time, as RFC 3339.
    """
    labels = {key: value for key, value in part(part(lower, "metadata"), "labels").items() if key in _LABELS}
    status = part(lower, "status")
    info = {key: part(status, "nodeInfo").get(key, "") for key in _KEPT}
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "status": {
            "capacity": dict(part(status, "capacity")),
            "allocatable": dict(part(status, "allocatable")),
            "addresses": [{"type": "InternalIP", "address": address_}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "nodeInfo": _INFO | info,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Mirrored",
                    "message": "pods of this node run",
                    **times,
                }
            ],
        },
    }


def is_not_ready(found: Json) -> bool:
    """Return whether a Node has the taint that its API server gives to each new one, until a kubelet is ready."""
    return any(each.get("key") == NOT_READY for each in items(part(found, "spec"), "taints"))


def made_ready(found: Json) -> Json:
    """Return the merge patch that takes this taint from a Node as it was read; other taints are the users'."""
    taints = [each for each in items(part(found, "spec"), "taints") if each.get("key") != NOT_READY]
    version = part(found, "metadata").get("resourceVersion")
    return {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}


def address_of(found: Json) -> str:
    """Return the address of an upper Node; "" if it has none of `ADDRESSES`, because users edit Nodes."""
    addresses = items(part(found, "status"), "addresses")
    given = next((str(each.get("address")) for each in addresses if each.get("type") == "InternalIP"), "")
    try:
        address = ipaddress.IPv4Address(given)
    except ValueError:
        return ""
    return str(address) if address in ADDRESSES else ""

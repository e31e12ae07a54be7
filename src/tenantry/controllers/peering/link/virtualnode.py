"""The Node that stands for another cluster, and what its live object needs to be so: pure.

    VirtualNodeInputs ─► node()             whole, created by the node identity: NodeRestriction admits taints only then
               ─► own_writes()       labels and status, by the node identity
               ─► operators_write()  the taint, and labels that a node may not set, by the operator
               ─► lease_patch()      the heartbeat: while it is renewed, the node controller marks nothing unknown

NodeRestriction refuses a change of taints by the node itself, labels of `node-restriction.kubernetes.io`, and labels of
`kubernetes.io` and `k8s.io` other than a few; labels of other domains pass, with `federation.tenantry.dev`.

The Lease is the heartbeat, so an unchanged node gets no other write: `lastHeartbeatTime` is the time of the last change
of a condition. Labels and resources of others stay; an annotation lists the labels that were given.

Sources: kubernetes/plugin/pkg/admission/noderestriction; kubernetes/staging/src/k8s.io/kubelet/pkg/apis;
Kubernetes, "Node Status" and "Node heartbeats".
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec

from tenantry.api.marks import is_protected
from tenantry.api.model import Json, Resource
from tenantry.api.node import Node
from tenantry.api.peercluster import PEER, VIRTUAL
from tenantry.engine import request
from tenantry.engine.clock import rfc3339, rfc3339_micro
from tenantry.engine.lease import Lease
from tenantry.engine.request import ApiRequest, PatchType
from tenantry.world import quantity

GIVEN = "federation.tenantry.dev/given-labels"
"""An annotation: the keys of labels that come from the other cluster or its administrator, with commas between."""

HOSTNAME = "kubernetes.io/hostname"
TYPE, TYPE_VALUE = "type", "virtual-kubelet"
"""By this value, cloud providers and other agents know nodes without a machine."""

NO_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"

LEASES_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
"""As of kubelets."""

_KUBELET_LABELS = frozenset(
    {
        HOSTNAME,
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
_KUBELET_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED = "node-restriction.kubernetes.io"
_PRESSURES = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}
"""Conditions that the node controller expects of each node."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether pods can run at the other cluster.

    Args:
        is_ready: They can.
        reason: In PascalCase.
        message: One sentence.
    """

    is_ready: bool
    reason: str
    message: str


class VirtualNodeInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What decides about the Node.

    Args:
        name: Its name.
        peer: The name of the PeerCluster.
        labels: More labels, admitted already. They do not replace the Node's own.
        resources: Quantities of what pods may request, with `pods`.
        address: The IP address under which the API server dials the kubelet port.
        port: The kubelet port.
        version: The version of Kubernetes at the other cluster; "" for an unknown one.
        readiness: Whether pods can run there.
    """

    name: str
    peer: str
    labels: Mapping[str, str] = {}
    resources: Mapping[str, str]
    address: str
    port: int
    version: str = ""
    readiness: Readiness


def is_of(live: Json, peer: str) -> bool:
    """Return whether a Node stands for this peer; another Node of the name is never changed."""
    return _part(live["metadata"], "labels").get(PEER) == peer


def may_set(key: str) -> bool:
    """Return whether NodeRestriction lets a node set a label of its own."""
    domain = key.partition("/")[0] if "/" in key else ""
    if _is_in(domain, (_RESTRICTED,)):
        return False
    is_kubernetes = _is_in(domain, ("kubernetes.io", "k8s.io"))
    return not is_kubernetes or key in _KUBELET_LABELS or _is_in(domain, _KUBELET_DOMAINS)


def node(inputs: VirtualNodeInputs, now: dt.datetime) -> Json:
    """Return the Node as its identity creates it; `operators_write` adds labels that the identity may not set."""
    labels = {key: value for key, value in _labels(inputs).items() if may_set(key)}
    return {
        "metadata": {"name": inputs.name, "labels": labels, "annotations": {GIVEN: _given(inputs)}},
        "spec": {"taints": [_taint(inputs)]},
        "status": {**_status(inputs), "conditions": _conditions(inputs, {}, now)},
    }


def own_writes(live: Json, inputs: VirtualNodeInputs, now: dt.datetime) -> list[ApiRequest]:
    """Return what the node identity writes; nothing if all is as it should be.

    Args:
        live: The Node.
        inputs: What decides about it.
        now: The time.
    """
    found: list[ApiRequest] = []
    labels = {key: value for key, value in _changed_labels(live, inputs).items() if _is_nodes(key)}
    notes = {} if _annotation(live) == _given(inputs) else {GIVEN: _given(inputs)}
    metadata = {**({"labels": labels} if labels else {}), **({"annotations": notes} if notes else {})}
    if metadata:
        found.append(_patch(inputs, {"metadata": metadata}))
    status = _changed_status(_part(live, "status"), inputs)
    if status:
        found.append(_patch(inputs, {"status": status}, subresource="status"))
    before = {str(each["type"]): each for each in _items(_part(live, "status"), "conditions")}
    conditions = _conditions(inputs, before, now)
    if any(not _says_the_same(before.get(each["type"]), each) for each in conditions):
        # Merged by their types: the conditions of others stay.
        body: Json = {"status": {"conditions": conditions}}
        found.append(_patch(inputs, body, subresource="status", patch_type=PatchType.STRATEGIC))
    return found


def operators_write(live: Json, inputs: VirtualNodeInputs) -> ApiRequest | None:
    """Return what the operator writes; None if all is as it should be.

    Without the taint, pods that do not tolerate the other cluster would be placed there.
    """
    labels = {key: value for key, value in _changed_labels(live, inputs).items() if not _is_nodes(key)}
    taints = _items(_part(live, "spec"), "taints")
    own = [each for each in taints if each["key"] == PEER]
    body: Json = {}
    if labels:
        body["metadata"] = {"labels": labels}
    if [(each["effect"], each.get("value", "")) for each in own] != [("NoSchedule", inputs.peer)]:
        others = [each for each in taints if each["key"] != PEER]
        body["spec"] = {"taints": [*others, _taint(inputs)]}
        # The list is replaced whole: a taint that another client has added since must stay.
        body.setdefault("metadata", {})["resourceVersion"] = live["metadata"]["resourceVersion"]
    return _patch(inputs, body) if body else None


def lease_patch(inputs: VirtualNodeInputs, uid: str, now: dt.datetime) -> Json:
    """Return the patch that renews the Lease of the node, or creates it.

    Args:
        inputs: What decides about the Node.
        uid: Of the Node, with which the Lease is deleted.
        now: The time.
    """
    owner = {"apiVersion": "v1", "kind": "Node", "name": inputs.name, "uid": uid}
    return {
        "metadata": {"ownerReferences": [owner]},
        "spec": {
            "holderIdentity": inputs.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": rfc3339_micro(now),
        },
    }


def new_lease(inputs: VirtualNodeInputs, uid: str, now: dt.datetime) -> ApiRequest:
    """Return the request that creates the Lease."""
    value = lease_patch(inputs, uid, now)
    metadata = {**value["metadata"], "name": inputs.name, "namespace": LEASES_NAMESPACE}
    return request.create_json(Lease.resource, {**value, "metadata": metadata})


# -- parts ----------------------------------------------------------------------------------------


def _labels(inputs: VirtualNodeInputs) -> dict[str, str]:
    return {
        **inputs.labels,
        VIRTUAL: "true",
        PEER: inputs.peer,
        HOSTNAME: inputs.name,
        TYPE: TYPE_VALUE,
        NO_BALANCERS: "true",
    }


def _given(inputs: VirtualNodeInputs) -> str:
    return ",".join(sorted(inputs.labels))


def _is_nodes(key: str) -> bool:
    """Return whether the node identity changes a label: policy `tenantry-peer-nodes` refuses it those of Tenantry."""
    return may_set(key) and not is_protected(key)


def _annotation(live: Json) -> str:
    return str(_part(live["metadata"], "annotations").get(GIVEN, ""))


def _changed_labels(live: Json, inputs: VirtualNodeInputs) -> dict[str, str | None]:
    """Return the labels to set, and None for those that were given and are not any more."""
    there = _part(live["metadata"], "labels")
    wanted = _labels(inputs)
    gone = [key for key in _annotation(live).split(",") if key in there and key not in wanted]
    return {
        **{key: value for key, value in wanted.items() if there.get(key) != value},
        **dict.fromkeys(gone),
    }


def _taint(inputs: VirtualNodeInputs) -> Json:
    return {"key": PEER, "value": inputs.peer, "effect": "NoSchedule"}


def _status(inputs: VirtualNodeInputs) -> Json:
    resources = dict(inputs.resources)
    return {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": inputs.address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": inputs.port}},
        "nodeInfo": {"kubeletVersion": inputs.version},
    }


def _changed_status(live: Json, inputs: VirtualNodeInputs) -> Json:
    """Return the fields of the status to write, without conditions."""
    wanted = _status(inputs)
    changed: Json = {}
    for field in ("capacity", "allocatable"):
        resources = _changed_resources(_part(live, field), wanted[field])
        if resources:
            changed[field] = resources
    if _items(live, "addresses") != wanted["addresses"]:
        changed["addresses"] = wanted["addresses"]
    if _part(_part(live, "daemonEndpoints"), "kubeletEndpoint").get("Port") != inputs.port:
        changed["daemonEndpoints"] = wanted["daemonEndpoints"]
    if _part(live, "nodeInfo").get("kubeletVersion", "") != inputs.version:
        changed["nodeInfo"] = wanted["nodeInfo"]
    return changed


def _changed_resources(live: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the resources to set, and None for those to remove; those of Tenantry's controllers stay."""
    # The API server writes a quantity in a form of its own.
    changed = {
        key: value
        for key, value in wanted.items()
        if key not in live or quantity.parse(live[key]) != quantity.parse(value)
    }
    return {**changed, **dict.fromkeys(key for key in live if key not in wanted and not is_protected(key))}


def _conditions(inputs: VirtualNodeInputs, before: Mapping[str, Json], now: dt.datetime) -> list[Json]:
    """Return the conditions, with the transition times of those whose status stays."""
    ready = inputs.readiness
    wanted: list[tuple[str, str, str, str]] = [
        ("Ready", "True" if ready.is_ready else "False", ready.reason, ready.message),
        *((type_, "False", reason, "the other cluster reports no pressure") for type_, reason in _PRESSURES.items()),
    ]
    time = rfc3339(now)
    found: list[Json] = []
    for type_, status, reason, message in wanted:
        old = before.get(type_, {})
        since = old.get("lastTransitionTime") if old.get("status") == status else None
        found.append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": time,
                "lastTransitionTime": since or time,
            }
        )
    return found


def _says_the_same(one: Json | None, other: Json) -> bool:
    return one is not None and all(one.get(field) == other[field] for field in ("status", "reason", "message"))


def _part(of: Json, field: str) -> Json:
    """Return a field that is an object; {} if it is absent or null."""
    found: Json | None = of.get(field)
    return found or {}


def _items(of: Json, field: str) -> list[Json]:
    """Return a field that is a list; [] if it is absent or null."""
    found: list[Json] | None = of.get(field)
    return found or []


def _is_in(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _patch(
    inputs: VirtualNodeInputs, body: Json, *, subresource: str = "", patch_type: PatchType = PatchType.MERGE
) -> ApiRequest:
    resource: Resource = Node.resource
    return request.patch(resource, "", inputs.name, body, subresource=subresource, patch_type=patch_type)

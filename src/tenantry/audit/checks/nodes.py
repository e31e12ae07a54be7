"""Checks of nodes: neither read nor written, and chosen by the scheduler within what a tenant may ask for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.audit import kinds
from tenantry.audit.attempts import create, delete, get, list_, may, patch, pod
from tenantry.audit.check import Alone, Area, Attempt, Check, Severity
from tenantry.audit.checks.api import RBAC_FIX
from tenantry.audit.checks.pods import honest, tried
from tenantry.audit.place import Place

Json = dict[str, Any]

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"

_EVERYBODYS: Json = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
    ]
}


def _node(place: Place) -> str:
    return place.nodes[0] if place.nodes else place.name


def _writes(place: Place) -> list[Attempt]:
    node = _node(place)
    return [
        patch(kinds.NODES, node, {"metadata": {"labels": {"audit": "x"}}}),
        patch(kinds.NODES, node, {"status": {"capacity": {"example.com/audit": "1"}}}, subresource="status"),
        delete(kinds.NODES, node),
        create(kinds.NODES, {"metadata": {"name": place.name}}),
        create(kinds.LEASES, {"metadata": {"name": place.name}}, "kube-node-lease"),
    ]


def _kubelet(place: Place) -> list[Attempt]:
    path = f"/api/v1/nodes/{place.name}/proxy"
    return [
        get(f"{path}/pods"),
        get(f"{path}/logs/"),
        *(may("get", "nodes", subresource=subresource) for subresource in ("proxy", "metrics", "stats", "log")),
    ]


def _named(place: Place) -> list[Attempt]:
    return [create(kinds.PODS, pod(place, {"nodeName": _node(place)}), place.namespace, what="that names its node")]


def _bound(place: Place) -> list[Attempt]:
    target = {"metadata": {"name": place.name}, "target": {"kind": "Node", "name": _node(place)}}
    return [
        create(kinds.BINDINGS, target, place.namespace),
        may("create", "pods", namespace=place.namespace, subresource="binding"),
    ]


CHECKS: Sequence[Check] = (
    Check(
        id="TNT-NODE-001",
        title="Nodes are read",
        area=Area.NODES,
        severity=Severity.MEDIUM,
        tries="Lists nodes.",
        proves="Names, addresses, versions and loads of nodes are not told.",
        fix=RBAC_FIX,
        attempts=lambda _: [list_(kinds.NODES)],
    ),
    Check(
        id="TNT-NODE-002",
        title="Nodes are written",
        area=Area.NODES,
        severity=Severity.CRITICAL,
        tries="Labels, reports on, deletes and creates nodes, and keeps a node's Lease (dry runs).",
        proves="The tenant neither moves others' pods nor plays a node.",
        fix=RBAC_FIX,
        attempts=_writes,
    ),
    Check(
        id="TNT-NODE-003",
        title="Kubelets through the API server",
        area=Area.NODES,
        severity=Severity.CRITICAL,
        tries="Asks for the proxy, logs and statistics of nodes.",
        proves="The API server is no way into every container of a node.",
        fix=RBAC_FIX,
        attempts=_kubelet,
    ),
    Check(
        id="TNT-NODE-004",
        title="Pods that name their node",
        area=Area.NODES,
        severity=Severity.HIGH,
        tries="Creates a restricted pod with nodeName (dry run).",
        proves="No pod goes past the scheduler, its taints and the slices of others.",
        fix="Set spec.rules.scheduling.nodeName of the Tenant to Refuse.",
        attempts=_named,
        control=honest,
        alone=Alone.OPEN,
    ),
    Check(
        id="TNT-NODE-005",
        title="Binding of pods to nodes",
        area=Area.NODES,
        severity=Severity.HIGH,
        tries="Binds a pod to a node as the scheduler does (dry run).",
        proves="No pod goes past the scheduler, its taints and the slices of others.",
        fix=RBAC_FIX,
        attempts=_bound,
    ),
    Check(
        id="TNT-NODE-006",
        title="Tolerations of any taint",
        area=Area.NODES,
        severity=Severity.HIGH,
        tries="Creates a restricted pod that tolerates everything, and one that tolerates control planes (dry runs).",
        proves="Taints keep the tenant's pods away.",
        fix="Set spec.rules.scheduling.tolerations of the Tenant to the keys that it may tolerate; [] for none.",
        attempts=lambda place: [
            create(kinds.PODS, pod(place, {"tolerations": [each]}), place.namespace, what=what)
            for each, what in (
                ({"operator": "Exists"}, "that tolerates everything"),
                ({"key": CONTROL_PLANE, "operator": "Exists"}, "that tolerates control planes"),
            )
        ],
        control=honest,
        alone=Alone.OPEN,
    ),
    Check(
        id="TNT-NODE-007",
        title="Choice of any node by its labels",
        area=Area.NODES,
        severity=Severity.MEDIUM,
        tries="Creates a restricted pod that selects control planes by label (dry run).",
        proves="The tenant does not choose beside whom it runs.",
        fix="Set spec.rules.scheduling.nodeSelectors of the Tenant to the labels that it may select; [] for none.",
        attempts=tried("that selects control planes", {"nodeSelector": {CONTROL_PLANE: ""}}),
        control=honest,
        alone=Alone.OPEN,
    ),
    Check(
        id="TNT-NODE-008",
        title="Pods that keep those of others away",
        area=Area.NODES,
        severity=Severity.HIGH,
        tries="Creates restricted pods with affinity and anti-affinity to the pods of all namespaces (dry runs).",
        proves="No pod shuts those of other tenants out of a node, or finds out where they run.",
        fix="Set spec.rules.scheduling.otherTenants of the Tenant to Refuse.",
        attempts=lambda place: [
            create(kinds.PODS, pod(place, {"affinity": {kind: _EVERYBODYS}}), place.namespace, what=what)
            for kind, what in (("podAffinity", "near those of all"), ("podAntiAffinity", "away from those of all"))
        ],
        control=honest,
        alone=Alone.OPEN,
    ),
)

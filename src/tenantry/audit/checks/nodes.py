"""Checks of nodes: a tenant neither reads nor writes them, and the scheduler chooses among those it may use. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api.model import Json
from tenantry.audit import kinds
from tenantry.audit.attempts import create, delete, get, list_, may, patch, pod
from tenantry.audit.check import Attempt, AuditCheck, Severity, WithoutTenantry
from tenantry.audit.checks.api import named
from tenantry.audit.checks.pods import both, honest, tried
from tenantry.audit.checks.table import check
from tenantry.audit.context import AuditContext

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"

_PODS_OF_ALL: Json = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
    ]
}


def _node(context: AuditContext) -> str:
    return context.nodes[0] if context.nodes else context.name


def _writes(context: AuditContext) -> list[Attempt]:
    node = _node(context)
    return [
        patch(kinds.NODES, node, {"metadata": {"labels": {"audit": "x"}}}),
        patch(kinds.NODES, node, {"status": {"capacity": {"example.com/audit": "1"}}}, subresource="status"),
        delete(kinds.NODES, node),
        create(kinds.NODES, named(context)),
        create(kinds.LEASES, named(context), "kube-node-lease"),
    ]


def _kubelet(context: AuditContext) -> list[Attempt]:
    # The node does not exist: the right decides the answer, and no kubelet is asked.
    path = f"/api/v1/nodes/{context.name}/proxy"
    return [
        get(f"{path}/pods"),
        get(f"{path}/logs/"),
        *(may("get", "nodes", subresource=subresource) for subresource in ("proxy", "metrics", "stats", "log")),
    ]


def _node_name(context: AuditContext) -> list[Attempt]:
    value = pod(context, {"nodeName": _node(context)})
    return [create(kinds.PODS, value, context.namespace, what="that names its node")]


def _bound(context: AuditContext) -> list[Attempt]:
    target = {**named(context), "target": {"kind": "Node", "name": _node(context)}}
    return [
        create(kinds.BINDINGS, target, context.namespace),
        may("create", "pods", namespace=context.namespace, subresource="binding"),
    ]


CHECKS: Sequence[AuditCheck] = (
    check(
        "NODE-001",
        "Cannot read nodes",
        Severity.MEDIUM,
        "Lists nodes.",
        "The tenant does not learn names, addresses, versions and loads of nodes.",
        lambda _: [list_(kinds.NODES)],
    ),
    check(
        "NODE-002",
        "Cannot change nodes",
        Severity.CRITICAL,
        "Labels, updates, deletes and creates nodes, and renews a node's Lease (dry runs).",
        "The tenant neither moves pods of others nor poses as a node.",
        _writes,
    ),
    check(
        "NODE-003",
        "Cannot reach kubelets through the API server",
        Severity.CRITICAL,
        "Requests the proxy, logs and statistics of nodes.",
        "The API server does not let the tenant into every container of a node.",
        _kubelet,
    ),
    check(
        "NODE-004",
        "Pods cannot name their node",
        Severity.HIGH,
        "Creates a restricted pod with nodeName (dry run).",
        "Every pod passes the scheduler, and with it taints and the slices of others.",
        _node_name,
        fix="Set spec.rules.scheduling.nodeName of the Tenant to Refuse.",
        control=honest,
        alone=WithoutTenantry.OPEN,
    ),
    check(
        "NODE-005",
        "Cannot bind pods to nodes",
        Severity.HIGH,
        "Binds a pod to a node as the scheduler does (dry run).",
        "Every pod passes the scheduler, and with it taints and the slices of others.",
        _bound,
    ),
    check(
        "NODE-006",
        "Pods cannot tolerate any taint",
        Severity.HIGH,
        "Creates a restricted pod that tolerates every taint, and one that tolerates control planes (dry runs).",
        "Taints keep the tenant's pods away.",
        both(
            tried("that tolerates every taint", {"tolerations": [{"operator": "Exists"}]}),
            tried("that tolerates control planes", {"tolerations": [{"key": CONTROL_PLANE, "operator": "Exists"}]}),
        ),
        fix="Set spec.rules.scheduling.controlPlaneTolerations of the Tenant to Refuse.",
        control=honest,
        alone=WithoutTenantry.OPEN,
    ),
    check(
        "NODE-007",
        "Pods cannot select any node by its labels",
        Severity.MEDIUM,
        "Creates a restricted pod that selects control planes by label (dry run).",
        "The tenant does not choose whose pods run beside its own.",
        tried("that selects control planes", {"nodeSelector": {CONTROL_PLANE: ""}}),
        fix="Set spec.rules.scheduling.nodeSelectors of the Tenant to the labels that it may select; [] for none.",
        control=honest,
        alone=WithoutTenantry.OPEN,
    ),
    check(
        "NODE-008",
        "Pods cannot have affinity to pods of other tenants",
        Severity.HIGH,
        "Creates restricted pods with affinity and anti-affinity to the pods of all namespaces (dry runs).",
        "No pod keeps pods of other tenants off a node, or finds out where they run.",
        both(
            tried("near pods of all tenants", {"affinity": {"podAffinity": _PODS_OF_ALL}}),
            tried("away from pods of all tenants", {"affinity": {"podAntiAffinity": _PODS_OF_ALL}}),
        ),
        fix="Set spec.rules.scheduling.otherTenants of the Tenant to Refuse.",
        control=honest,
        alone=WithoutTenantry.OPEN,
    ),
)

"""Who may do what: the operator's rights, the least that its work needs, and the roles that people get. Pure."""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP

Json = dict[str, Any]

OPERATOR = "tenantry-operator"
ADMIN_ROLE = "tenantry-admin"
LABELS = {marks.MANAGED_BY: marks.MANAGER}
READ = ["get", "list", "watch"]
KEEP = [*READ, "create", "patch", "delete"]


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _cluster_role(name: str, **content: object) -> Json:
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": dict(LABELS)},
        **content,
    }


def operator_role() -> Json:
    """Return the operator's cluster-wide rights."""
    rules = [
        _rule([marks.GROUP], ["tenants"], [*READ, "administer"]),
        _rule([marks.GROUP], ["subnamespaces"], [*READ, "patch", "delete"]),
        _rule([marks.GROUP], ["tenantresourcequotas"], [*READ, "create", "patch"]),
        _rule([marks.GROUP], ["tenants/status", "subnamespaces/status", "tenantresourcequotas/status"], ["update"]),
        # Owner references that block the tenant's deletion need this where OwnerReferencesPermissionEnforcement is on.
        _rule([marks.GROUP], ["tenants/finalizers"], ["update"]),
        # A tenant's core namespace is deleted by Kubernetes' garbage collector, child namespaces by the operator.
        _rule([""], ["namespaces"], KEEP),
        _rule([""], ["resourcequotas", "limitranges"], KEEP),
        # A share that was moved is in force at once, not when Kubernetes' quota controller comes to it.
        _rule([""], ["resourcequotas/status"], ["patch"]),
        _rule(["networking.k8s.io"], ["networkpolicies"], KEEP),
        _rule(["policy.networking.k8s.io"], ["clusternetworkpolicies"], KEEP),
        _rule([RBAC_GROUP], ["rolebindings"], KEEP),
        # The end of a suspension gives every binding in the namespace its subjects back, whatever role it binds.
        _rule([RBAC_GROUP], ["roles", "clusterroles"], ["bind"]),
        _rule([""], ["nodes"], READ),
        _rule([""], ["nodes/status"], ["patch"]),
        _rule(["apiextensions.k8s.io"], ["customresourcedefinitions"], READ),
        _rule(["events.k8s.io"], ["events"], ["create", "patch"]),
    ]
    return _cluster_role(OPERATOR, rules=rules)


def people_roles() -> list[Json]:
    """Return the roles of owners and of Tenantry's administrators."""
    owner = _cluster_role(
        marks.OWNER_ROLE,
        aggregationRule={
            "clusterRoleSelectors": [
                {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}},
                {"matchLabels": {"tenantry.dev/aggregate-to-owner": "true"}},
            ]
        },
    )
    own_namespace = _cluster_role(
        "tenantry-aggregate-to-owner",
        rules=[
            _rule([""], ["namespaces"], ["get"]),
            _rule([marks.GROUP], ["subnamespaces"], [*READ, "create", "update", "patch", "delete"]),
        ],
    )
    own_namespace["metadata"]["labels"]["tenantry.dev/aggregate-to-owner"] = "true"
    everything = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    everything += ["administer", "approve"]
    admin = _cluster_role(ADMIN_ROLE, rules=[_rule([marks.GROUP], ["*"], everything)])
    return [own_namespace, owner, admin]


def bindings(subject: Json) -> list[Json]:
    """Return what gives the operator its rights.

    Args:
        subject: The operator, as RBAC names it: a ServiceAccount in a cluster, a User on a local one.
    """
    namespace = marks.SYSTEM_NAMESPACE
    lease = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "Role",
        "metadata": {"name": OPERATOR, "namespace": namespace, "labels": dict(LABELS)},
        "rules": [
            _rule(["coordination.k8s.io"], ["leases"], ["create"]),
            {
                **_rule(["coordination.k8s.io"], ["leases"], ["get", "update", "patch"]),
                "resourceNames": [OPERATOR],
            },
        ],
    }
    lease_binding = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": OPERATOR, "namespace": namespace, "labels": dict(LABELS)},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": OPERATOR},
        "subjects": [subject],
    }
    cluster_binding = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": OPERATOR, "labels": dict(LABELS)},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": OPERATOR},
        "subjects": [subject],
    }
    return [lease, lease_binding, cluster_binding]


def flow_schema(subject: Json) -> Json:
    """Return the FlowSchema that serves the operator beside Kubernetes' own controllers, ahead of everybody's pods."""
    kind = str(subject["kind"])
    about = (
        {"serviceAccount": {"name": subject["name"], "namespace": subject["namespace"]}}
        if kind == "ServiceAccount"
        else {"user": {"name": subject["name"]}}
    )
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "clusterScope": True, "namespaces": ["*"]}
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": OPERATOR, "labels": dict(LABELS)},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-high"},
            "matchingPrecedence": 800,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [{"kind": kind, **about}], "resourceRules": [every]}],
        },
    }

"""What keeps inherited objects as their source is: a policy in the API server, and the operator's rights. Pure.

Source: Kubernetes, "Validating Admission Policy" and "Using RBAC Authorization" (aggregated ClusterRoles).
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.install.policies import ADMINISTER, binding
from tenantry.install.rights import LABELS, READ

Json = dict[str, Any]

INHERITED = "tenantry-inherited"
OPERATOR_INHERITS = "tenantry-operator-inherits"
SEVEN = "tenantry-operator-inherits-seven"
AGGREGATED = "tenantry.dev/aggregate-to-operator"
"""On a ClusterRole: what it allows, the operator may do. For kinds beyond the seven."""

_COPY = [*READ, "create", "update", "patch", "delete"]
_MARK = f"'{marks.INHERITED_FROM}'"
_KUBERNETES = (
    "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"
    " || request.userInfo.username.startsWith('system:kube-')"
)
_SAME_MARK = (
    "has(object.metadata.labels) && has(oldObject.metadata.labels)"
    f" && {_MARK} in object.metadata.labels && {_MARK} in oldObject.metadata.labels"
    f" && object.metadata.labels[{_MARK}] == oldObject.metadata.labels[{_MARK}]"
)


def everything(subject: Json) -> list[Json]:
    """Return the policy and its binding, and the operator's rights.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [*_rights(subject), _policy(), binding(INHERITED)]


def _rights(subject: Json) -> list[Json]:
    seven = [
        {"apiGroups": [""], "resources": ["secrets", "configmaps", "serviceaccounts", "limitranges"], "verbs": _COPY},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _COPY},
        # A copy gives in the child what its source gives in the parent, and the operator holds none of it itself.
        {"apiGroups": [RBAC_GROUP], "resources": ["roles"], "verbs": [*_COPY, "escalate", "bind"]},
        {"apiGroups": [RBAC_GROUP], "resources": ["rolebindings"], "verbs": _COPY},
        {"apiGroups": [marks.GROUP], "resources": ["tenancydefaults"], "verbs": READ},
        {"apiGroups": [marks.GROUP], "resources": ["tenancydefaults/status"], "verbs": ["update"]},
    ]
    selector = {"clusterRoleSelectors": [{"matchLabels": {AGGREGATED: "true"}}]}
    roles = {SEVEN: {"rules": seven}, OPERATOR_INHERITS: {"aggregationRule": selector}}
    return [made for name, content in roles.items() for made in _bound(name, content, subject)]


def _bound(name: str, content: Json, subject: Json) -> list[Json]:
    """Return a ClusterRole and the binding that gives it to the operator."""
    head: Json = {"apiVersion": f"{RBAC_GROUP}/v1", "metadata": {"name": name, "labels": dict(LABELS)}}
    ref = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name}
    return [
        {**head, "kind": "ClusterRole", **content},
        {**head, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": [subject]},
    ]


def _policy() -> Json:
    """Return the policy by which nobody edits a copy, nor makes one that looks like it (E06)."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": INHERITED, "labels": dict(LABELS)},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [{"key": marks.TENANT_UID, "operator": "Exists"}]},
                # Looked for on what is there and on what is to be.
                "objectSelector": {"matchExpressions": [{"key": marks.INHERITED_FROM, "operator": "Exists"}]},
                "resourceRules": [
                    {
                        "apiGroups": ["*"],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                        "resources": ["*", "*/status", "*/finalizers"],
                        "scope": "Namespaced",
                    }
                ],
            },
            "matchConditions": [
                {"name": "not-kubernetes-keeping-house", "expression": f"!({_KUBERNETES})"},
                # Other controllers say in the status how a copy fares.
                {"name": "not-only-its-status", "expression": f"!has(request.subResource) || !({_SAME_MARK})"},
                {"name": "not-an-administrator", "expression": f"!{ADMINISTER}"},
            ],
            "validations": [
                {
                    "expression": "false",
                    "messageExpression": _told(),
                    "reason": "Forbidden",
                }
            ],
        },
    }


def _told() -> str:
    what = 'request.kind.kind + " \'" + request.name + "\'"'
    where = f"oldObject.metadata.labels[{_MARK}]"
    return (
        "oldObject != null && has(oldObject.metadata.labels)"
        f" && {_MARK} in oldObject.metadata.labels"
        f' ? {what} + " is inherited from namespace \'" + {where} + "\': change it there, or set spec.inheritance of'
        " Subnamespace '\" + (has(namespaceObject.metadata.labels)"
        f" && '{marks.SUBNAMESPACE}' in namespaceObject.metadata.labels"
        f" ? namespaceObject.metadata.labels['{marks.SUBNAMESPACE}'] : '') + \"' there\""
        f" : {what} + ' must not have the label ' + {_MARK} + ': only Tenantry sets it'"
    )

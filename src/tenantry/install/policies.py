"""Policies that the API server carries out itself: they hold when the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP

Json = dict[str, Any]

SUSPENDED = "tenantry-suspended"
CLOSABLE = "tenantry-closable"

ADMINISTER = "authorizer.group('tenantry.dev').resource('tenants').check('administer').allowed()"
"""Who may `administer` tenants is an administrator to every policy: cluster-admin, and the operator."""

_KUBERNETES = (
    "(request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"
    " || request.userInfo.username.startsWith('system:kube-')"
    " || request.userInfo.groups.exists(group, group == 'system:nodes'))"
)
# Kubernetes' own components go on keeping what is there, but neither they make anything that runs, nor does anybody
# get a new token: not even a kubelet for a pod that runs already.
_MAKES = (
    "(request.operation == 'CREATE' && request.resource.resource in ['pods', 'jobs'] && !has(request.subResource))"
    " || (request.resource.resource == 'serviceaccounts' && has(request.subResource)"
    " && request.subResource == 'token')"
)


def suspended() -> list[Json]:
    """Return the policy that closes the namespaces of suspended tenants, and its binding (E02)."""
    policy: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": SUSPENDED, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {marks.SUSPENDED: "true"}},
                "resourceRules": [
                    {
                        "apiGroups": ["*"],
                        "apiVersions": ["*"],
                        "operations": ["*"],
                        "resources": ["*/*"],
                        # Without this the rule would be about every cluster-scoped object too: a namespaceSelector
                        # never skips those.
                        "scope": "Namespaced",
                    }
                ],
            },
            "matchConditions": [
                {"name": "not-kubernetes-keeping-house", "expression": f"!{_KUBERNETES} || ({_MAKES})"},
                {"name": "not-an-administrator", "expression": f"!{ADMINISTER}"},
            ],
            "validations": [
                {
                    "expression": "false",
                    "messageExpression": (
                        f"\"Tenant '\" + namespaceObject.metadata.labels['{marks.TENANT}'] + \"' is suspended:"
                        ' nothing can be changed until an administrator sets spec.suspended to false"'
                    ),
                    "reason": "Forbidden",
                }
            ],
        },
    }
    return [policy, binding(SUSPENDED)]


def closable() -> list[Json]:
    """Return the policy that keeps RoleBindings such that they can be closed by a suspension, and end (E02, E05).

    Closing one moves its subjects into an annotation. Without this an owner could fill the annotations (Kubernetes
    takes 256 KiB of them), or name thousands of subjects, and keep the binding's rights through a suspension.
    """
    policy: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": CLOSABLE, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [{"key": marks.TENANT_UID, "operator": "Exists"}]},
                "resourceRules": [
                    {
                        "apiGroups": [RBAC_GROUP],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["rolebindings"],
                    }
                ],
            },
            # The operator itself moves the subjects.
            "matchConditions": [{"name": "not-an-administrator", "expression": f"!{ADMINISTER}"}],
            "validations": [
                {
                    # As JSON a character takes up to six bytes, and a subject 120 beside its names.
                    "expression": (
                        "!has(object.subjects) || object.subjects.map(s,"
                        " 20 + size(s.name) + (has(s.namespace) ? size(s.namespace) : 0)).sum() <= 20000"
                    ),
                    "message": "subjects must be fewer, or have shorter names: at most some 500; use a group",
                    "reason": "Forbidden",
                },
                {
                    "expression": (
                        "!has(object.metadata.annotations) || object.metadata.annotations.map(k,"
                        " size(k) + size(object.metadata.annotations[k])).sum() <= 30000"
                    ),
                    "message": "metadata.annotations must not be longer than 30000 characters together",
                    "reason": "Forbidden",
                },
                {
                    # It would outlast the deletion of its namespace, with the rights of those whom it names.
                    "expression": (
                        "!has(object.metadata.finalizers) || object.metadata.finalizers.all(f, oldObject != null"
                        " && has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers)"
                    ),
                    "message": "metadata.finalizers of a RoleBinding must not be set: it would keep people in a"
                    " namespace that is being deleted",
                    "reason": "Forbidden",
                },
            ],
        },
    }
    return [policy, binding(CLOSABLE)]


def binding(name: str, kind: str = "Validating", **more: object) -> Json:
    """Return what puts a policy into force everywhere.

    Args:
        name: Of the policy, and of the binding.
        kind: Validating or Mutating.
        more: Further fields of the spec, as paramRef.
    """
    actions = {"validationActions": ["Deny"]} if kind == "Validating" else {}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}AdmissionPolicyBinding",
        "metadata": {"name": name, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "spec": {"policyName": name, **actions, **more},
    }

"""Policies that the API server carries out itself: they hold when the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks

Json = dict[str, Any]

SUSPENDED = "tenantry-suspended"

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
    binding: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": SUSPENDED, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "spec": {"policyName": SUSPENDED, "validationActions": ["Deny"]},
    }
    return [policy, binding]

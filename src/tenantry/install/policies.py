"""Policies that the API server carries out itself: they hold when the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.install.policy import IN_TENANTS, KUBERNETES, bound, not_administrator, rule, says, validating

Json = dict[str, Any]

SUSPENDED = "tenantry-suspended"
CLOSABLE = "tenantry-closable"

# Kubernetes' own components go on keeping what is there, but neither they make anything that runs, nor does anybody
# get a new token: not even a kubelet for a pod that runs already.
_MAKES = (
    "(request.operation == 'CREATE' && request.resource.resource in ['pods', 'jobs'] && !has(request.subResource))"
    " || (request.resource.resource == 'serviceaccounts' && has(request.subResource)"
    " && request.subResource == 'token')"
)


def suspended(subject: Json) -> list[Json]:
    """Return the policy that closes the namespaces of suspended tenants, and its binding (E02).

    Args:
        subject: The operator, as RBAC names it.
    """
    # Without the scope it would be about every cluster-scoped object too: a namespaceSelector never skips those.
    everything = {**rule("*", ["*/*"], "*"), "scope": "Namespaced"}
    told = (
        f"\"Tenant '\" + namespaceObject.metadata.labels['{marks.TENANT}'] + \"' is suspended:"
        ' nothing can be changed until an administrator sets spec.suspended to false"'
    )
    policy = validating(
        SUSPENDED,
        [everything],
        [says("false", told, told=True)],
        conditions={"not-kubernetes-keeping-house": f"!{KUBERNETES} || ({_MAKES})", **not_administrator(subject)},
        where={"matchLabels": {marks.SUSPENDED: "true"}},
    )
    return bound(policy)


def closable(subject: Json) -> list[Json]:
    """Return the policy that keeps RoleBindings such that they can be closed by a suspension, and end (E02, E05).

    Closing one moves its subjects into an annotation. Without this an owner could fill the annotations (Kubernetes
    takes 256 KiB of them), or name thousands of subjects, and keep the binding's rights through a suspension.

    Args:
        subject: The operator, as RBAC names it.
    """
    validations = [
        says(
            # As JSON a character takes up to six bytes, and a subject 120 beside its names.
            "!has(object.subjects) || object.subjects.map(s,"
            " 20 + size(s.name) + (has(s.namespace) ? size(s.namespace) : 0)).sum() <= 20000",
            "subjects must be fewer, or have shorter names: at most some 500; use a group",
        ),
        says(
            "!has(object.metadata.annotations) || object.metadata.annotations.map(k,"
            " size(k) + size(object.metadata.annotations[k])).sum() <= 30000",
            "metadata.annotations must not be longer than 30000 characters together",
        ),
        says(
            # It would outlast the deletion of its namespace, with the rights of those whom it names.
            "!has(object.metadata.finalizers) || object.metadata.finalizers.all(f, oldObject != null"
            " && has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers)",
            "metadata.finalizers of a RoleBinding must not be set: it would keep people in a namespace that is being"
            " deleted",
        ),
    ]
    bindings = rule(RBAC_GROUP, ["rolebindings"])
    # The operator itself moves the subjects.
    conditions = not_administrator(subject)
    policy = validating(CLOSABLE, [bindings], validations, conditions=conditions, where=IN_TENANTS)
    return bound(policy)

"""The policies of suspension, which hold while the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json
from tenantry.install.mirror import BY_MIRROR
from tenantry.install.policy import (
    IN_TENANTS,
    KUBERNETES,
    adds_no_finalizer,
    bound,
    not_administrator,
    refusing,
    rule,
    says,
    validating,
)

SUSPENDED = "tenantry-suspended"
CONVERTING = "tenantry-converting"
CLOSABLE = "tenantry-closable"

# Kubernetes' own components go on maintaining existing objects, but they create nothing that runs, and no user gets a
# new token: not even a kubelet for a running pod.
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
    # The scope excludes cluster-scoped objects, which a namespaceSelector never skips.
    everything = {**rule("*", ["*/*"], "*"), "scope": "Namespaced"}
    told = (
        f"\"Tenant '\" + namespaceObject.metadata.labels['{marks.TENANT}'] + \"' is suspended:"
        ' nothing can be changed until an administrator sets spec.suspended to false"'
    )
    return refusing(
        SUSPENDED,
        [everything],
        told,
        told=True,
        conditions={"not-kubernetes-keeping-house": f"!{KUBERNETES} || ({_MAKES})", **not_administrator(subject)},
        where={"matchLabels": {marks.SUSPENDED: "true"}},
    )


def converting(subject: Json) -> list[Json]:
    """Return the policy that closes the namespaces whose objects move to a control plane, and its binding (H01).

    Controllers of Kubernetes create no pods meanwhile, because those inside take over. Kubelets get tokens.

    Args:
        subject: The operator, as RBAC names it.
    """
    everything = {**rule("*", ["*/*"], "*"), "scope": "Namespaced"}
    told = (
        f"\"the objects of tenant '\" + namespaceObject.metadata.labels['{marks.TENANT}'] + \"' move to a control plane"
        " of its own: nothing can be changed here meanwhile; status.conversion of the Tenant or Subnamespace reports"
        ' the progress"'
    )
    makes = (
        "request.operation == 'CREATE' && request.resource.resource in ['pods', 'jobs'] && !has(request.subResource)"
    )
    # Simulated nodes, and other components that report for all pods of the cluster.
    what = "authorizer.group('').resource('pods').subresource('status').namespace('kube-system')"
    nodes = f"{what}.check('patch').allowed()"
    return refusing(
        CONVERTING,
        [everything],
        told,
        told=True,
        conditions={
            "not-kubernetes-keeping-house": f"!{KUBERNETES} || ({makes})",
            "not-the-mirror": f"!({BY_MIRROR})",
            "not-a-node": f"!({nodes})",
            **not_administrator(subject),
        },
        where={"matchLabels": {marks.CONVERTING: "true"}},
    )


def closable(subject: Json) -> list[Json]:
    """Return the policy that keeps RoleBindings and ServiceAccounts so that rights can end (E02, E05).

    A suspension moves the subjects into an annotation. Otherwise an owner could fill the annotations (Kubernetes
    allows 256 KiB), or name thousands of subjects, and keep the binding's rights through a suspension. A finalizer on
    a ServiceAccount keeps its tokens valid for a minute after its deletion began, in which they request others.
    Source: kubernetes/pkg/serviceaccount/claims.go.

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
            "request.resource.resource != 'rolebindings' || !has(object.metadata.annotations)"
            " || object.metadata.annotations.map(k, size(k) + size(object.metadata.annotations[k])).sum() <= 30000",
            "metadata.annotations must not be longer than 30000 characters together",
        ),
        # A binding would outlast the deletion of its namespace, with the rights of its subjects.
        adds_no_finalizer("a RoleBinding or ServiceAccount must not be set: its rights would outlast its deletion"),
    ]
    rights = [rule(RBAC_GROUP, ["rolebindings"]), rule("", ["serviceaccounts"])]
    # An honest object meets no condition, and costs one evaluation. The operator itself moves the subjects.
    passes = " && ".join(f"({each['expression']})" for each in validations)
    conditions = {"is-too-large": f"!({passes})", **not_administrator(subject)}
    policy = validating(CLOSABLE, rights, validations, conditions=conditions, where=IN_TENANTS)
    return bound(policy)

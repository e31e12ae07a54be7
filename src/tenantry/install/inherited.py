"""The policies that keep copies equal to the object that they are inherited from, and the operator's rights. Pure.

Source: Kubernetes, "Validating Admission Policy" and "Using RBAC Authorization" (aggregated ClusterRoles).
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.kubernetes import RBAC_GROUP, LimitRange, NetworkPolicy, RoleBinding
from tenantry.api.model import READ, Json, Resource
from tenantry.api.policyparameters import PREFIX
from tenantry.api.subnamespace import MAX_OTHERS, Subnamespace
from tenantry.install.policy import (
    IN_TENANTS,
    PARAM_KIND,
    binding,
    bound,
    exists,
    not_administrator,
    rule,
    says,
    validating,
)
from tenantry.install.rights import allow, cluster_role, given
from tenantry.policy.text import parameter
from tenantry.policy.users import CONTROL_PLANE
from tenantry.world import inheritance

INHERITED = "tenantry-inherited"
SCALES = "tenantry-inherited-scale"
READERS = "tenantry-inheriting"
OPERATOR_INHERITS = "tenantry-operator-inherits"
SEVEN = "tenantry-operator-inherits-seven"
AGGREGATED = "tenantry.dev/aggregate-to-operator"
"""On a ClusterRole: the operator gets its rights, for kinds beyond the seven."""

_COPY = [*READ, "create", "update", "patch", "delete"]
_MARK = f"'{marks.INHERITED_FROM}'"
_SAME_MARK = (
    "has(object.metadata.labels) && has(oldObject.metadata.labels)"
    f" && {_MARK} in object.metadata.labels && {_MARK} in oldObject.metadata.labels"
    f" && object.metadata.labels[{_MARK}] == oldObject.metadata.labels[{_MARK}]"
)


FIELDS: dict[str, Resource] = {
    "roles": inheritance.ROLES,
    "roleBindings": RoleBinding.resource,
    "networkPolicies": NetworkPolicy.resource,
    "limitRanges": LimitRange.resource,
    "secrets": inheritance.SECRETS,
    "configMaps": inheritance.CONFIG_MAPS,
    "serviceAccounts": inheritance.SERVICE_ACCOUNTS,
}
"""Field of spec.inheritance to its kind."""


def everything(subject: Json) -> list[Json]:
    """Return the policy and its binding, and the operator's rights.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [
        *_rights(subject),
        *(_guard(subject), binding(INHERITED)),
        *_scaled(subject),
        *(_readers(subject), binding(READERS)),
    ]


def _rights(subject: Json) -> list[Json]:
    seven = [
        allow([""], ["secrets", "configmaps", "serviceaccounts", "limitranges"], _COPY),
        allow(["networking.k8s.io"], ["networkpolicies"], _COPY),
        # A copied Role grants what its source grants in the parent, which the operator does not hold itself.
        allow([RBAC_GROUP], ["roles"], [*_COPY, "escalate", "bind"]),
        allow([RBAC_GROUP], ["rolebindings"], _COPY),
    ]
    selector = {"clusterRoleSelectors": [{"matchLabels": {AGGREGATED: "true"}}]}
    return [
        cluster_role(SEVEN, rules=seven),
        given(SEVEN, subject),
        cluster_role(OPERATOR_INHERITS, aggregationRule=selector),
        given(OPERATOR_INHERITS, subject),
    ]


def _guard(subject: Json) -> Json:
    """Return the policy that refuses edits of copies, and objects that look like copies (E06)."""
    about = rule("*", ["*", "*/status", "*/finalizers"], "CREATE", "UPDATE", "DELETE")
    conditions = {
        "not-kubernetes-keeping-house": f"!{CONTROL_PLANE}",
        "not-only-its-status": f"!has(request.subResource) || !({_SAME_MARK})",
        **not_administrator(subject),
    }
    policy = validating(
        INHERITED,
        [{**about, "scope": "Namespaced"}],
        [says("false", _message(), told=True)],
        conditions=conditions,
        where=IN_TENANTS,
    )
    # Kubernetes evaluates the selector on the old and the new object.
    marked = exists(marks.INHERITED_FROM)
    policy["spec"]["matchConstraints"]["objectSelector"] = marked
    return policy


def _scaled(subject: Json) -> list[Json]:
    """Return the policy that refuses to scale copies of workloads, and its binding (E06).

    A Scale does not have the labels of its workload. So the operator lists the copies in parameters, before it makes
    them. Workloads themselves as parameters would make the API server wait for those of all tenants when it starts. The
    policy also applies to Kubernetes' own autoscaler, because tenants write its objects.
    """
    kinds = "{" + ", ".join(f"'{kind.plural}': '{kind.kind}'" for kind in inheritance.SCALED) + "}"
    told = (
        f"{kinds}[request.resource.resource] + ' \\'' + request.name + '\\' is inherited from namespace \\''"
        f" + {parameter(inheritance.SOURCE)} + '\\': scale it there'"
    )
    listed = (
        f"params.?metadata.annotations['{PREFIX}' + request.resource.resource].orValue('')"
        ".contains('\\n' + request.name + '\\n')"
    )
    policy = validating(
        SCALES,
        [rule(kind.group, [f"{kind.plural}/scale"], "UPDATE") for kind in inheritance.SCALED],
        [says(f"params == null || !{listed}", told, told=True)],
        conditions=not_administrator(subject),
        where=IN_TENANTS,
        params=PARAM_KIND,
    )
    return bound(policy, paramRef={"name": inheritance.COPIES, "parameterNotFoundAction": "Allow"})


def _message() -> str:
    def what(of: str) -> str:
        # The deletion of a collection has no name in the request, nor has an object with a generated name yet.
        return f"request.kind.kind + \" '\" + (has({of}.metadata.name) ? {of}.metadata.name : '') + \"'"

    child = f"'{marks.SUBNAMESPACE}' in namespaceObject.metadata.labels"
    name = f"({child} ? namespaceObject.metadata.labels['{marks.SUBNAMESPACE}'] : '')"
    source = f"oldObject.metadata.labels[{_MARK}]"
    inherited = (
        f"{what('oldObject')} is inherited from namespace '\" + {source} + \"': change it there"
        f', or set spec.inheritance of Subnamespace \'" + {name} + "\' there"'
    )
    return (
        f"oldObject != null && has(oldObject.metadata.labels) && {_MARK} in oldObject.metadata.labels"
        f" ? {inherited}"
        f' : {what("object")} must not have the label " + {_MARK} + ": only Tenantry sets it"'
    )


def _readers(subject: Json) -> Json:
    """Return the policy that keeps users from reading, through inheritance, what they cannot read in the parent.

    A check of rights costs a third of the limit of one expression, so each kind has an expression of its own.
    """
    resource = Subnamespace.resource
    inherits = "object.spec.inheritance"
    validations = [
        says(
            f"{inherits}.{field} == 'None' || {_may_list(repr(kind.group), repr(kind.plural))}",
            f"spec.inheritance.{field} must be None: you may not list {kind.plural} here",
        )
        for field, kind in FIELDS.items()
    ]
    for index in range(MAX_OTHERS):
        parts = f"{inherits}.others[{index}].resource.split('.', 2)"
        group = f"(size({parts}) > 1 ? {parts}[1] : '')"
        validations.append(
            says(
                f"!has({inherits}.others) || size({inherits}.others) <= {index}"
                f" || {inherits}.others[{index}].mode == 'None' || {_may_list(group, f'{parts}[0]')}",
                f"spec.inheritance.others[{index}] must be None: you may not list that kind here",
            )
        )
    new = f"request.operation == 'CREATE' || {inherits} != oldObject.spec.inheritance"
    return validating(
        READERS,
        [rule(resource.group, [resource.plural])],
        validations,
        conditions={"inherits-something-new": new, **not_administrator(subject)},
    )


def _may_list(group: str, plural: str) -> str:
    return f"authorizer.group({group}).resource({plural}).namespace(request.namespace).check('list').allowed()"

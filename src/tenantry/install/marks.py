"""What keeps Tenantry's marks, and the namespaces that carry them, from everybody but administrators. Pure.

Tenantry goes by labels and annotations: whose a namespace is, what is inherited, who comes back after a suspension. Who
writes them decides, so tenants do not, through no verb and no subresource, nor by way of a controller of Kubernetes'
that copies them from a template. It holds when the operator is down.

Source: Kubernetes, "Validating Admission Policy"; DESIGN section 4 (protected marks).
"""

from __future__ import annotations

from typing import Any

from tenantry.api import marks
from tenantry.api.requests import REQUESTS, ROLE_BINDING_PREFIX
from tenantry.install.bandwidth import ANNOTATIONS as BANDWIDTH
from tenantry.install.policy import ADMINISTER, IN_TENANTS, KUBERNETES, bound, by, rule, says, validating

Json = dict[str, Any]

MARKS = "tenantry-marks"
NAMESPACES = "tenantry-namespaces"

CLUSTERS_OWN = (
    "bindings",
    "pods/binding",
    "pods/status",
    "services/status",
    "ingresses/status",
    "persistentvolumeclaims/status",
    "resourceclaims/status",
    "resourcequotas/status",
)
"""What only the cluster's machinery writes: on which node a pod is, addresses, volumes, devices, what is in use."""

MOST = 1000
"""How many labels, annotations or owners an object in a tenant's namespace has at most."""


def protection(subject: Json) -> list[Json]:
    """Return the policies and their bindings.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [*bound(_inside(subject)), *bound(_namespaces(subject))]


def is_ours(key: str) -> str:
    """Return the expression for: a key is one of Tenantry's, be it the users' to set."""
    return f"({key}.startsWith('{marks.GROUP}/') || {key}.contains('.{marks.GROUP}/'))"


def is_protected(key: str) -> str:
    """Return the expression for `marks.is_protected`."""
    users = ", ".join(f"'{mark}'" for mark in sorted(marks.USER_MARKS))
    return f"(({is_ours(key)} || {key}.startsWith('{marks.POD_SECURITY}/')) && !({key} in [{users}]))"


def _map(of: str, field: str) -> str:
    """Return the expression for labels or annotations, empty where there are none or no such object."""
    return f"({of} == null ? {{}} : {of}.?metadata.{field}.orValue({{}}))"


def _any(of: str, of_key: str) -> str:
    """Return the expression for: one of an object's labels or annotations has a key (`k`) that is so."""
    return " || ".join(f"{_map(of, field)}.exists(k, {of_key})" for field in ("labels", "annotations"))


def _many(of: str) -> str:
    """Return the expression for: an object has too much to look through.

    An expression that costs too much refuses the request, an administrator's too, so that nobody could end the object.
    """
    return " || ".join(
        [
            *(f"size({_map(of, field)}) > {MOST}" for field in ("labels", "annotations")),
            f"size({_owners(of)}) > {MOST}",
        ]
    )


def _owners(of: str) -> str:
    return f"({of} == null ? [] : {of}.?metadata.ownerReferences.orValue([]))"


def _few() -> Json:
    return says(
        f"!({_many('object')}) && !({_many('oldObject')})",
        f"metadata.labels, metadata.annotations and metadata.ownerReferences must have at most {MOST} each",
    )


def _touched(of_key: str) -> dict[str, str]:
    """Return variables: the keys of labels and of annotations that are so, and are set, changed or removed.

    None where there are too many, which is refused anyway: to filter n of them takes n² steps.
    """
    made: dict[str, str] = {}
    many = f"{_many('object')} || {_many('oldObject')}"
    for field in ("labels", "annotations"):
        old, new = f"old_{field}", f"new_{field}"
        is_changed = f"(!(k in variables.{old}) || variables.{old}[k] != variables.{new}[k])"
        set_ = f"variables.{new}.filter(k, {of_key} && {is_changed})"
        removed = f"variables.{old}.filter(k, {of_key} && !(k in variables.{new}))"
        made |= {old: _map("oldObject", field), new: _map("object", field)}
        made[field] = f"{many} ? [] : {set_} + {removed}"
    return made


def _untouched(unless: str, why: str) -> list[Json]:
    """Return the validations of `_touched`.

    Args:
        unless: An expression: when they hold anyway.
        why: An expression: what people are told behind the key.
    """
    return [
        says(
            f"{unless} || size(variables.{field}) == 0",
            f'"metadata.{field} \'" + variables.{field}[0] + "\' must not be set, changed or removed: " + {why}',
            told=True,
        )
        for field in ("labels", "annotations")
    ]


# -- inside a tenant's namespace ------------------------------------------------------------------


def _inside(subject: Json) -> Json:
    """Return the policy on everything in tenants' namespaces.

    It is asked at each write there, so it is one, with one condition that ends early: what has no marks pays for that
    alone.
    """
    # The network plugin reads it when the pod starts, and what it asks for was counted when the pod was made.
    fixed = (
        f"(request.operation == 'UPDATE' && request.resource.resource == 'pods' && k in [{_quoted(sorted(BANDWIDTH))}])"
    )
    of_key = f"({is_protected('k')} || {fixed})"
    marked = f"{_any('object', of_key)} || {_any('oldObject', of_key)}"
    # Their updates copy nothing from what people write, and must go on whatever an object carries. What they make is
    # made from templates; but endpoints carry the labels of a Service, which may be inherited.
    by_kubernetes = (
        f"({KUBERNETES}"
        " && (request.operation == 'UPDATE' || request.resource.resource in ['endpoints', 'endpointslices']))"
    )
    asked = (
        f"!({by(subject)}) && !{by_kubernetes} && ({_many('object')} || {_many('oldObject')}"
        f" || (!{_inherited()} && ({marked})) || {_holds('object')} || {_clusters_own()}) && !{ADMINISTER}"
    )
    everything = {**rule("*", ["*/*"]), "scope": "Namespaced"}
    validations = [
        _few(),
        says(
            f"!({_clusters_own()}) || {_may_anywhere()}",
            "request.resource.resource + (has(request.subResource) ? '/' + request.subResource : '')"
            " + ' is written by the cluster alone: whoever may not write it in kube-system may not in a namespace of a'"
            " + ' tenant'",
            told=True,
        ),
        *_untouched(
            _inherited(),
            "(variables.in_use ? 'the bandwidth of a pod is counted when it is made; make another pod'"
            f" : 'it is Tenantry\\'s; yours to set are {', '.join(sorted(marks.USER_MARKS))}')",
        ),
        says(
            f"!({_holds('object')}) || ({_holds('oldObject')})",
            "metadata.ownerReferences must not have blockOwnerDeletion for what is Tenantry's: it would hold its end",
        ),
    ]
    in_use = {"in_use": "size(variables.labels) == 0 && variables.annotations[0].startsWith('k')"}
    return validating(
        MARKS,
        [everything],
        validations,
        conditions={"has-marks-or-is-the-clusters": asked},
        where=IN_TENANTS,
        variables={**_touched(of_key), **in_use},
    )


def _inherited() -> str:
    """Return the expression for: the policy on what is inherited refuses it, and says where to change it."""
    labels = " || ".join(f"'{marks.INHERITED_FROM}' in {_map(of, 'labels')}" for of in ("object", "oldObject"))
    return f"(!has(request.subResource) && !{KUBERNETES} && ({labels}))"


def _quoted(words: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _holds(of: str) -> str:
    """Return the expression for: an object would hold the end of something of Tenantry's, with a finalizer of its own.

    Source: Kubernetes, "Garbage Collection" (foreground deletion waits for dependents that block it).
    """
    made = "'ResourceQuota', 'LimitRange', 'NetworkPolicy', 'RoleBinding'"
    ours = (
        f"o.apiVersion.startsWith('{marks.GROUP}/') || (o.kind == 'Namespace' && o.apiVersion == 'v1')"
        f" || (o.kind in [{made}] && o.name.startsWith('tenantry-'))"
        f" || (o.kind == 'RoleBinding' && o.name.startsWith('{ROLE_BINDING_PREFIX}'))"
    )
    return f"{_owners(of)}.exists(o, o.?blockOwnerDeletion.orValue(false) && ({ours}))"


def _clusters_own() -> str:
    """Return the expression for: it is a write of what only the cluster's machinery, or Tenantry's, writes."""
    both = [name.partition("/") for name in CLUSTERS_OWN]
    whole = [name for name, _, subresource in both if not subresource]
    of_binding = [name for name, _, subresource in both if subresource == "binding"]
    of_status = [name for name, _, subresource in both if subresource == "status"]
    # Who decides a request is checked by policies of its own.
    decided = [kind.resource.plural for kind in REQUESTS]
    resource = "request.resource.resource"
    return (
        "(has(request.subResource)"
        f" ? (request.subResource == 'status' && ({resource} in [{_quoted(of_status)}]"
        f" || (request.resource.group == '{marks.GROUP}' && !({resource} in [{_quoted(decided)}])))"
        f" || request.subResource == 'binding' && {resource} in [{_quoted(of_binding)}])"
        f" : {resource} in [{_quoted(whole)}])"
    )


def _may_anywhere() -> str:
    """Return the expression for: it is somebody of the cluster's, as a scheduler or the controller of an Ingress.

    A right that is given in a tenant's namespace, however wide, does not reach kube-system.
    """
    what = (
        "authorizer.group(request.resource.group).resource(request.resource.resource)"
        ".subresource(has(request.subResource) ? request.subResource : '').namespace('kube-system')"
    )
    verbs = f"{what}.check('update').allowed() || {what}.check('patch').allowed()"
    return f"(request.operation == 'CREATE' ? {what}.check('create').allowed() : {verbs})"


# -- namespaces themselves ------------------------------------------------------------------------


def _namespaces(subject: Json) -> Json:
    """Return the policy on namespaces that are Tenantry's, or would look as if they were.

    No namespaceSelector: it would look at the labels that a request leaves, not at those that it takes away.
    """

    def ours(of: str) -> str:
        named = f"{of}.metadata.name == '{marks.SYSTEM_NAMESPACE}'"
        marked = f"{_many(of)} || {_any(of, is_ours('k'))}"
        return f"({of} != null && (({of}.?metadata.name.hasValue() && {named}) || {marked}))"

    # The end of a namespace is theirs: the garbage collector's and the namespace controller's.
    by_kubernetes = f"({KUBERNETES} && request.operation != 'CREATE')"
    asked = f"!({by(subject)}) && ({ours('object')} || {ours('oldObject')}) && !{by_kubernetes} && !{ADMINISTER}"
    which = "\"namespace '\" + oldObject.metadata.name + \"' is Tenantry's: "
    validations = [
        _few(),
        says(
            "request.operation != 'DELETE'",
            f'{which}delete its Subnamespace, or ask an administrator to delete its Tenant"',
            told=True,
        ),
        says(
            "!has(request.subResource) || request.operation == 'DELETE'",
            f'{which}its status and its finalizers are written by the cluster alone"',
            told=True,
        ),
        *_untouched(
            "false",
            "'it is Tenantry\\'s, and says whose a namespace is and how it is guarded; what it says comes from the"
            " Tenant or the Subnamespace'",
        ),
        *(
            says(
                f"request.operation != 'UPDATE' || {_list('object', field)} == {_list('oldObject', field)}",
                f"metadata.{field} of a namespace that is Tenantry's must not change: they decide when it ends",
            )
            for field in ("ownerReferences", "finalizers")
        ),
    ]
    about = rule("", ["namespaces", "namespaces/status", "namespaces/finalize"], "CREATE", "UPDATE", "DELETE")
    return validating(
        NAMESPACES,
        [about],
        validations,
        conditions={"a-tenants-and-not-by-an-administrator": asked},
        variables=_touched(is_protected("k")),
    )


def _list(of: str, field: str) -> str:
    return f"{of}.?metadata.{field}.orValue([])"

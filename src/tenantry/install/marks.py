"""The policies by which only administrators write Tenantry's marks, and the namespaces that carry them. Pure.

Labels and annotations decide which tenant owns a namespace, what is inherited, and which subjects a suspension
restores. So tenants may not write them, with any verb or subresource, nor through a controller of Kubernetes that
copies them from a template. The policies hold while the operator is down.

Source: Kubernetes, "Validating Admission Policy"; DESIGN section 4 (protected marks).
"""

from __future__ import annotations

import msgspec

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.api.ownnamespaces import HOSTED_PREFIX, OWN_NAMESPACES
from tenantry.api.peercluster import PREFIX as OF_PEERS
from tenantry.api.requests import REQUESTS, ROLE_BINDING_PREFIX
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.install.bandwidth import ANNOTATIONS as BANDWIDTH
from tenantry.install.makers import is_stamped
from tenantry.install.mirror import BY_MIRROR
from tenantry.install.peers import BY_GUEST, EXCEEDED, EXCEEDS
from tenantry.install.policy import ADMINISTER, IN_TENANTS, KUBERNETES, bound, by, rule, says, validating

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
"""Written by the cluster's own components only: the node of a pod, addresses, volumes, devices, usage."""

MOST = 1000
"""The most labels, annotations or owners of an object in a tenant's namespace."""


class ObjectGuard(msgspec.Struct, frozen=True, kw_only=True):
    """What else the policy on everything in tenants' namespaces refuses.

    Args:
        rules: Requests that it is about beside creations and updates.
        suspicious: CEL for a condition: whether it refuses the request, unless an administrator sent it.
        message: CEL: the refusal.
    """

    rules: list[Json]
    suspicious: str
    message: str


def protection(subject: Json, guard: ObjectGuard) -> list[Json]:
    """Return the policies and their bindings.

    Args:
        subject: The operator, as RBAC names it.
        guard: Of the objects that Tenantry creates.
    """
    return [*bound(_inside(subject, guard)), *bound(_namespaces(subject))]


def is_ours(key: str) -> str:
    """Return CEL: whether a key is one of Tenantry's, including those that users may set."""
    return f"({key}.startsWith('{marks.GROUP}/') || {key}.contains('.{marks.GROUP}/'))"


def is_protected(key: str) -> str:
    """Return `marks.is_protected` as CEL."""
    users = ", ".join(f"'{mark}'" for mark in sorted(marks.USER_MARKS))
    return f"(({is_ours(key)} || {key}.startsWith('{marks.POD_SECURITY}/')) && !({key} in [{users}]))"


def _map(of: str, field: str) -> str:
    """Return CEL: the labels or annotations of an object; empty if there are none, or no object."""
    return f"({of} == null ? {{}} : {of}.?metadata.{field}.orValue({{}}))"


def _any(of: str, of_key: str) -> str:
    """Return CEL: whether a condition on the key `k` holds for a label or annotation of an object."""
    return " || ".join(f"{_map(of, field)}.exists(k, {of_key})" for field in ("labels", "annotations"))


def _many(of: str) -> str:
    """Return CEL: whether an object has too many labels, annotations or owners to evaluate.

    An expression over the cost limit refuses the request, also an administrator's, who could not delete the object.
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
    """Return variables: the keys of labels and annotations for which a condition holds, and that the request changes.

    Empty if there are too many, which is refused anyway: to filter n of them takes n² steps.
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
        unless: CEL: whether they hold anyway.
        why: CEL: the end of the message, after the key.
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


def _inside(subject: Json, guard: ObjectGuard) -> Json:
    """Return the policy on everything in tenants' namespaces.

    Every write there evaluates it, and each policy with conditions costs a conversion of the object. So there is one
    policy with one condition, which is false early for objects without marks.
    """
    # The network plugin reads the annotation when the pod starts, and the quota counted it when the pod was created.
    fixed = (
        f"(request.operation == 'UPDATE' && request.resource.resource == 'pods' && k in [{_quoted(sorted(BANDWIDTH))}])"
    )
    # Where a node passes them on, they mount files of the node, or set options of the sandbox itself.
    runtimes = " || ".join(f"k.startsWith('{prefix}')" for prefix in marks.OF_RUNTIMES)
    # The mirror of a namespace's own virtual control planes, and that of another cluster, name the mirrored objects.
    mirrored = f"(k.startsWith('{PREFIX}/') && {BY_MIRROR} || k.startsWith('{OF_PEERS}/') && {BY_GUEST})"
    mark = f"{is_protected('k')} && !{is_stamped('k')} && !{mirrored}"
    of_key = f"({mark} || {fixed} || request.resource.resource == 'pods' && ({runtimes}))"
    # Updates by Kubernetes copy nothing from tenants' objects, and must pass whatever an object carries. New objects
    # come from templates; but endpoints have the labels of their Service, which may be inherited.
    by_kubernetes = (
        f"({KUBERNETES}"
        " && (request.operation == 'UPDATE' || request.resource.resource in ['endpoints', 'endpointslices']))"
    )
    changed = f"(request.operation != 'DELETE' && ({_suspicious(of_key)}) && !{by_kubernetes})"
    asked = f"!({by(subject)}) && ({changed} || {guard.suspicious} || {EXCEEDED}) && !{ADMINISTER}"
    everything = {**rule("*", ["*/*"]), "scope": "Namespaced"}
    validations = [
        says(f"!{guard.suspicious}", guard.message, told=True),
        says(f"!{EXCEEDED}", EXCEEDS, told=True),
        _few(),
        says(
            f"!({_clusters_own()}) || {_may_anywhere()}",
            "request.resource.resource + (has(request.subResource) ? '/' + request.subResource : '')"
            " + ' is written only by the cluster: a user needs the right to write it in kube-system'",
            told=True,
        ),
        *_untouched(
            _inherited(),
            "(variables.in_use ? 'the bandwidth of a pod is counted when it is created; create another pod'"
            " : variables.of_runtime ? 'it changes how the container runtime of a node runs the pod; an administrator'"
            " + ' sets it, and what a pod may choose is its spec.runtimeClassName'"
            f" : 'it is Tenantry\\'s; you may set {', '.join(sorted(marks.USER_MARKS))}')",
        ),
        says(
            f"!({_holds('object')}) || ({_holds('oldObject')})",
            "metadata.ownerReferences must not have blockOwnerDeletion for objects of Tenantry: it would delay"
            " their deletion",
        ),
    ]
    first = "(size(variables.labels) > 0 ? variables.labels[0] : variables.annotations[0])"
    of_runtime = " || ".join(f"{first}.startsWith('{prefix}')" for prefix in marks.OF_RUNTIMES)
    in_use = {
        "in_use": "size(variables.labels) == 0 && variables.annotations[0].startsWith('k')",
        "of_runtime": of_runtime,
    }
    return validating(
        MARKS,
        [everything, *guard.rules],
        validations,
        conditions={"has-marks-or-is-the-clusters": asked},
        where=IN_TENANTS,
        variables={**_touched(of_key), **in_use},
    )


def _suspicious(of_key: str) -> str:
    """Return CEL: whether a creation or an update may change marks, or writes what only the cluster writes.

    It goes over the labels and annotations once, and looks further only if there is a mark among them.

    Args:
        of_key: CEL: whether the key `k` is a mark.
    """
    maps = ", ".join(_map(of, field) for of in ("object", "oldObject") for field in ("labels", "annotations"))
    marked = f"[{maps}].exists(m, size(m) > {MOST} || m.exists(k, {of_key}))"
    owned = f"size({_owners('object')}) > {MOST} || size({_owners('oldObject')}) > {MOST} || {_holds('object')}"
    excused = f"({_inherited()} && !({_many('object')}) && !({_many('oldObject')}))"
    return f"({marked} && !{excused}) || {owned} || {_clusters_own()}"


def _inherited() -> str:
    """Return CEL: whether the policy on inherited objects refuses the request, with a better message."""
    labels = " || ".join(f"'{marks.INHERITED_FROM}' in {_map(of, 'labels')}" for of in ("object", "oldObject"))
    return f"(!has(request.subResource) && !{KUBERNETES} && ({labels}))"


def _quoted(words: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _holds(of: str) -> str:
    """Return CEL: whether an object would block the deletion of an object of Tenantry's, with a finalizer of its own.

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
    """Return CEL: whether the request writes a resource that only the cluster, or Tenantry, writes."""
    both = [name.partition("/") for name in CLUSTERS_OWN]
    whole = [name for name, _, subresource in both if not subresource]
    of_binding = [name for name, _, subresource in both if subresource == "binding"]
    of_status = [name for name, _, subresource in both if subresource == "status"]
    # Decisions on requests have policies of their own.
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
    """Return CEL: whether the user is a component of the cluster, as a scheduler or an ingress controller.

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
    """Return the policy on namespaces that are Tenantry's, or would look like it.

    No namespaceSelector: it would see the labels after the request, without those that the request removes.
    """

    def ours(of: str) -> str:
        named = f"{of}.metadata.name in [{', '.join(map(repr, OWN_NAMESPACES))}]"
        named = f"({named} || {of}.metadata.name.startsWith('{HOSTED_PREFIX}'))"
        marked = f"{_many(of)} || {_any(of, is_ours('k'))}"
        return f"({of} != null && (({of}.?metadata.name.hasValue() && {named}) || {marked}))"

    # The garbage collector and the namespace controller delete namespaces.
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
            "'only Tenantry sets it: it records the tenant of a namespace and its protection; change the Tenant or the"
            " Subnamespace'",
        ),
        *(
            says(
                f"request.operation != 'UPDATE' || {_list('object', field)} == {_list('oldObject', field)}",
                f"metadata.{field} of a namespace that Tenantry manages must not change: they determine"
                " when it is deleted",
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

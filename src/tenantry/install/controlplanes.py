"""The policies on VirtualControlPlanes, which hold while the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy", "Finalizers".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_FINALIZER, VirtualControlPlane
from tenantry.install.policy import (
    ADMINISTER,
    KUBERNETES,
    adds_no_finalizer,
    bound,
    exists,
    not_administrator,
    not_operator,
    rule,
    says,
    validating,
)

PROCESSES = "tenantry-virtual-control-planes"
KEPT = "tenantry-kept-control-planes"
WHOLE = "tenantry-whole-control-planes"


def everything(subject: Json) -> list[Json]:
    """Return the policy that keeps the finalizers of VirtualControlPlanes, and its binding (H01).

    Without that of the operator, the object and its charge would be gone while the process runs. With one of a user, it
    would not end: neither with its namespace, nor when its objects have moved back to the host.

    Args:
        subject: The operator, as RBAC names it.
    """
    finalizers = keeping(
        PROCESSES,
        VirtualControlPlane.resource,
        PROCESS_FINALIZER,
        kept="the operator sets it while the process of the control plane exists; to end it, delete the"
        " VirtualControlPlane",
        added="a VirtualControlPlane must not be set: its process would outlast its deletion",
        subject=subject,
    )
    told = (
        "a VirtualControlPlane must not be deleted with propagationPolicy Orphan, because its pods and other objects on"
        " the host would stay: delete it without --cascade=orphan"
    )
    return [*finalizers, *whole(WHOLE, VirtualControlPlane.resource, told), *_own(subject)]


def keeping(name: str, kind: Resource, finalizer: str, *, kept: str, added: str, subject: Json) -> list[Json]:
    """Return the policy by which only administrators and the operator change finalizers of a kind, and its binding.

    Args:
        name: Of the policy.
        kind: The kind.
        finalizer: The one that the operator sets.
        kept: Why it must not be lost.
        added: See `adds_no_finalizer`.
        subject: The operator, as RBAC names it.
    """
    new = f"(has(object.metadata.finalizers) && '{finalizer}' in object.metadata.finalizers)"
    old = f"(has(oldObject.metadata.finalizers) && '{finalizer}' in oldObject.metadata.finalizers)"
    validations = [
        says(
            f"request.operation == 'CREATE' || {new} || !{old}",
            f"metadata.finalizers must not lose {finalizer}: {kept}",
        ),
        adds_no_finalizer(added),
    ]
    rules = [rule(kind.group, [kind.plural], "CREATE", "UPDATE")]
    return bound(validating(name, rules, validations, conditions=not_administrator(subject)))


def whole(name: str, kind: Resource, told: str) -> list[Json]:
    """Return the policy that has an object end with what it owns, and its binding.

    Pods and Secrets that outlast it would belong to no control plane, and their marks keep owners from changing them.
    The finalizer `orphan` of Kubernetes, which has the same effect, is refused by the policy of the finalizers.

    Args:
        name: Of the policy.
        kind: The kind.
        told: What is refused, why, and what to do.
    """
    allowed = says(
        "request.options.?propagationPolicy.orValue('') != 'Orphan'"
        " && request.options.?orphanDependents.orValue(false) != true",
        told,
    )
    return bound(validating(name, [rule(kind.group, [kind.plural], "DELETE")], [allowed]))


def _own(subject: Json) -> list[Json]:
    """Return the policy that keeps the control plane of a Tenant or Subnamespace, and its binding.

    Its deletion loses all objects of the tenant, and `kubectl delete vcp --all` is typed quickly: administrators
    annotate it first. Kubernetes deletes it with its namespace.

    Args:
        subject: The operator, as RBAC names it.
    """
    resource = VirtualControlPlane.resource
    may = f"{ADMINISTER} && '{marks.ALLOW_DELETION}' in oldObject.?metadata.annotations.orValue({{}})"
    told = (
        '"VirtualControlPlane \'" + oldObject.metadata.name + "\' has all objects of the users of namespace \'"'
        " + request.namespace + \"' and must not be deleted: delete the Tenant or Subnamespace, or as an administrator"
        f' annotate it with {marks.ALLOW_DELETION}=true first"'
    )
    conditions = {"not-kubernetes": f"!{KUBERNETES}", **not_operator(subject), "not-allowed": f"!({may})"}
    # A condition has no `namespaceObject`.
    others = says(
        f"namespaceObject.metadata.labels['{marks.CONTROL_PLANE}'] != oldObject.metadata.name", told, told=True
    )
    rules = [rule(resource.group, [resource.plural], "DELETE")]
    return bound(validating(KEPT, rules, [others], conditions=conditions, where=exists(marks.CONTROL_PLANE)))

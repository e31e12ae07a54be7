"""The policy on VirtualControlPlanes, which holds while the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy", "Finalizers".
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_FINALIZER, VirtualControlPlane
from tenantry.install.policy import bound, not_administrator, rule, says, validating

PROCESSES = "tenantry-virtual-control-planes"


def everything(subject: Json) -> list[Json]:
    """Return the policy that keeps the finalizer of VirtualControlPlanes, and its binding (H01).

    Without the finalizer, the object and its charge would be gone while the process runs. With the finalizer of a user,
    an object that no operator serves could not be deleted.

    Args:
        subject: The operator, as RBAC names it.
    """
    new = f"(has(object.metadata.finalizers) && '{PROCESS_FINALIZER}' in object.metadata.finalizers)"
    old = f"(has(oldObject.metadata.finalizers) && '{PROCESS_FINALIZER}' in oldObject.metadata.finalizers)"
    kept = says(
        f"request.operation == 'CREATE' ? !{new} : {new} == {old}",
        f"metadata.finalizers must not be given or lose {PROCESS_FINALIZER}: the operator sets it while the process of"
        " the control plane exists; to end it, delete the VirtualControlPlane",
    )
    resource = VirtualControlPlane.resource
    rules = [rule(resource.group, [resource.plural], "CREATE", "UPDATE")]
    return bound(validating(PROCESSES, rules, [kept], conditions=not_administrator(subject)))

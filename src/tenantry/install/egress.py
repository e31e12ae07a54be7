"""The policy on what only administrators decide of control planes: ways out of the host, and guards. Pure.

`spec.egress` of a VirtualControlPlane has the operator connect to addresses outside of the cluster, and `spec.guards`
binds administrators inside. A user who may write VirtualControlPlanes of a tenant may not choose either.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.install.policy import bound, not_administrator, rule, says, validating

NAME = "tenantry-plane-egress"


def everything(subject: Json) -> list[Json]:
    """Return the policy and its binding.

    Args:
        subject: The operator, as RBAC names it.
    """
    kind = VirtualControlPlane.resource
    lists = ("allowedCidrs", "allowedHosts", "issuers")
    # A removal counts as a change, too: users inside rely on it.
    changes = " || ".join(
        f"object.?spec.?egress.?{name}.orValue([])"
        f" != (oldObject == null ? [] : oldObject.?spec.?egress.?{name}.orValue([]))"
        for name in lists
    )
    guards = "object.?spec.?guards.orValue([]) != (oldObject == null ? [] : oldObject.?spec.?guards.orValue([]))"
    told = "spec.egress may not be changed: only administrators allow hosts outside of the cluster"
    told_guards = "spec.guards may not be changed: only administrators decide what is refused to administrators inside"
    return bound(
        validating(
            NAME,
            [rule(kind.group, [kind.plural])],
            [says(f"!({changes})", told), says(f"!({guards})", told_guards)],
            conditions={"changes": f"{changes} || {guards}", **not_administrator(subject)},
        )
    )

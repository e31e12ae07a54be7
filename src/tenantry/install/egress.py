"""The policy that lets only administrators open a way out of the host for control planes: pure.

`spec.egress` of a VirtualControlPlane has the operator connect to addresses outside of the cluster. A user who may
write VirtualControlPlanes of a tenant may not choose these addresses.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.install.policy import not_administrator, refusing, rule

NAME = "tenantry-plane-egress"


def everything(subject: Json) -> list[Json]:
    """Return the policy and its binding.

    Args:
        subject: The operator, as RBAC names it.
    """
    kind = VirtualControlPlane.resource
    lists = ("allowedCidrs", "allowedHosts")
    # A removal counts as a change, too: users inside rely on it.
    changes = " || ".join(
        f"object.?spec.?egress.?{name}.orValue([])"
        f" != (oldObject == null ? [] : oldObject.?spec.?egress.?{name}.orValue([]))"
        for name in lists
    )
    return refusing(
        NAME,
        [rule(kind.group, [kind.plural])],
        "spec.egress may not be changed: only administrators allow hosts outside of the cluster",
        conditions={"changes-egress": changes, **not_administrator(subject)},
    )

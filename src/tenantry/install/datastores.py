"""The policy that lets only administrators choose some datastores of control planes: pure.

`External` connects a control plane to an address outside of the cluster, with a Secret of the operator's namespace.
`OwnEtcd` starts a process that no quota is charged for.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import RESTRICTED_DATASTORES, VirtualControlPlane
from tenantry.install.policy import not_administrator, refusing, rule

NAME = "tenantry-plane-datastore"


def everything(subject: Json) -> list[Json]:
    """Return the policy and its binding.

    Args:
        subject: The operator, as RBAC names it.
    """
    kind = VirtualControlPlane.resource
    of = "{}.?spec.?datastore.?kind.orValue('')"
    restricted = ", ".join(f"'{each}'" for each in RESTRICTED_DATASTORES)
    named = "{}.?spec.?datastore.?secretRef.?name.orValue('')"
    return refusing(
        NAME,
        [rule(kind.group, [kind.plural])],
        "spec.datastore may only be SQLite or SharedEtcd: administrators choose the other kinds",
        conditions={
            "is-restricted": f"{of.format('object')} in [{restricted}]",
            # Their owners change other fields of what an administrator has created.
            "is-new": f"oldObject == null || {of.format('oldObject')} != {of.format('object')}"
            f" || {named.format('oldObject')} != {named.format('object')}",
            **not_administrator(subject),
        },
    )

"""The policies that let only administrators choose some datastores of control planes: pure.

`External` connects a control plane to an address outside of the cluster, with a Secret of the operator's namespace.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import RESTRICTED_DATASTORES, VirtualControlPlane
from tenantry.install.policy import not_administrator, refusing, rule

NAME = "tenantry-plane-datastore"
CLUSTERS = "tenantry-cluster-datastore"


def everything(subject: Json) -> list[Json]:
    """Return the policies and their bindings.

    The operator creates the control plane of a DedicatedCluster, and no policy restricts the operator: what its owners
    may choose is refused in the DedicatedCluster.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [
        *_restricted(NAME, VirtualControlPlane.resource, "datastore", subject),
        *_restricted(CLUSTERS, DedicatedCluster.resource, "controlPlane.datastore", subject),
    ]


def _restricted(name: str, kind: Resource, field: str, subject: Json) -> list[Json]:
    path = ".?".join(("{}", "spec", *field.split(".")))
    of, named = f"{path}.?kind.orValue('')", f"{path}.?secretRef.?name.orValue('')"
    restricted = ", ".join(f"'{each}'" for each in RESTRICTED_DATASTORES)
    return refusing(
        name,
        [rule(kind.group, [kind.plural])],
        f"spec.{field} may only be SQLite, SharedEtcd or OwnEtcd: administrators choose External",
        conditions={
            "is-restricted": f"{of.format('object')} in [{restricted}]",
            # Their owners change other fields of what an administrator has created.
            "is-new": f"oldObject == null || {of.format('oldObject')} != {of.format('object')}"
            f" || {named.format('oldObject')} != {named.format('object')}",
            **not_administrator(subject),
        },
    )

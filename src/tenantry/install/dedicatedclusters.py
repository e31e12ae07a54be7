"""The policies on DedicatedClusters and their control planes, which hold while the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy", "Finalizers".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.clusterapi import TenantryControlPlane
from tenantry.api.dedicatedcluster import CLUSTER_FINALIZER, DedicatedCluster
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.install.controlplanes import keeping, whole
from tenantry.install.policy import (
    ADMINISTER,
    KUBERNETES,
    bound,
    not_administrator,
    not_operator,
    rule,
    says,
    validating,
)

CLUSTERS = "tenantry-dedicated-clusters"
WHOLE = "tenantry-whole-dedicated-clusters"
PLANES = "tenantry-cluster-control-planes"
OWNED = "tenantry-owned-control-planes"

_KINDS = ", ".join(f"'{kind.resource.kind}'" for kind in (DedicatedCluster, TenantryControlPlane))
_IS_CLUSTER = f"(o.kind in [{_KINDS}] && o.?controller.orValue(false))"
_OF_A_CLUSTER = (
    f"has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(o, {_IS_CLUSTER})"
)


def everything(subject: Json) -> list[Json]:
    """Return the policies and their bindings.

    Args:
        subject: The operator, as RBAC names it.
    """
    finalizers = keeping(
        CLUSTERS,
        DedicatedCluster.resource,
        CLUSTER_FINALIZER,
        kept="the operator sets it while nodes serve the cluster; to end it, delete the DedicatedCluster",
        added="a DedicatedCluster must not be set: it would not end with its namespace",
        subject=subject,
    )
    told = (
        "a DedicatedCluster must not be deleted with propagationPolicy Orphan, because its control plane and its claims"
        " would stay: delete it without --cascade=orphan"
    )
    return [*finalizers, *whole(WHOLE, DedicatedCluster.resource, told), *_planes(subject), *_owned(subject)]


def _planes(subject: Json) -> list[Json]:
    """Return the policy that keeps the control plane of a DedicatedCluster or of Cluster API, and its binding.

    Its deletion loses all objects of the cluster, and the operator would create an empty one. The owner of the object
    may write a reference of this kind without a DedicatedCluster: an administrator deletes such an object.
    """
    kind = VirtualControlPlane.resource
    may = f"{ADMINISTER} && '{marks.ALLOW_DELETION}' in oldObject.?metadata.annotations.orValue({{}})"
    told = (
        '"VirtualControlPlane \'" + oldObject.metadata.name + "\' has all objects of a DedicatedCluster and must not be'
        " deleted: delete the DedicatedCluster or the Cluster of Cluster API, or as an administrator annotate the"
        " VirtualControlPlane with"
        f' {marks.ALLOW_DELETION}=true first"'
    )
    conditions = {
        "of-a-cluster": _OF_A_CLUSTER,
        "not-kubernetes": f"!{KUBERNETES}",
        **not_operator(subject),
        "not-allowed": f"!({may})",
    }
    rules = [rule(kind.group, [kind.plural], "DELETE")]
    return bound(validating(PLANES, rules, [says("false", told, told=True)], conditions=conditions))


def _owned(subject: Json) -> list[Json]:
    """Return the policy that keeps the reference of a control plane to what controls it, and its binding.

    Without it, an owner could delete the control plane by itself, and nodes would serve what no DedicatedCluster has.
    """
    kind = VirtualControlPlane.resource
    kept = (
        f"oldObject.metadata.ownerReferences.filter(o, {_IS_CLUSTER}).all(o, has(object.metadata.ownerReferences)"
        " && object.metadata.ownerReferences.exists(n, n.uid == o.uid && n.?controller.orValue(false)))"
    )
    told = (
        "metadata.ownerReferences must not lose the DedicatedCluster or TenantryControlPlane: delete that to end both"
    )
    conditions = {
        "of-a-cluster": _OF_A_CLUSTER,
        "not-kubernetes": f"!{KUBERNETES}",
        **not_administrator(subject),
    }
    rules = [rule(kind.group, [kind.plural], "UPDATE")]
    return bound(validating(OWNED, rules, [says(kept, told)], conditions=conditions))

"""The policies on DedicatedClusters and their control planes, which hold while the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy", "Finalizers".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.dedicatedcluster import CLUSTER_FINALIZER, DedicatedCluster
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.install.controlplanes import keeping, whole
from tenantry.install.policy import ADMINISTER, KUBERNETES, bound, not_operator, rule, says, validating

CLUSTERS = "tenantry-dedicated-clusters"
WHOLE = "tenantry-whole-dedicated-clusters"
PLANES = "tenantry-cluster-control-planes"


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
    return [*finalizers, *whole(WHOLE, DedicatedCluster.resource, told), *_planes(subject)]


def _planes(subject: Json) -> list[Json]:
    """Return the policy that keeps the control plane of a DedicatedCluster, and its binding.

    Its deletion loses all objects of the cluster, and the operator would create an empty one. The owner of the object
    may write a reference of this kind without a DedicatedCluster: an administrator deletes such an object.
    """
    kind = VirtualControlPlane.resource
    owned = (
        "has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(o, o.kind =="
        f" '{DedicatedCluster.resource.kind}' && o.?controller.orValue(false))"
    )
    may = f"{ADMINISTER} && '{marks.ALLOW_DELETION}' in oldObject.?metadata.annotations.orValue({{}})"
    told = (
        '"VirtualControlPlane \'" + oldObject.metadata.name + "\' has all objects of a DedicatedCluster and must not be'
        " deleted: delete the DedicatedCluster, or as an administrator annotate the VirtualControlPlane with"
        f' {marks.ALLOW_DELETION}=true first"'
    )
    conditions = {
        "of-a-cluster": owned,
        "not-kubernetes": f"!{KUBERNETES}",
        **not_operator(subject),
        "not-allowed": f"!({may})",
    }
    rules = [rule(kind.group, [kind.plural], "DELETE")]
    return bound(validating(PLANES, rules, [says("false", told, told=True)], conditions=conditions))

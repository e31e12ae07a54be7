"""The policies on DedicatedClusters and their control planes, which hold while the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy", "Finalizers".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.clusterapi import TenantryControlPlane, TenantryMachine
from tenantry.api.dedicatedcluster import CLUSTER_FINALIZER, DedicatedCluster
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.slice import SliceClaim
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
CHILDREN = "tenantry-cluster-children"

DECIDED = (
    *("version", "replicas", "datastore", "resources", "nodes", "addOns", "guards", "hosting", "runtime", "sleep"),
    *("endpoint", "network", "owners", "authentication", "audit", "featureGates"),
)
"""Fields of the spec of a VirtualControlPlane that its DedicatedCluster alone decides: requests are not among them."""


def _controls(*kinds: type[KubernetesObject]) -> str:
    """Return CEL: the owner reference `o` is a controlling one of these kinds."""
    names = ", ".join(f"'{kind.resource.kind}'" for kind in kinds)
    return f"(o.kind in [{names}] && o.?controller.orValue(false))"


_IS_CLUSTER = _controls(DedicatedCluster, TenantryControlPlane)
_SAME = "n.uid == o.uid && n.kind == o.kind && n.?controller.orValue(false)"
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
    return [
        *finalizers,
        *whole(WHOLE, DedicatedCluster.resource, told),
        *_planes(subject),
        *_owned(subject),
        *_children(subject),
    ]


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
    """Return the policy that keeps a control plane as what controls it has made it, and its binding.

    Without the reference, an owner could delete the control plane by itself, and nodes would serve what no
    DedicatedCluster has. With a larger spec, a cluster would have above the limits of its template what it then keeps.
    """
    kind = VirtualControlPlane.resource
    kept = (
        f"oldObject.metadata.ownerReferences.filter(o, {_IS_CLUSTER}).all(o, has(object.metadata.ownerReferences)"
        f" && object.metadata.ownerReferences.exists(n, {_SAME}))"
    )
    same = " && ".join(f"object.?spec.{field} == oldObject.?spec.{field}" for field in DECIDED)
    kept_spec = f"!oldObject.metadata.ownerReferences.exists(o, {_controls(DedicatedCluster)}) || {same}"
    fields = ", ".join(f"spec.{field}" for field in DECIDED)
    told_spec = f"{fields} must not be changed here: the DedicatedCluster of the same name determines them"
    told = (
        "metadata.ownerReferences must not lose the DedicatedCluster or TenantryControlPlane: delete that to end both"
    )
    conditions = {
        "of-a-cluster": _OF_A_CLUSTER,
        "not-kubernetes": f"!{KUBERNETES}",
        **not_administrator(subject),
    }
    rules = [rule(kind.group, [kind.plural], "UPDATE")]
    validations = [says(kept, told), says(kept_spec, told_spec)]
    return bound(validating(OWNED, rules, validations, conditions=conditions))


def _children(subject: Json) -> list[Json]:
    """Return the policy by which users make no children of clusters, and its binding.

    What has such a reference counts as what the cluster has: an owner could create a control plane or claims above the
    limits of a template before the operator does. The operator takes objects without it for those of others.
    """
    there = (
        "request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences)"
        f" && oldObject.metadata.ownerReferences.exists(n, {_SAME})"
    )
    is_made = _controls(DedicatedCluster, TenantryControlPlane, TenantryMachine)
    none_new = f"!has(object.metadata.ownerReferences) || object.metadata.ownerReferences.all(o, !{is_made} || {there})"
    told = (
        "metadata.ownerReferences must not get a DedicatedCluster, TenantryControlPlane or TenantryMachine as"
        " controller: the operator creates what these have; leave the reference out"
    )
    kinds = (VirtualControlPlane.resource, SliceClaim.resource)
    rules = [rule(kinds[0].group, [kind.plural for kind in kinds])]
    return bound(validating(CHILDREN, rules, [says(none_new, told)], conditions=not_administrator(subject)))

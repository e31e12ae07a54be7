"""What `tenantry install --cluster-api-provider` adds: kinds that Cluster API creates, and the operator's rights. Pure.

Cluster API's own ClusterRole has the groups of these kinds. The operator gets rights on them and may read Clusters, of
which it reads `spec.paused`, and Machines with their KubeadmConfigs, of which it reads the token of a node. Owners get
no rights: administrators decide whose Clusters may use nodes of this cluster.

Source: The Cluster API Book, "Provider contracts" (labels of CRDs), "clusterctl provider contract".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from tenantry.api.clusterapi import (
    BOOTSTRAP_GROUP,
    CLUSTER_API_KINDS,
    CONTRACT,
    CONTROL_PLANE_GROUP,
    CORE_GROUP,
    TenantryControlPlane,
)
from tenantry.api.crd import custom_resource_definition
from tenantry.api.marks import VERSION
from tenantry.api.model import Json, KindAccess, KubernetesObject
from tenantry.install.rights import allow, cluster_role, given

ROLE = "tenantry-cluster-api"
CLUSTERS_ROLE = "tenantry-cluster-api-clusters"
PROVIDER = f"{CORE_GROUP}/provider"
INFRASTRUCTURE, CONTROL_PLANE = "infrastructure", "control-plane"
"""The two providers that clusterctl sees; the operator is both."""


def everything(subject: Json) -> list[Json]:
    """Return the CRDs, and the operator's role with its binding.

    Args:
        subject: The operator, as RBAC names it.
    """
    return [*(_definition(kind) for kind in CLUSTER_API_KINDS), *_granted(ROLE, CLUSTER_API_KINDS, subject)]


def part(of: str, subject: Json) -> list[Json]:
    """Return what `everything` has of one provider, with a role of its own.

    Args:
        of: INFRASTRUCTURE or CONTROL_PLANE.
        subject: The operator, as RBAC names it.
    """
    kinds = [kind for kind in CLUSTER_API_KINDS if part_of(kind) == of]
    return [*(_definition(kind) for kind in kinds), *_granted(f"{ROLE}-{of}", kinds, subject)]


def part_of(kind: type[KubernetesObject]) -> str:
    """Return which provider a kind belongs to."""
    return CONTROL_PLANE if kind.resource.group == CONTROL_PLANE_GROUP else INFRASTRUCTURE


def _granted(name: str, kinds: Iterable[type[KubernetesObject]], subject: Json) -> list[Json]:
    rules = [
        *(rule for kind in kinds for rule in _rules(kind)),
        allow([CORE_GROUP], ["clusters", "machines"], ["get"]),
        allow([BOOTSTRAP_GROUP], ["kubeadmconfigs"], ["get"]),
    ]
    return [cluster_role(name, rules=rules), given(name, subject)]


def clusters(subject: Json) -> list[Json]:
    """Return what `tenantry install --cluster-api-clusters` adds: rights to keep Clusters and to read ClusterClasses.

    Args:
        subject: The operator, as RBAC names it.
    """
    role = cluster_role(
        CLUSTERS_ROLE,
        rules=[
            allow([CORE_GROUP], ["clusters"], ["get", "create", "patch", "delete"]),
            # To say that one is missing, and which versions it has.
            allow([CORE_GROUP], ["clusterclasses"], ["get"]),
        ],
    )
    return [role, given(CLUSTERS_ROLE, subject)]


def _definition(kind: type[KubernetesObject]) -> Json:
    definition = custom_resource_definition(kind)
    if kind is not TenantryControlPlane:
        # Cluster API leaves an empty spec out.
        del definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["required"]
    definition["metadata"]["labels"] = {CONTRACT: VERSION, PROVIDER: f"{part_of(kind)}-tenantry"}
    return definition


def _rules(kind: type[KubernetesObject]) -> list[Json]:
    access, resource = cast("KindAccess", vars(kind)["access"]), kind.resource
    whole = [allow([resource.group], [resource.plural], access.operator)] if access.operator else []
    # `finalizers`: if OwnerReferencesPermissionEnforcement is on, owner references of children need them.
    parts = [f"{resource.plural}/{each}" for each in (*access.updates, "finalizers")] if access.updates else []
    return [*whole, *([allow([resource.group], parts, ["update"])] if parts else [])]

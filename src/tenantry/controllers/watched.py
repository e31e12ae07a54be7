"""The watches of kinds that several controllers share: one cache each, with one decoding and one selection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import msgspec

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.kubernetes import ClusterRole, LimitRange, NamespaceRole, OwnerRole, ResourceQuota
from tenantry.api.marks import MANAGED_BY, MANAGER, OWNER_ROLE, SUBNAMESPACE_UID, TENANT
from tenantry.api.model import KubernetesObject, Resource, object_key
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.runtime import RuntimeClass
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import MAPS, OWN_MARK
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.engine.cache import Change
from tenantry.engine.cluster import CRDS, Watch
from tenantry.engine.crds import CrdState, observe_crd
from tenantry.engine.observed import Observed, observe
from tenantry.world import inheritance

BY_TENANT = "tenant"
BY_NAMESPACE = "namespace"
BY_BINDING = "binding"
"""Index of child namespaces by the uid of the Subnamespace that they are bound to."""

BY_RECORD = "record"
"""Index of TenantResourceQuotas by the namespaces and peers of their records, as `namespace/peer`."""

BY_ADOPTION = "adoption"
"""Index of Subnamespaces that adopt a namespace, by its name and by the key of the Subnamespace that had it."""

OURS = {"labelSelector": f"{MANAGED_BY}={MANAGER}"}
"""Selector for kinds of which only our own objects matter."""


_SELECTORS = {
    ResourceQuota.resource: OURS,
    ClusterRole.resource: OURS,
    PolicyParameters.resource: {"labelSelector": PolicyParameters.resource.selected},
    NamespaceRole.resource: {"labelSelector": NamespaceRole.resource.selected},
    LimitRange.resource: inheritance.selectors_of(LimitRange.resource),
}


def selectors_of(resource: Resource) -> dict[str, str] | None:
    """Return the selectors of the objects of a kind that are read; None for all of them."""
    return _SELECTORS.get(resource)


def watch(resource: Resource, keys: Callable[[Change[Observed]], Iterable[str]], *, optional: bool = False) -> Watch:
    """Return the watch of a kind that is cached as `Observed`."""
    indexes: dict[str, Callable[[Any], Iterable[str]]] = {BY_TENANT: tenant_of}
    if resource.namespaced:
        indexes[BY_NAMESPACE] = namespace_of
    if resource.plural == "namespaces":
        indexes[BY_BINDING] = binding_of
    return Watch(
        resource=resource,
        decode=_observer(resource),
        keys=keys,
        selectors=selectors_of(resource),
        indexes=indexes,
        optional=optional,
    )


@cache
def decoder(kind: type[KubernetesObject]) -> Callable[[msgspec.Raw], Any]:
    """Return the function that decodes a kind whole, one for each kind."""
    return msgspec.json.Decoder(kind).decode


@cache
def _observer(resource: Resource) -> Callable[[msgspec.Raw], Observed]:
    """Return one function for each kind: watches that share a cache must have the same decoder."""
    return partial(observe, resource)


def tenants(keys: Callable[[Change[Tenant]], Iterable[str]]) -> Watch:
    """Return the watch of tenants."""
    return Watch(resource=Tenant.resource, decode=decoder(Tenant), keys=keys)


def defaults(keys: Callable[[Change[TenancyDefaults]], Iterable[str]]) -> Watch:
    """Return the watch of TenancyDefaults."""
    return Watch(resource=TenancyDefaults.resource, decode=decoder(TenancyDefaults), keys=keys)


def cluster_templates(keys: Callable[[Change[ClusterTemplate]], Iterable[str]]) -> Watch:
    """Return the watch of ClusterTemplates."""
    return Watch(resource=ClusterTemplate.resource, decode=decoder(ClusterTemplate), keys=keys)


def owner_role(keys: Callable[[Change[OwnerRole]], Iterable[str]]) -> Watch:
    """Return the watch of the role of owners."""
    selectors = {"fieldSelector": f"metadata.name={OWNER_ROLE}"}
    return Watch(resource=OwnerRole.resource, decode=decoder(OwnerRole), keys=keys, selectors=selectors)


def definitions(keys: Callable[[Change[CrdState]], Iterable[str]]) -> Watch:
    """Return the watch of the cluster's CRDs."""
    return Watch(resource=CRDS, decode=observe_crd, keys=keys)


def nodes(
    keys: Callable[[Change[Node]], Iterable[str]], indexes: Mapping[str, Callable[[Node], Iterable[str]]] | None = None
) -> Watch:
    """Return the watch of nodes."""
    return Watch(resource=Node.resource, decode=decoder(Node), keys=keys, indexes=indexes)


def node_handovers(keys: Callable[[Change[NodeHandover]], Iterable[str]]) -> Watch:
    """Return the watch of NodeHandovers."""
    return Watch(resource=NodeHandover.resource, decode=decoder(NodeHandover), keys=keys)


def runtime_classes(keys: Callable[[Change[RuntimeClass]], Iterable[str]]) -> Watch:
    """Return the watch of RuntimeClasses."""
    return Watch(resource=RuntimeClass.resource, decode=decoder(RuntimeClass), keys=keys)


def subnamespaces(keys: Callable[[Change[Subnamespace]], Iterable[str]]) -> Watch:
    """Return the watch of Subnamespaces, indexed by namespace."""
    return Watch(
        resource=Subnamespace.resource,
        decode=decoder(Subnamespace),
        keys=keys,
        indexes={BY_NAMESPACE: _parent_of, BY_ADOPTION: _adopted_by},
    )


def tenant_quotas(keys: Callable[[Change[TenantResourceQuota]], Iterable[str]]) -> Watch:
    """Return the watch of TenantResourceQuotas, indexed by the namespaces and peers of their records."""
    return Watch(
        resource=TenantResourceQuota.resource,
        decode=decoder(TenantResourceQuota),
        keys=keys,
        indexes={BY_RECORD: _recorded},
    )


def slices(keys: Callable[[Change[Slice]], Iterable[str]]) -> Watch:
    """Return the watch of Slices, indexed by tenant."""
    return Watch(resource=Slice.resource, decode=decoder(Slice), keys=keys, indexes={BY_TENANT: _slice_tenant})


def slice_claims(
    keys: Callable[[Change[SliceClaim]], Iterable[str]],
    indexes: Mapping[str, Callable[[SliceClaim], Iterable[str]]] | None = None,
) -> Watch:
    """Return the watch of SliceClaims, indexed by namespace and by more."""
    return Watch(
        resource=SliceClaim.resource,
        decode=decoder(SliceClaim),
        keys=keys,
        indexes={BY_NAMESPACE: _claim_namespace, **(indexes or {})},
    )


def dedicated_clusters(keys: Callable[[Change[DedicatedCluster]], Iterable[str]]) -> Watch:
    """Return the watch of DedicatedClusters."""
    return Watch(resource=DedicatedCluster.resource, decode=decoder(DedicatedCluster), keys=keys)


def control_planes(keys: Callable[[Change[VirtualControlPlane]], Iterable[str]]) -> Watch:
    """Return the watch of VirtualControlPlanes, indexed by namespace."""
    return Watch(
        resource=VirtualControlPlane.resource,
        decode=decoder(VirtualControlPlane),
        keys=keys,
        indexes={BY_NAMESPACE: _plane_namespace},
    )


def _plane_namespace(found: VirtualControlPlane) -> list[str]:
    return [found.metadata.namespace]


def _claim_namespace(found: SliceClaim) -> list[str]:
    return [found.metadata.namespace]


def _slice_tenant(found: Slice) -> list[str]:
    return [found.spec.tenant]


def _parent_of(found: Subnamespace) -> list[str]:
    return [found.metadata.namespace]


def _adopted_by(found: Subnamespace) -> list[str]:
    adopt = found.spec.adopt
    names = [adopt.namespace] if adopt.namespace else []
    return [*names, object_key(adopt.parent, found.metadata.name)] if adopt.parent else names


def own_key(change: Change[Any]) -> Iterable[str]:
    """Return the key of the object itself."""
    value = change.after or change.before
    return [value.key] if value is not None else []


def tenant_of_its_name(change: Change[Any], decides: Callable[[Any], object]) -> list[str]:
    """Return the tenant of an object that has the name of its core namespace; nothing if nothing of it is news.

    Args:
        change: Of the object.
        decides: Returns what the tenant depends on.
    """
    before, after = change.before, change.after
    value = after or before
    if value is None or value.metadata.name != value.metadata.namespace:
        return []
    if before is not None and after is not None and decides(before) == decides(after):
        return []
    return [value.metadata.name]


def tenant_of(found: Observed) -> list[str]:
    """Return the tenant that the label of an object of ours names."""
    name = found.labels.get(TENANT)
    return [name] if name and found.labels.get(MANAGED_BY) == MANAGER else []


def is_rules(found: Observed) -> bool:
    """Return whether an object of ours has the rules of a namespace as parameters of policies.

    It has no label of its tenant; see `policyparameters.parameters`.
    """
    return found.labels.get(OWN_MARK) in MAPS and found.labels.get(MANAGED_BY) == MANAGER


def namespace_of(found: Observed) -> list[str]:
    """Return an object's namespace."""
    return [found.namespace]


def binding_of(found: Observed) -> list[str]:
    """Return the uid of the Subnamespace that a namespace is bound to."""
    uid = found.labels.get(SUBNAMESPACE_UID)
    return [uid] if uid else []


def is_same(before: Observed, after: Observed) -> bool:
    """Return whether an object has the same marks, digest, owner and subjects as before."""
    return (
        is_marked_same(before, after)
        and before.digest == after.digest
        and before.owner_uid == after.owner_uid
        and before.has_subjects == after.has_subjects
    )


def is_marked_same(before: Observed, after: Observed) -> bool:
    """Return whether an object has the same uid and marks as before; its content may differ."""
    return (
        before.uid == after.uid
        and before.labels == after.labels
        and before.annotations == after.annotations
        and before.deleting == after.deleting
    )


def _recorded(found: TenantResourceQuota) -> list[str]:
    return [object_key(each.namespace, each.peer) for each in found.status.clusters]

"""What decides about a tenant, read from the caches at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.kubernetes import (
    ClusterNetworkPolicy,
    LimitRange,
    Namespace,
    NamespaceRole,
    NetworkPolicy,
    ResourceQuota,
    RoleBinding,
)
from tenantry.api.marks import TENANT_UID, ZONE
from tenantry.api.model import Resource
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.rules import Rules
from tenantry.api.slice import SliceClaim
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import controlplane, suspension
from tenantry.controllers.network import ALONE, ClusterAddresses, core_zone
from tenantry.controllers.tenancyrules import rules_of_all
from tenantry.controllers.tenant import clusternetworkpolicy
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT, is_rules, tenant_of
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed, observe
from tenantry.engine.plan import Lookup
from tenantry.engine.tasks import all_of
from tenantry.world import objectcounts
from tenantry.world.objectcounts import ObjectLimits
from tenantry.world.sandbox import NO_SANDBOX, Sandbox

CHILD_KINDS = (
    Namespace,
    ResourceQuota,
    LimitRange,
    NetworkPolicy,
    TenancyRules,
    PolicyParameters,
    ClusterNetworkPolicy,
    NamespaceRole,
    RoleBinding,
)


LISTED_FROM = 2
"""How many bindings of a namespace have to be emptied for one list to be cheaper than a read for each."""

LISTED_AT_ONCE = 16
"""How many namespaces are listed at once."""


class TenantInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides about a tenant's objects.

    Args:
        tenant: The tenant.
        cluster_uid: The uid of the namespace kube-system.
        has_cluster_policies: The cluster has the kind ClusterNetworkPolicy.
        bindings: Every RoleBinding of the tenant's core namespace.
        tree: While the tenant is to be suspended, all of its namespaces; else those below the core namespace that are
            being deleted, which no other controller opens again.
        inside: Every RoleBinding of these namespaces.
        whole: The JSON of such bindings that were listed, by key.
        made: The objects with the tenant's label and ours, by kind.
        lookup: The observed objects, by kind and key.
        defaults: The rules of all tenants.
        around: The addresses of nodes and DNS.
        zones: The network zones of its tree beside that of its core namespace.
        sandbox: The cluster's sandbox.
        limits: The limits of all tenants.
        is_divided: The tenant has a TenantResourceQuota, so that the quota controller keeps its ResourceQuota.
        plane: The VirtualControlPlane of the tenant's name; None if there is none.
        claim: The SliceClaim of the tenant's name; None if there is none.
        dedicated: The DedicatedCluster of the tenant's name; None if there is none.
    """

    tenant: Tenant
    cluster_uid: str
    has_cluster_policies: bool
    bindings: list[Observed]
    made: list[tuple[Resource, Observed]]
    lookup: Lookup
    defaults: Rules = Rules()
    around: ClusterAddresses = ALONE
    zones: tuple[str, ...] = ()
    sandbox: Sandbox = NO_SANDBOX
    limits: ObjectLimits = objectcounts.DEFAULT
    is_divided: bool = False
    plane: VirtualControlPlane | None = None
    claim: SliceClaim | None = None
    dedicated: DedicatedCluster | None = None
    tree: tuple[Observed, ...] = ()
    inside: tuple[Observed, ...] = ()
    whole: Mapping[str, bytes] = {}

    @property
    def set_elsewhere(self) -> tuple[object, ...]:
        """Return what a tenant's objects follow that is set elsewhere, as in TenancyDefaults and by its Subtenants."""
        moves = controlplane.is_converting(self.tenant)
        own = self.tenant.spec.suspended, moves, self.has_cluster_policies, self.zones
        return *own, self.defaults, self.around, self.sandbox, self.limits

    @property
    def open(self) -> list[Observed]:
        """Return the RoleBindings that a suspension still has to empty."""
        return suspension.open_bindings(self.inside) if self.tenant.spec.suspended else []


def gather(
    tenant: Tenant,
    caches: dict[Resource, Cache[Observed]],
    *,
    cluster_uid: str,
    is_divided: bool = False,
    plane: VirtualControlPlane | None = None,
    claim: SliceClaim | None = None,
    dedicated: DedicatedCluster | None = None,
    defaults: TenancyDefaults | None = None,
    around: ClusterAddresses = ALONE,
    sandbox: Sandbox = NO_SANDBOX,
    limits: ObjectLimits = objectcounts.DEFAULT,
) -> TenantInputs:
    """Read the caches.

    Args:
        tenant: The tenant.
        caches: By kind; ClusterNetworkPolicy is missing if the cluster does not serve it.
        cluster_uid: The uid of the namespace kube-system.
        is_divided: As in `TenantInputs`.
        plane: As in `TenantInputs`.
        claim: As in `TenantInputs`.
        dedicated: As in `TenantInputs`.
        defaults: The TenancyDefaults; None if there are none.
        around: The addresses of nodes and DNS.
        sandbox: The cluster's sandbox.
        limits: The limits of all tenants.
    """
    name = tenant.metadata.name
    core = caches[Namespace.resource].get(name)
    # Another client's namespace may have the tenant's name: its bindings are not ours to change.
    is_ours = core is not None and core.owner_uid == tenant.metadata.uid

    def lookup(resource: Resource, key: str) -> Observed | None:
        cache = caches.get(resource)
        return cache.get(key) if cache is not None else None

    tree = tree_of(caches[Namespace.resource], tenant)
    if not tenant.spec.suspended:
        tree = tuple(each for each in tree if each.deleting and each.name != name)
    bindings = caches[RoleBinding.resource]
    return TenantInputs(
        tree=tree,
        inside=tuple(each for namespace in tree for each in bindings.by_index(BY_NAMESPACE, namespace.name)),
        lookup=lookup,
        tenant=tenant,
        cluster_uid=cluster_uid,
        has_cluster_policies=ClusterNetworkPolicy.resource in caches,
        bindings=bindings.by_index(BY_NAMESPACE, name) if is_ours else [],
        made=_made(caches, name),
        zones=_zones(caches[Namespace.resource], tenant) if clusternetworkpolicy.has_zones(tenant) else (),
        is_divided=is_divided,
        plane=plane,
        claim=claim,
        dedicated=dedicated,
        defaults=rules_of_all(defaults),
        around=around,
        sandbox=sandbox,
        limits=limits,
    )


def tree_of(namespaces: Cache[Observed], tenant: Tenant) -> tuple[Observed, ...]:
    """Return all namespaces of a tenant, not those of an earlier one of its name."""
    found = namespaces.by_index(BY_TENANT, tenant.metadata.name)
    return tuple(each for each in found if each.labels.get(TENANT_UID) == tenant.metadata.uid)


async def listed(cluster: Cluster, inputs: TenantInputs) -> TenantInputs:
    """Return the inputs with the bindings of namespaces in which many have to be emptied.

    One list replaces a read for each binding. Namespaces are listed in turns: all at once, the last would wait for a
    connection for longer than a request may take.
    """
    counts = Counter(each.namespace for each in inputs.open)
    many = sorted(name for name, count in counts.items() if count >= LISTED_FROM)
    whole: dict[str, bytes] = {}
    for start in range(0, len(many), LISTED_AT_ONCE):
        for found in await all_of(_bindings(cluster, name) for name in many[start : start + LISTED_AT_ONCE]):
            whole |= found
    return replace(inputs, whole=whole)


async def _bindings(cluster: Cluster, namespace: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    async for raw in cluster.live.raw(RoleBinding.resource, namespace=namespace):
        seen = observe(RoleBinding.resource, raw)
        if seen.has_subjects:
            found[seen.key] = bytes(raw)
    return found


def _zones(namespaces: Cache[Observed], tenant: Tenant) -> tuple[str, ...]:
    """Return the zones of a tenant's tree beside that of the core namespace, sorted."""
    tree = namespaces.by_index(BY_TENANT, tenant.metadata.name)
    zones = {each.labels.get(ZONE, "") for each in tree if each.labels.get(TENANT_UID) == tenant.metadata.uid}
    return tuple(sorted(zones - {"", core_zone(tenant)}))


def _made(caches: dict[Resource, Cache[Observed]], name: str) -> list[tuple[Resource, Observed]]:
    """Return the objects of the tenant itself: in its core namespace, and its own cluster-scoped objects."""
    found: list[tuple[Resource, Observed]] = []
    for resource, cache in caches.items():
        if resource.namespaced:
            inside = cache.by_index(BY_NAMESPACE, name)
            found += [(resource, each) for each in inside if tenant_of(each) == [name] or is_rules(each)]
        elif resource == Namespace.resource:
            core = cache.get(name)  # the subnamespace controller keeps the others of the tree
            found += [(resource, core)] if core is not None and tenant_of(core) == [name] else []
        else:
            found += [(resource, each) for each in cache.by_index(BY_TENANT, name)]
    return found

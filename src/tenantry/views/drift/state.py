"""The objects that controllers plan from, read once into the caches that controllers read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import ClusterNetworkPolicy, Namespace, OwnerRole
from tenantry.api.marks import FIELD_MANAGER, OWNER_ROLE, TENANT
from tenantry.api.model import KubernetesObject, Resource, object_key
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.offloading import NamespaceMap
from tenantry.api.peercluster import PeerCluster
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.runtime import RuntimeClass
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.dedicatedcluster.gather import CLAIM_INDEXES, HANDOVER_INDEXES
from tenantry.controllers.inheritance.gather import BY_INHERITANCE, inheritance_keys
from tenantry.controllers.inheritance.kinds import allowed_by
from tenantry.controllers.limits.gather import object_limits
from tenantry.controllers.network import ALONE, ClusterAddresses
from tenantry.controllers.nodes.addresses import around
from tenantry.controllers.quota.objects import has_share, is_charged
from tenantry.controllers.runtime import sandbox_of
from tenantry.controllers.tenant.gather import CHILD_KINDS
from tenantry.controllers.watched import BY_NAMESPACE, BY_TENANT, OURS
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import CRDS
from tenantry.engine.crds import CrdState, observe_crd
from tenantry.engine.observed import Observed, observe
from tenantry.engine.plan import CopyStep, Plan
from tenantry.engine.tasks import all_of
from tenantry.views.drift.topologies import ClusterApiObjects
from tenantry.world import inheritance, objectcounts
from tenantry.world.objectcounts import ObjectLimits
from tenantry.world.sandbox import NO_SANDBOX, Sandbox

if TYPE_CHECKING:
    from tenantry.kube.client import Client


UNKNOWN_UID = "(known when it is created)"
"""Stands for the uid of an object that the cluster does not have yet: like a real one, it is unique."""


class DriftInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one cluster at about the same time, with the objects of files in the place of their live ones.

    Args:
        now: When it was read, with an offset.
        cluster_uid: The uid of the namespace kube-system.
        tenants: The tenants to plan for.
        subnamespaces: All Subnamespaces.
        tenant_quotas: The quotas of trees, by the tenant's name.
        slices: All slices.
        claims: All SliceClaims.
        control_planes: All VirtualControlPlanes.
        clusters: All DedicatedClusters.
        templates: All ClusterTemplates.
        handovers: All NodeHandovers.
        maps: All NamespaceMaps.
        peers: All PeerClusters.
        defaults: The TenancyDefaults.
        observed: The objects that belong to tenants, by kind.
        cluster_api: What there is of Cluster API.
        around: The addresses of nodes and DNS.
        sandbox: The cluster's sandbox.
        limits: The limits of all tenants.
        inheritable: The kinds that can be inherited, in the order of copying; none if no tenant has a Subnamespace.
    """

    now: dt.datetime
    cluster_uid: str
    tenants: Cache[Tenant]
    subnamespaces: Cache[Subnamespace]
    tenant_quotas: Cache[TenantResourceQuota]
    slices: Cache[Slice]
    claims: Cache[SliceClaim]
    control_planes: Cache[VirtualControlPlane]
    clusters: Cache[DedicatedCluster]
    templates: Cache[ClusterTemplate]
    handovers: Cache[NodeHandover]
    maps: Cache[NamespaceMap]
    peers: Cache[PeerCluster]
    defaults: Cache[TenancyDefaults]
    observed: dict[Resource, Cache[Observed]]
    cluster_api: ClusterApiObjects = ClusterApiObjects()
    around: ClusterAddresses = ALONE
    sandbox: Sandbox = NO_SANDBOX
    limits: ObjectLimits = objectcounts.DEFAULT
    inheritable: tuple[Resource, ...] = ()

    def cache(self, resource: Resource) -> Cache[Any]:
        """Return the cache of a kind that decides about DedicatedClusters."""
        kinds: dict[Resource, Cache[Any]] = {
            VirtualControlPlane.resource: self.control_planes,
            SliceClaim.resource: self.claims,
            NodeHandover.resource: self.handovers,
            TenancyDefaults.resource: self.defaults,
            ClusterTemplate.resource: self.templates,
        }
        return kinds[resource]

    def _cache_of(self, value: KubernetesObject) -> Cache[Any] | None:
        """Return the cache that has the objects of Tenantry's own kinds; None for a kind that decides nothing here."""
        kinds: dict[Resource, Cache[Any]] = {
            Slice.resource: self.slices,
            SliceClaim.resource: self.claims,
            VirtualControlPlane.resource: self.control_planes,
            DedicatedCluster.resource: self.clusters,
            ClusterTemplate.resource: self.templates,
            PeerCluster.resource: self.peers,
            TenantResourceQuota.resource: self.tenant_quotas,
            TenancyDefaults.resource: self.defaults,
        }
        return kinds.get(value.resource)

    def replace(self, value: KubernetesObject) -> None:
        """Put an object in the place of the live one, if its kind decides about tenants."""
        cache = self._cache_of(value)
        if cache is not None:
            cache.put(value, listed=0)

    def remove(self, value: KubernetesObject) -> None:
        """Remove a live object, if its kind decides about tenants."""
        cache = self._cache_of(value)
        if cache is not None:
            cache.remove(value.key, value.version)

    @property
    def namespaces(self) -> Cache[Observed]:
        """Return the namespaces."""
        return self.observed[Namespace.resource]

    @property
    def of_tenants(self) -> dict[Resource, Cache[Observed]]:
        """Return the objects of the kinds that make up a tenant, by kind.

        `observed` also has the kinds of objects that children inherit, which no plan of a tenant creates.
        """
        return {kind.resource: self.observed[kind.resource] for kind in CHILD_KINDS if kind.resource in self.observed}

    def has_tree(self, tenant: str) -> bool:
        """Return whether a tenant's quota is divided, or about to be."""
        charged = any(has_share(found) for found in self.slices.by_index(BY_TENANT, tenant))
        charged |= any(is_charged(found) for found in self.control_planes.by_index(BY_NAMESPACE, tenant))
        return (
            charged or self.tenant_quotas.get(tenant) is not None or self.subnamespaces.count(BY_NAMESPACE, tenant) > 0
        )

    def observe(self, resource: Resource, data: bytes | msgspec.Raw) -> None:
        """Add an object that belongs to a tenant."""
        self.observed[resource].put(observe(resource, data), listed=0)

    def take(self, plan: Plan) -> list[str]:
        """Change the objects as a plan does, and return the names of the namespaces that it creates."""
        created: list[str] = []
        for step in (step for wave in plan.waves for step in wave):
            found = step.observed
            if step.child is None:
                self.observed[step.resource].remove(step.key, found.version if found is not None else 0)
                continue
            # Later plans find objects by uid, so that each needs one that no other has.
            uid = found.uid if found is not None else f"{UNKNOWN_UID}: {step.resource.kind} {step.key}"
            version = found.version + 1 if found is not None else 1
            meta = msgspec.structs.replace(step.child.object.metadata, uid=uid, resource_version=str(version))
            self.observe(step.resource, msgspec.json.encode(msgspec.structs.replace(step.child.object, metadata=meta)))
            if found is None and step.resource == Namespace.resource:
                created.append(step.name)
        for copied in (step for wave in plan.copies for step in wave):
            self._take_copy(copied)
        return created

    def _take_copy(self, step: CopyStep) -> None:
        """Change a copy as a step does: the children of its namespace inherit from it."""
        cache, key = self.observed[step.resource], object_key(step.namespace, step.name)
        version = step.observed.version if step.observed is not None else 0
        if step.source is None:
            cache.remove(key, version)
            return
        copied = msgspec.structs.replace(
            step.source,
            key=key,
            namespace=step.namespace,
            uid=f"{UNKNOWN_UID}: {step.resource.kind} {key}",
            version=version + 1,
            labels=dict(step.labels),
            annotations={},
            has_subjects=step.source.has_subjects and not step.is_closed,
            writer=FIELD_MANAGER,
        )
        cache.put(copied, listed=0)

    def lookup(self, resource: Resource, key: str) -> Observed | None:
        """Return an object that belongs to a tenant; None if there is none, or the cluster does not have the kind."""
        cache = self.observed.get(resource)
        return cache.get(key) if cache is not None else None

    def named(self, subnamespace: Subnamespace, namespace: str) -> Subnamespace:
        """Record in the status of a Subnamespace that it has its namespace, and return it."""
        meta, status = subnamespace.metadata, subnamespace.status
        changed = msgspec.structs.replace(
            subnamespace,
            metadata=msgspec.structs.replace(meta, resource_version=str(subnamespace.version + 1)),
            status=msgspec.structs.replace(status, namespace=namespace),
        )
        self.subnamespaces.put(changed, listed=0)
        return changed


def empty(tenants: Iterable[Tenant], subnamespaces: Iterable[Subnamespace]) -> DriftInputs:
    """Return a cluster that has these tenants and Subnamespaces, and nothing else."""
    indexes = [each(lambda _: ()).indexes for each in (watched.subnamespaces, watched.slices, watched.control_planes)]
    state = DriftInputs(
        now=dt.datetime.now(dt.UTC),
        cluster_uid="",
        tenants=Cache(),
        subnamespaces=Cache(indexes[0]),
        tenant_quotas=Cache(),
        slices=Cache(indexes[1]),
        claims=Cache(dict(CLAIM_INDEXES)),
        control_planes=Cache(indexes[2]),
        clusters=Cache(),
        templates=Cache(),
        handovers=Cache(dict(HANDOVER_INDEXES)),
        maps=Cache(),
        peers=Cache(),
        defaults=Cache(),
        observed={kind.resource: _cache(kind.resource) for kind in CHILD_KINDS},
    )
    # Listed: an object that no cluster has yet has no version.
    for tenant in tenants:
        state.tenants.put(tenant, listed=0)
    for subnamespace in subnamespaces:
        state.subnamespaces.put(subnamespace, listed=0)
    return state


def _cache(resource: Resource) -> Cache[Observed]:
    indexes = watched.watch(resource, lambda _: ()).indexes
    return Cache({**(indexes or {}), BY_INHERITANCE: inheritance_keys})


async def read(
    client: Client,
    tenants: Sequence[Tenant],
    changed: Iterable[Subnamespace],
    wanted: TenancyDefaults | UnsetType | None = UNSET,
) -> DriftInputs:
    """Read a cluster.

    Args:
        client: Of the cluster.
        tenants: The tenants to plan for, as they should be.
        changed: Subnamespaces that are planned for in another form than their live one.
        wanted: The TenancyDefaults as they should be; UNSET for the live ones.
    """
    live = {each.key: each for each in await client.list(Subnamespace)}
    state = empty(tenants, {**live, **{each.key: each for each in changed}}.values())
    await _read_whole(client, state)
    defaults = state.defaults.get(DEFAULTS) if wanted is UNSET else wanted
    names = [tenant.metadata.name for tenant in tenants]
    # The namespaces of a tree can have any name: then everything is read.
    only = names[0] if len(names) == 1 and not state.has_tree(names[0]) else ""
    inheritable = _inheritable(defaults) if any(True for _ in state.subnamespaces) else []
    kinds = list(dict.fromkeys([*(kind.resource for kind in CHILD_KINDS), *inheritable]))
    state.observed.update({kind: _cache(kind) for kind in kinds if kind not in state.observed})
    there = await all_of(_read_kind(client, state, kind, only) for kind in kinds)
    observed = {kind: state.observed[kind] for kind, is_there in zip(kinds, there, strict=True) if is_there}
    return msgspec.structs.replace(
        state,
        cluster_uid=(await client.get(Namespace, "kube-system")).metadata.uid,
        around=around(await client.list(Node), defaults),
        sandbox=sandbox_of(defaults, await client.list(RuntimeClass)),
        limits=await read_limits(client, defaults),
        observed=observed,
        inheritable=tuple(kind for kind in inheritable if kind in observed),
    )


async def _read_whole(client: Client, state: DriftInputs) -> None:
    """Read the objects of Tenantry's own kinds that plans of any tenant may look at."""
    pairs: list[tuple[type[KubernetesObject], Cache[Any]]] = [
        (Slice, state.slices),
        (SliceClaim, state.claims),
        (VirtualControlPlane, state.control_planes),
        (DedicatedCluster, state.clusters),
        (ClusterTemplate, state.templates),
        (NodeHandover, state.handovers),
        (NamespaceMap, state.maps),
        (PeerCluster, state.peers),
        (TenantResourceQuota, state.tenant_quotas),
        (TenancyDefaults, state.defaults),
    ]
    for kind, cache in pairs:
        for each in await client.list(kind):
            cache.put(each)


async def read_limits(client: Client, defaults: TenancyDefaults | None) -> ObjectLimits:
    """Read what limits the objects of every tenant."""
    return object_limits(defaults, await _owner_role(client), await _definitions(client))


async def _owner_role(client: Client) -> OwnerRole | None:
    try:
        return await client.get(OwnerRole, OWNER_ROLE)
    except NotFound:
        return None


async def _definitions(client: Client) -> list[CrdState]:
    return [observe_crd(raw) async for page in client.pages(CRDS, msgspec.Raw) for raw in page.items]


def _inheritable(defaults: TenancyDefaults | None) -> list[Resource]:
    """Return the kinds that can be inherited if the cluster serves them, in the order of copying."""
    more = [
        kind
        for kind in allowed_by(defaults)
        if inheritance.may_be_allowed(kind.full_name) and kind not in inheritance.KINDS
    ]
    # The RoleBindings, which admit users, are the last.
    return [*inheritance.KINDS[:-1], *more, inheritance.KINDS[-1]]


async def _read_kind(client: Client, state: DriftInputs, resource: Resource, only: str) -> bool:
    """Read the objects of a kind that belong to one tenant, or to any; return whether the cluster has the kind."""
    selectors = watched.selectors_of(resource) or inheritance.selectors_of(resource)
    if only and resource == Namespace.resource:
        selectors = {"fieldSelector": f"metadata.name={only}"}
    elif only and selectors and resource != PolicyParameters.resource:
        selectors = {"labelSelector": f"{OURS['labelSelector']},{TENANT}={only}"}
    try:
        async for page in client.pages(resource, msgspec.Raw, namespace=only, selectors=selectors):
            for raw in page.items:
                state.observe(resource, raw)
    except NotFound:
        # These kinds are optional: a cluster without one has nothing to compare.
        if resource == ClusterNetworkPolicy.resource or resource.owned == inheritance.WHOLE:
            return False
        raise
    return True

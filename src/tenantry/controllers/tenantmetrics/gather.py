"""The figures of each tenant, from the caches of the operator."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import UNSET

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.marks import TENANT
from tenantry.api.model import Condition, KubernetesObject, object_key
from tenantry.api.requests import ClusterRoleRequest, Decision, RoleRequest, TenantRequest
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import ShareStatus, TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.tenantmetrics.figures import Figures, TenantFacts
from tenantry.controllers.tenantmetrics.refusals import Refusal
from tenantry.controllers.tenantnamespace import COUNTS
from tenantry.controllers.watched import BY_TENANT
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.mirror.podevents import EVENTS
from tenantry.world.objectcounts import PREFIX
from tenantry.world.shares.amounts import Amounts, add, read

OBJECTS: tuple[type[KubernetesObject], ...] = (Subnamespace, SliceClaim, VirtualControlPlane, DedicatedCluster)
"""The kinds in tenants' namespaces of which Ready is counted."""

_PODS = f"{PREFIX}pods"

REQUESTS = (TenantRequest, RoleRequest, ClusterRoleRequest)


def gather(cluster: Cluster) -> list[Figures]:
    """Return the figures of each tenant; none before the caches are in step.

    Args:
        cluster: The home cluster of the leader.
    """
    if not cluster.is_synced:
        return []
    namespaces: Cache[Observed] = cluster.cache(Namespace.resource)
    quotas: Cache[ObservedQuota] = cluster.cache(ResourceQuota.resource)
    tenant_quotas: Cache[TenantResourceQuota] = cluster.cache(TenantResourceQuota.resource)
    objects = _objects(cluster, namespaces)
    waiting = _waiting(cluster, namespaces)
    refusals = _refusals(cluster, namespaces)
    pods = _pods(quotas, namespaces)
    tenants: Cache[Tenant] = cluster.cache(Tenant.resource)
    return [
        Figures(
            tenant=name,
            facts=_facts(each),
            namespaces=namespaces.count(BY_TENANT, name),
            pods=pods.get(name),
            suspended=int(each.spec.suspended),
            quota=_quota(tenant_quotas.get(name), quotas.get(object_key(name, QUOTA))),
            conditions={(condition.type, condition.status.value): 1 for condition in each.status.conditions},
            objects=objects.get(name, {}),
            waiting=waiting.get(name, {}),
            refusals=refusals.get(name, {}),
        )
        for each in tenants
        for name in (each.metadata.name,)
    ]


def _facts(tenant: Tenant) -> TenantFacts:
    isolation, known = tenant.spec.isolation, tenant.status.isolation_class
    return TenantFacts(
        isolation_class=known.value if known is not UNSET else "",
        control_plane=isolation.control_plane.value,
        network=isolation.network.value,
        nodes=isolation.nodes.value,
    )


def _quota(tenant_quota: TenantResourceQuota | None, core: ObservedQuota | None) -> dict[tuple[str, str], int]:
    """Return the quota of a tenant by type and key.

    As `tenantry quota` does: without a division, the quota of the tenant is the ResourceQuota of its core namespace.
    """
    try:
        if tenant_quota is not None and tenant_quota.status.tree:
            status = tenant_quota.status
            hard, used, assigned = read(status.hard), read(status.used), _assigned(status.tree)
        elif core is not None:
            hard, used, assigned = read(core.in_force), read(core.used), {}
        else:
            return {}
    except InputError:
        # Another client has written what is no quantity: the operator reports it where it divides the quota.
        return {}
    found: dict[tuple[str, str], int] = {}
    for key, most in hard.items():
        in_use = used.get(key, 0)
        found["hard", key], found["assigned", key] = most, assigned.get(key, 0)
        found["used", key], found["free", key] = in_use, max(most - in_use, 0)
    return found


def _assigned(tree: tuple[ShareStatus, ...]) -> Amounts:
    """Return what the core namespace has given to namespaces below it, claims, control planes and clusters."""
    found: Amounts = {}
    for share in tree:
        if share.depth == 0:
            for claim in share.claims:
                add(found, read(claim.assigned))
        elif share.depth == 1:
            add(found, read(share.assigned))
    return found


def _ready(conditions: tuple[Condition, ...]) -> str:
    return next((each.status.value for each in conditions if each.type == reasons.READY), "Unknown")


def _tenant_of(namespaces: Cache[Observed], namespace: str) -> str:
    """Return the tenant of a namespace; "" for none."""
    known = namespaces.get(namespace)
    return known.labels.get(TENANT, "") if known is not None else ""


def _objects(cluster: Cluster, namespaces: Cache[Observed]) -> Mapping[str, Counter[tuple[str, str]]]:
    found: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for kind in OBJECTS:
        for each in _cached(cluster, kind):
            tenant = _tenant_of(namespaces, each.metadata.namespace)
            found[tenant][kind.resource.kind, _ready(each.status.conditions)] += 1
    return found


def _waiting(cluster: Cluster, namespaces: Cache[Observed]) -> Mapping[str, Counter[str]]:
    """Return the undecided requests of each tenant by kind; those for a new tenant are under its name."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for kind in REQUESTS:
        for each in _cached(cluster, kind):
            if each.status.decision is Decision.PENDING:
                found[_tenant_of(namespaces, each.metadata.namespace)][kind.resource.kind] += 1
    return found


def _pods(quotas: Cache[ObservedQuota], namespaces: Cache[Observed]) -> Mapping[str, int]:
    """Return the number of pods of each tenant, as the API server counts them in every namespace of a tenant."""
    found: Counter[str] = Counter()
    for each in quotas:
        used = each.used.get(_PODS)
        if used is not None and each.name == COUNTS:
            found[_tenant_of(namespaces, each.namespace)] += int(used)
    return found


def _refusals(cluster: Cluster, namespaces: Cache[Observed]) -> Mapping[str, Counter[tuple[str, str]]]:
    found: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    events: Cache[Refusal] | None = cluster.cache_of(EVENTS)
    for each in events if events is not None else ():
        of_tenant = found[_tenant_of(namespaces, each.namespace)]
        for cause in each.causes:
            of_tenant[cause] += each.count
    return found


def pending(cluster: Cluster) -> dict[str, list[float]]:
    """Return when the undecided requests of the whole cluster were created, by kind: seconds since 1970, sorted."""
    if not cluster.is_synced:
        return {}
    return {
        kind.resource.kind: sorted(
            dt.datetime.fromisoformat(each.metadata.creation_timestamp).timestamp()
            for each in _cached(cluster, kind)
            if each.status.decision is Decision.PENDING
        )
        for kind in REQUESTS
    }


def _cached(cluster: Cluster, kind: type[KubernetesObject]) -> Iterator[Any]:
    cache = cluster.cache_of(kind.resource)
    return iter(cache if cache is not None else ())

"""The plans of the controllers for one tenant, one after the other, each computed from what the earlier ones leave.

    tenant ─► each Subnamespace: namespace, limits, isolation ─► ResourceQuotas ─► each Subnamespace: what it inherits,
                                                                                    then its users

The plans are those that reconciles apply. Here they change the caches in memory only (`DriftInputs.take`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError, TerminalError
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import object_key
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenant import Tenant
from tenantry.controllers.dedicatedcluster import desired as dedicatedcluster_desired
from tenantry.controllers.dedicatedcluster import topology
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.controllers.dedicatedcluster.gather import gather as gather_cluster
from tenantry.controllers.inheritance import desired as inheritance_desired
from tenantry.controllers.inheritance.gather import ChildNamespace
from tenantry.controllers.inheritance.gather import gather as gather_inheritance
from tenantry.controllers.inheritance.status import Inherited
from tenantry.controllers.quota import desired as quota_desired
from tenantry.controllers.quota import status as quota_status
from tenantry.controllers.quota.effective import effective_quota
from tenantry.controllers.quota.gather import gather as gather_quota
from tenantry.controllers.quota.index import Index, QuotaCaches
from tenantry.controllers.quota.objects import observed_tenant_quota
from tenantry.controllers.subnamespace import desired as subnamespace_desired
from tenantry.controllers.subnamespace import ending
from tenantry.controllers.subnamespace.gather import SubnamespaceCaches, SubnamespaceInputs
from tenantry.controllers.subnamespace.gather import gather as gather_subnamespace
from tenantry.controllers.subnamespace.treelimit import TreeLimit
from tenantry.controllers.tenant import desired as tenant_desired
from tenantry.controllers.tenant.gather import TenantInputs
from tenantry.controllers.tenant.gather import gather as gather_tenant
from tenantry.controllers.watched import BY_BINDING, BY_NAMESPACE, BY_TENANT
from tenantry.engine.clock import rfc3339
from tenantry.engine.plan import Blocked, Plan
from tenantry.views.drift import topologies
from tenantry.world.leases import with_lease
from tenantry.world.naming import DIGITS

if TYPE_CHECKING:
    from tenantry.views.drift.state import DriftInputs

UNKNOWN_DIGITS = "x" * DIGITS
"""Stands for the digits of a child's name, which depend on the tenant's uid."""


class Planned(Struct, frozen=True, kw_only=True):
    """A plan, and the Subnamespace that it is about; None for the tenant and its quota."""

    plan: Plan
    subnamespace: Subnamespace | None = None


def plans(state: DriftInputs, tenant: Tenant, names: Mapping[str, str] | None = None) -> Iterator[Planned]:
    """Yield what the controllers would write for a tenant and its tree, in the order in which they would write it.

    Args:
        state: The objects that the plans are computed from; it takes in what they change.
        tenant: The tenant as it would be.
        names: The names of the children's namespaces, by the Subnamespace's key; None to compute them from uids.

    Raises:
        InputError: The tenant's spec is wrong in a way that the schema of the CRD did not catch.
    """
    name = tenant.metadata.name
    found = tenant_desired.plan(_tenant_inputs(state, tenant))
    yield Planned(plan=found)
    if found.blocked or (names is None and state.namespaces.get(name) is None):
        return  # before the tenant has a uid, the names of the namespaces below it are unknown
    state.take(found)
    caches = _quota_caches(state)
    if not state.has_tree(name):
        yield Planned(plan=quota_desired.preview(gather_quota(tenant, caches)))
        return
    index = _index(state, tenant, caches)
    made: list[tuple[str, Plan]] = []
    waiting = deque(sorted({name, *(each.name for each in state.namespaces.by_index(BY_TENANT, name))}))
    while waiting:
        for subnamespace in state.subnamespaces.by_index(BY_NAMESPACE, waiting.popleft()):
            if subnamespace.metadata.deletion_timestamp:
                continue
            inputs = _subnamespace_inputs(state, subnamespace, index, names)
            planned = _plan_subnamespace(inputs)
            yield planned
            if ending.is_due(inputs):
                # The finalizer lets the next reconcile delete the namespace, which keeps its share until it is gone.
                ended = replace(subnamespace.metadata, deletion_timestamp=rfc3339(state.now))
                yield _plan_subnamespace(replace(inputs, subnamespace=replace(subnamespace, metadata=ended)))
                continue
            if planned.plan.blocked:
                continue
            created = state.take(planned.plan)
            # The same files may have Subnamespaces inside a namespace that they create.
            waiting.extend(created)
            index.changes.namespaces.update(created)
            made.append((state.named(subnamespace, inputs.namespace).key, planned.plan))
    index.follow()
    index.divide()
    # After all namespaces: until they exist, the division keeps a reserve for them.
    quotas = quota_desired.preview(gather_quota(tenant, caches, index))
    yield Planned(plan=quotas)
    state.take(quotas)
    for key, first in made:
        current = state.subnamespaces.get(key)
        if current is not None:
            inherited = _plan_inheritance(state, current)
            yield Planned(plan=inherited, subnamespace=current)
            state.take(inherited)
            inputs = _subnamespace_inputs(state, current, index, names)
            # By then the moves are done, and the child has what it inherits.
            verdict = replace(inputs.verdict, in_force=True) if inputs.verdict is not None else None
            people = _plan_subnamespace(replace(inputs, verdict=verdict, inherited=Inherited()))
            # The writes of the first plan are shown already.
            later = tuple(write for write in people.plan.writes if write not in first.writes)
            yield replace(people, plan=replace(people.plan, before=(), writes=later))


def cluster_plan(state: DriftInputs, found: DedicatedCluster) -> Plan:
    """Return what the controller of DedicatedClusters would write for one: children, or a Cluster of Cluster API."""
    inputs = cluster_inputs(state, found)
    built = topologies.inputs_of(state.cluster_api, inputs)
    return topology.plan(built) if built is not None else dedicatedcluster_desired.plan(inputs)


def cluster_inputs(state: DriftInputs, found: DedicatedCluster) -> ClusterInputs:
    """Return what decides about a DedicatedCluster."""
    return gather_cluster(state, found, dedicatedcluster_desired.claim_names(found))


def _tenant_inputs(state: DriftInputs, tenant: Tenant) -> TenantInputs:
    name = tenant.metadata.name
    return gather_tenant(
        with_lease(tenant, state.now),
        state.of_tenants,
        cluster_uid=state.cluster_uid,
        is_divided=state.namespaces.get(name) is not None and state.has_tree(name),
        plane=state.control_planes.get(object_key(name, name)),
        claim=state.claims.get(object_key(name, name)),
        dedicated=state.clusters.get(object_key(name, name)),
        defaults=state.defaults.get(DEFAULTS),
        around=state.around,
        sandbox=state.sandbox,
        limits=state.limits,
    )


def _quota_caches(state: DriftInputs) -> QuotaCaches:
    return QuotaCaches(
        tenants=state.tenants,
        tenant_quotas=state.tenant_quotas,
        slices=state.slices,
        control_planes=state.control_planes,
        subnamespaces=state.subnamespaces,
        namespaces=state.namespaces,
        quotas=state.observed[ResourceQuota.resource],
        maps=state.maps,
        peers=state.peers,
    )


def _index(state: DriftInputs, tenant: Tenant, caches: QuotaCaches) -> Index:
    tenant_quota = caches.tenant_quotas.get(tenant.metadata.name)
    known = observed_tenant_quota(tenant_quota) if tenant_quota is not None else None
    return Index(tenant, effective_quota(tenant, tenant_quota, state.now).hard, caches, tenant_quota=known)


def _subnamespace_inputs(
    state: DriftInputs, subnamespace: Subnamespace, index: Index, names: Mapping[str, str] | None
) -> SubnamespaceInputs:
    index.follow()
    index.divide()
    share = index.tree.shares.get(subnamespace.metadata.uid)
    inputs = gather_subnamespace(
        subnamespace,
        SubnamespaceCaches(
            state.tenants,
            state.subnamespaces,
            state.of_tenants,
            {},
            TreeLimit(),
            state.defaults,
            state.sandbox,
            state.limits,
            state.control_planes,
        ),
        quota_status.verdict(index.tree, share) if share is not None else None,
        cluster_uid=state.cluster_uid,
        now=state.now,
        around=state.around,
    )
    return inputs if names is None else replace(inputs, namespace=names[subnamespace.key])


def _plan_inheritance(state: DriftInputs, subnamespace: Subnamespace) -> Plan:
    namespace = next(iter(state.namespaces.by_index(BY_BINDING, subnamespace.metadata.uid)), None)
    parent = state.namespaces.get(subnamespace.metadata.namespace)
    # A child keeps what its parent loses by its own deletion.
    if namespace is None or namespace.deleting or parent is None or parent.deleting:
        return Plan()
    inputs = gather_inheritance(
        ChildNamespace(subnamespace=subnamespace, namespace=namespace),
        {kind: state.observed[kind] for kind in state.inheritable},
        (),
        lookup=state.lookup,
        is_like=lambda _, found, likeness: found.likeness == likeness,
    )
    return inheritance_desired.plan(inputs)


def _plan_subnamespace(inputs: SubnamespaceInputs) -> Planned:
    try:
        found = subnamespace_desired.plan(inputs)
    except (InputError, TerminalError) as error:
        found = Plan(blocked=(Blocked(reason=reasons.INVALID_SPEC, message=str(error)),))
    return Planned(plan=found, subnamespace=inputs.subnamespace)

"""The plans of the controllers for one tenant, in the order in which the operator would carry them out.

Objects that children inherit from their parents are not planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError, TerminalError
from tenantry.api.kubernetes import ResourceQuota, ResourceQuotaSpec
from tenantry.api.marks import INHERITED_FROM, MANAGED_BY, MANAGER, TENANT
from tenantry.api.model import ObjectMeta, object_key
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers import suspension, tenantnamespace
from tenantry.controllers.quota import index as quota_index
from tenantry.controllers.quota import objects as quota_objects
from tenantry.controllers.quota import status as quota_status
from tenantry.controllers.quota.effective import effective_quota
from tenantry.controllers.quota.verdicts import ShareVerdict
from tenantry.controllers.subnamespace import checks
from tenantry.controllers.subnamespace import desired as subnamespace_desired
from tenantry.controllers.subnamespace.gather import (
    SubnamespaceCaches,
    SubnamespaceInputs,
    made_inside,
    rules_of_all,
)
from tenantry.controllers.subnamespace.gather import gather as gather_subnamespace
from tenantry.controllers.tenant import desired as tenant_desired
from tenantry.controllers.tenant.gather import TenantInputs
from tenantry.controllers.tenant.gather import gather as gather_tenant
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Child, Lookup, Plan, compare
from tenantry.views.drift.state import DriftInputs
from tenantry.world.leases import with_lease
from tenantry.world.shares.amounts import spelled
from tenantry.world.shares.division import Division
from tenantry.world.shares.tree import Tree


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and the Subnamespace that it is about; None for the tenant itself."""

    plan: Plan
    subnamespace: Subnamespace | None = None


Planner = Callable[[DriftInputs, Tenant], Iterator[Planned]]


def lookup_in(state: DriftInputs) -> Lookup:
    """Return the observed object of a kind and key."""
    return lambda resource, key: state.observed[resource].get(key)


# -- the tenant -----------------------------------------------------------------------------------


def plan_tenant(state: DriftInputs, tenant: Tenant) -> Iterator[Planned]:
    """Yield the plan of the tenant controller.

    Raises:
        InputError: The spec is wrong in a way that the schema of the CRD did not catch.
    """
    inputs = tenant_inputs(state, tenant)
    # The quota controller keeps the ResourceQuota: of a tenant with a tree as a share, of another one as it is here.
    plan = tenant_desired.plan(inputs) if inputs.is_divided else tenant_desired.whole(inputs)
    yield Planned(plan=plan)


def tenant_inputs(state: DriftInputs, tenant: Tenant) -> TenantInputs:
    """Return the inputs of the tenant controller."""
    namespace = state.namespaces.get(tenant.metadata.name)
    owns = namespace is not None and namespace.owner_uid == tenant.metadata.uid
    inputs = gather_tenant(
        with_lease(tenant, state.now), state.observed, cluster_uid=state.cluster_uid, owns_namespace=owns
    )
    return msgspec.structs.replace(
        inputs,
        is_divided=namespace is not None and state.has_tree(tenant.metadata.name),
        defaults=rules_of_all(state.defaults),
        around=state.around,
        sandbox=state.sandbox,
    )


# -- its tree -------------------------------------------------------------------------------------


def plan_tree(state: DriftInputs, tenant: Tenant) -> Iterator[Planned]:
    """Yield the plan of a tenant's ResourceQuotas, then the plan of each Subnamespace of its tree.

    Raises:
        InputError: The tenant's quota is wrong in a way that the schema of the CRD did not catch.
    """
    # Before the core namespace exists, nothing is known about the namespaces below it.
    if not state.has_tree(tenant.metadata.name) or state.namespaces.get(tenant.metadata.name) is None:
        return
    tree = _divided(state, tenant)
    yield Planned(plan=_plan_shares(state, tenant, tree))
    for subnamespace in sorted(state.subnamespaces, key=lambda each: each.key):
        parent = state.namespaces.get(subnamespace.metadata.namespace)
        is_ours = parent is not None and parent.labels.get(TENANT) == tenant.metadata.name
        if is_ours and not subnamespace.metadata.deletion_timestamp:
            share = tree.shares.get(subnamespace.metadata.uid)
            verdict = quota_status.verdict(tree, share) if share is not None else None
            inputs = subnamespace_inputs(state, subnamespace, verdict)
            yield Planned(plan=plan_subnamespace(state, inputs), subnamespace=subnamespace)


def _divided(state: DriftInputs, tenant: Tenant) -> Tree:
    tenant_quota = state.tenant_quotas.get(tenant.metadata.name)
    caches = quota_index.QuotaCaches(
        tenants=state.tenants,
        tenant_quotas=state.tenant_quotas,
        slices=state.slices,
        subnamespaces=state.subnamespaces,
        namespaces=state.namespaces,
        quotas=state.observed[ResourceQuota.resource],
    )
    whole = effective_quota(tenant, tenant_quota, state.now).hard
    known = quota_objects.observed_tenant_quota(tenant_quota) if tenant_quota is not None else None
    index = quota_index.Index(tenant, whole, caches, tenant_quota=known)
    index.follow()
    Division(index.tree).divide()
    return index.tree


def _plan_shares(state: DriftInputs, tenant: Tenant, tree: Tree) -> Plan:
    """Return the plan of the ResourceQuotas as one step; the operator moves shares in batches."""
    children: list[Child] = []
    for share in tree.shares.values():
        if tree.keys and share.namespace is not None and not share.namespace.terminating:
            # As it will be once all new namespaces exist: the reserve for them is given away then.
            hard = {key: max(0, share.own[key] - share.reserved[key]) for key in tree.keys}
            children.append(_share(state, tenant, share.namespace.name, spelled(hard)))
    return compare(children, lookup_in(state))


def _share(state: DriftInputs, tenant: Tenant, namespace: str, hard: Mapping[str, str]) -> Child:
    name = tenant_desired.QUOTA
    found = state.observed[ResourceQuota.resource].get(object_key(namespace, name))
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        labels=found.labels if found is not None else {MANAGED_BY: MANAGER, TENANT: tenant.metadata.name},
        annotations=found.annotations if found is not None else {},
    )
    quota = ResourceQuota(metadata=meta, spec=ResourceQuotaSpec(hard=dict(hard)))
    return Child(object=quota, wave=tenantnamespace.WAVE_LIMITS)


# -- a Subnamespace -------------------------------------------------------------------------------


def subnamespace_inputs(
    state: DriftInputs, subnamespace: Subnamespace, verdict: ShareVerdict | None
) -> SubnamespaceInputs:
    """Return the inputs of the Subnamespace controller."""
    caches = SubnamespaceCaches(state.tenants, state.subnamespaces, state.observed, {}, state.defaults, state.sandbox)
    return gather_subnamespace(
        subnamespace, caches, verdict, cluster_uid=state.cluster_uid, now=state.now, around=state.around
    )


def plan_subnamespace(state: DriftInputs, inputs: SubnamespaceInputs) -> Plan:
    """Return the plan of the Subnamespace controller, with the first share of a new child."""
    tenant = inputs.tenant
    try:
        blocked = checks.blocked(inputs)
        children = subnamespace_desired.children(inputs, tenant) if tenant is not None else []
    except (InputError, TerminalError) as error:
        blocked, children = Blocked(reason=reasons.INVALID_SPEC, message=str(error)), []
    if blocked is not None:
        return Plan(blocked=(blocked,))
    if tenant is None:
        return Plan()
    assigned = inputs.verdict.totals.assigned if inputs.verdict is not None else {}
    if inputs.bound is None and inputs.adoptee is None and assigned:
        children.append(_share(state, tenant, inputs.namespace, assigned))
    wanted = {(child.object.resource, child.object.key) for child in children}
    inside = made_inside(inputs, state.observed)
    stale = [(resource, found) for resource, found in inside if (resource, found.key) not in wanted]
    others: list[Observed] = [binding for binding in inputs.bindings if INHERITED_FROM not in binding.labels]
    edits = suspension.edits(others, suspended=tenant.spec.suspended, ours=tenantnamespace.OWNER_BINDING)
    return msgspec.structs.replace(compare(children, lookup_in(state), stale=stale), edits=edits)


PLANNERS: tuple[Planner, ...] = (plan_tenant, plan_tree)
"""If the first one is blocked, the others are not asked."""

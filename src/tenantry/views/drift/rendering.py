"""The objects that the operator would create for tenants in files, without a cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, ResourceQuota, ResourceQuotaSpec
from tenantry.api.model import KubernetesObject
from tenantry.api.subnamespace import Adoption, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers import tenantnamespace, watched
from tenantry.controllers.subnamespace.gather import SubnamespaceInputs
from tenantry.controllers.tenant import desired
from tenantry.controllers.tenantnamespace import TenantNamespace
from tenantry.engine.plan import Plan
from tenantry.views.drift.planners import plan_subnamespace, subnamespace_inputs, tenant_inputs
from tenantry.views.drift.state import DriftInputs, empty
from tenantry.views.manifests import Manifests
from tenantry.world import quota
from tenantry.world.naming import DIGITS

UNKNOWN_DIGITS = "x" * DIGITS
"""Stands for the digits of a child's name, which depend on the tenant's uid."""


def render(manifests: Manifests) -> list[KubernetesObject]:
    """Return the objects of each tenant, then those of its children.

    Raises:
        InputError: One of them cannot be created, or the files do not have its parent.
    """
    state = empty(manifests.tenants, manifests.subnamespaces)
    names = _names(manifests.subnamespaces)
    found: list[KubernetesObject] = []
    for tenant in manifests.tenants:
        try:
            plan = desired.whole(tenant_inputs(state, tenant))
        except InputError as error:
            raise InputError(f"Tenant {tenant.metadata.name!r}: {error}") from error
        found += [*_created(state, plan), *_below(state, tenant.metadata.name, names)]
    lost = next((each for each in state.subnamespaces if state.namespaces.get(each.metadata.namespace) is None), None)
    if lost is not None:
        raise InputError(
            f"Subnamespace {lost.key!r}: its parent {lost.metadata.namespace!r} is neither a Tenant nor the namespace"
            " of a Subnamespace in these files: add that, or ask the cluster with `tenantry diff -f`"
        )
    return found


def _created(state: DriftInputs, plan: Plan) -> list[KubernetesObject]:
    """Return the objects that a plan creates, and add its namespaces to the cluster."""
    steps = [step for wave in plan.waves for step in wave]
    found = [step.child.object for step in steps if step.child is not None]
    for each in found:
        if isinstance(each, Namespace):
            state.observe(Namespace.resource, msgspec.json.encode(each))
    return found


def _below(state: DriftInputs, namespace: str, names: dict[str, str]) -> list[KubernetesObject]:
    """Return the objects of the children of a namespace, and of the children below them."""
    found: list[KubernetesObject] = []
    for subnamespace in state.subnamespaces.by_index(watched.BY_NAMESPACE, namespace):
        inputs = subnamespace_inputs(state, _without_adoption(subnamespace), None)
        inputs = msgspec.structs.replace(inputs, namespace=names[subnamespace.key])
        plan = plan_subnamespace(state, inputs)
        if plan.blocked or inputs.tenant is None:
            problem = plan.blocked[0].message if plan.blocked else "has no tenant"
            raise InputError(f"Subnamespace {subnamespace.key!r}: {problem}")
        created = _created(state, plan)
        created[1:1] = _share(inputs, inputs.tenant)
        found += [*created, *_below(state, inputs.namespace, names)]
    return found


def _without_adoption(subnamespace: Subnamespace) -> Subnamespace:
    """Return a Subnamespace that creates its namespace: only a cluster has one to adopt."""
    spec = msgspec.structs.replace(subnamespace.spec, adopt=Adoption())
    return msgspec.structs.replace(subnamespace, spec=spec)


def _names(subnamespaces: Sequence[Subnamespace]) -> dict[str, str]:
    """Return the names of the children's namespaces by key, from the files if a Subnamespace there is in one."""
    parents = {each.metadata.namespace for each in subnamespaces}
    names = [each.metadata.name for each in subnamespaces]
    found: dict[str, str] = {}
    for each in subnamespaces:
        name = each.metadata.name
        pattern = re.compile(f"{re.escape(name)}-[0-9a-f]{{{DIGITS}}}")
        matching = [parent for parent in parents if pattern.fullmatch(parent)]
        known = matching[0] if len(matching) == 1 and names.count(name) == 1 else ""
        found[each.key] = each.spec.adopt.namespace or known or f"{name}-{UNKNOWN_DIGITS}"
    return found


def _share(inputs: SubnamespaceInputs, tenant: Tenant) -> list[KubernetesObject]:
    """Return the ResourceQuota that a child requests, before shares are given to its own children."""
    whole = quota.normal(tenant.spec.quota.hard)
    if not whole:
        return []
    wanted = quota.normal(inputs.subnamespace.spec.quota.hard)
    namespace = TenantNamespace(tenant=tenant, name=inputs.namespace, owners=(), hard=whole, suspended=False)
    spec = ResourceQuotaSpec(hard={key: wanted.get(key, "0") for key in whole})
    return [ResourceQuota(metadata=tenantnamespace.meta(namespace, desired.QUOTA), spec=spec)]

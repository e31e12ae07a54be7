"""Reads from the caches what decides the result of a request."""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import ClusterRoleBinding, Namespace, RoleBinding
from tenantry.api.model import KubernetesObject, object_key
from tenantry.api.requests import (
    CLUSTER_ROLE_BINDING_PREFIX,
    REQUEST_UID,
    ROLE_BINDING_PREFIX,
    Decision,
    RoleGrant,
    TenantRequest,
)
from tenantry.api.tenant import Tenant
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Lookup
from tenantry.world.leases import ENDLESS, LeaseState, lease, with_lease


def binding_name(request: str, *, namespaced: bool) -> str:
    """Return the name of the binding of a request."""
    return f"{ROLE_BINDING_PREFIX if namespaced else CLUSTER_ROLE_BINDING_PREFIX}{request}"


def binding_kind(*, namespaced: bool) -> type[KubernetesObject]:
    """Return the kind that a request becomes."""
    return RoleBinding if namespaced else ClusterRoleBinding


class GrantInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the binding of a RoleRequest or ClusterRoleRequest.

    Args:
        request: As it is.
        binding: The binding of the request; None if there is none.
        tenant: The tenant of the request's namespace; "" for a ClusterRoleRequest.
        closes_in: In how many seconds the tenant's lease ends; None for never.
        term: How the grant's own lease stands.
        problem: The obstacle to the grant.
        lookup: What is there, by kind and key.
    """

    request: RoleGrant
    binding: Observed | None
    tenant: str
    closes_in: float | None
    term: LeaseState
    problem: Blocked | None
    lookup: Lookup

    @property
    def is_given(self) -> bool:
        """Return whether the request is to be in force."""
        approved = self.request.status.decision is Decision.APPROVED
        return approved and not self.term.is_expired and self.problem is None


class TenantRequestInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides whether a TenantRequest creates a tenant.

    Args:
        request: As it is.
        tenant: The tenant of the requested name; None if there is none.
    """

    request: TenantRequest
    tenant: Tenant | None

    @property
    def is_made(self) -> bool:
        """Return whether the tenant was created for this request."""
        found = self.tenant
        return found is not None and found.metadata.labels.get(REQUEST_UID) == self.request.metadata.uid


def gather(cluster: Cluster, request: RoleGrant, now: dt.datetime) -> GrantInputs:
    """Read what decides the binding of a RoleRequest or ClusterRoleRequest."""
    status = request.status
    tenant, closes_in, problem = _place(cluster, request, now)
    return GrantInputs(
        request=request,
        binding=binding_of(cluster, request.resource.namespaced, request.key),
        tenant=tenant,
        closes_in=closes_in,
        term=lease(status.expires_at, now) if status.decision is Decision.APPROVED else ENDLESS,
        problem=problem,
        lookup=cluster.lookup,
    )


def gather_tenant(cluster: Cluster, request: TenantRequest) -> TenantRequestInputs:
    """Read the tenant of the name that a request asks for."""
    tenant: Tenant | None = cluster.cache(Tenant.resource).get(request.spec.tenant)
    return TenantRequestInputs(request=request, tenant=tenant)


def binding_of(cluster: Cluster, namespaced: bool, key: str) -> Observed | None:  # noqa: FBT001 - a property of the kind
    """Return the binding of a request; None for another object of its name."""
    namespace, _, name = key.rpartition("/")
    place = object_key(namespace, binding_name(name, namespaced=namespaced))
    found = cluster.lookup(binding_kind(namespaced=namespaced).resource, place)
    ours = found is not None and found.labels.get(marks.MANAGED_BY) == marks.MANAGER and REQUEST_UID in found.labels
    return found if ours else None


def _place(cluster: Cluster, request: RoleGrant, now: dt.datetime) -> tuple[str, float | None, Blocked | None]:
    """Return a request's tenant, in how many seconds the tenant's lease ends, and the obstacle to a grant."""
    if not request.resource.namespaced:
        return "", None, None
    namespace = request.metadata.namespace
    found = cluster.lookup(Namespace.resource, namespace)
    labels = found.labels if found is not None else {}
    name = labels.get(marks.TENANT, "")
    tenant: Tenant | None = cluster.cache(Tenant.resource).get(name)
    if tenant is None or labels.get(marks.TENANT_UID) != tenant.metadata.uid:
        message = f"namespace {namespace!r} does not belong to a tenant: request the role in a namespace of a tenant"
        return "", None, Blocked(reason=reasons.NOT_A_TENANTS_NAMESPACE, message=message)
    if found is not None and found.deleting:
        # Kubernetes deletes the binding, too, and would refuse another one.
        message = f"namespace {namespace!r} is being deleted"
        return name, None, Blocked(reason=reasons.NAMESPACE_TERMINATING, message=message, passing=True)
    if with_lease(tenant, now).spec.suspended:
        message = f"tenant {name!r} is suspended: approved requests take effect when the suspension ends"
        return name, None, Blocked(reason=reasons.TENANT_SUSPENDED, message=message)
    return name, lease(tenant.spec.expires_at, now).next_seconds, None

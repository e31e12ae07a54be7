"""What decides what a request becomes, read from the caches."""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.kubernetes import ClusterRoleBinding, Namespace, RoleBinding
from tenantry.api.model import KubernetesObject, object_key
from tenantry.api.requests import CLUSTER_ROLE_BINDING_PREFIX, REQUEST_UID, ROLE_BINDING_PREFIX, Decision, RoleGrant
from tenantry.api.tenant import Tenant
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, Lookup
from tenantry.world.leases import ENDLESS, Lease, lease, with_lease


class GrantInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what becomes of a RoleRequest or ClusterRoleRequest.

    Args:
        request: As it is.
        binding: What the request has become; None if it has become nothing.
        tenant: In whose namespace the request is; "" for a ClusterRoleRequest.
        closes_in: In how many seconds the tenant's lease ends; None for never.
        term: How the grant's own lease stands.
        problem: What stands in the way of the grant.
        lookup: What is there, by kind and key.
    """

    request: RoleGrant
    binding: Observed | None
    tenant: str
    closes_in: float | None
    term: Lease
    problem: Blocked | None
    lookup: Lookup

    @property
    def is_given(self) -> bool:
        """Return whether the request is to be in force."""
        approved = self.request.status.decision is Decision.APPROVED
        return approved and not self.term.is_expired and self.problem is None


def gather(cluster: Cluster, request: RoleGrant, now: dt.datetime) -> GrantInputs:
    """Read the caches."""
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


def binding_name(request: str, *, namespaced: bool) -> str:
    """Return the name of the binding of a request."""
    return f"{ROLE_BINDING_PREFIX if namespaced else CLUSTER_ROLE_BINDING_PREFIX}{request}"


def binding_kind(*, namespaced: bool) -> type[KubernetesObject]:
    """Return the kind that a request becomes."""
    return RoleBinding if namespaced else ClusterRoleBinding


def binding_of(cluster: Cluster, namespaced: bool, key: str) -> Observed | None:  # noqa: FBT001 - a property of the kind
    """Return what a request has become, and no other object that has the name."""
    namespace, _, name = key.rpartition("/")
    place = object_key(namespace, binding_name(name, namespaced=namespaced))
    found = cluster.lookup(binding_kind(namespaced=namespaced).resource, place)
    ours = found is not None and found.labels.get(marks.MANAGED_BY) == marks.MANAGER and REQUEST_UID in found.labels
    return found if ours else None


def _place(cluster: Cluster, request: RoleGrant, now: dt.datetime) -> tuple[str, float | None, Blocked | None]:
    """Return in which tenant's namespace a request is, in how many seconds that is closed, and what is in the way."""
    if not request.resource.namespaced:
        return "", None, None
    namespace = request.metadata.namespace
    found = cluster.lookup(Namespace.resource, namespace)
    labels = found.labels if found is not None else {}
    name = labels.get(marks.TENANT, "")
    tenant: Tenant | None = cluster.cache(Tenant.resource).get(name)
    if tenant is None or labels.get(marks.TENANT_UID) != tenant.metadata.uid:
        message = f"namespace {namespace!r} is no tenant's: ask in a namespace of a tenant"
        return "", None, Blocked(reason=reasons.NOT_A_TENANTS_NAMESPACE, message=message)
    if with_lease(tenant, now).spec.suspended:
        message = f"tenant {name!r} is suspended: what is approved is given when that ends"
        return name, None, Blocked(reason=reasons.TENANT_SUSPENDED, message=message)
    return name, lease(tenant.spec.expires_at, now).next_seconds, None

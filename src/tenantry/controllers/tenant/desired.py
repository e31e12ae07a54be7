"""What a tenant is made of: pure.

The order of writing is the order of safety: the namespace, then what limits and isolates, and last the binding that
lets people in.
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import (
    RBAC_GROUP,
    ClusterEgressRule,
    ClusterIngressRule,
    ClusterNetworkPolicy,
    ClusterNetworkPolicySpec,
    ClusterPeer,
    EgressRule,
    IngressRule,
    LabelRequirement,
    LabelSelector,
    LimitRange,
    LimitRangeItem,
    LimitRangeSpec,
    Namespace,
    NamespaceSubject,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyPort,
    NetworkPolicySpec,
    ResourceQuota,
    ResourceQuotaSpec,
    RoleBinding,
    RoleRef,
    Subject,
)
from tenantry.api.model import ObjectMeta, OwnerReference
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import ClusterNetworkPolicyMode, NetworkIsolation, Tenant
from tenantry.engine.plan import Child
from tenantry.world import quantity, quota

QUOTA = "tenantry-quota"
LIMITS = "tenantry-limits"
ISOLATION_POLICY = "tenantry-isolation"
DNS_POLICY = "tenantry-dns"
OWNER_BINDING = "tenantry-owner"

WAVE_NAMESPACE, WAVE_LIMITS, WAVE_PEOPLE = 0, 1, 2

DEFAULT_REQUESTS = {"cpu": "100m", "ephemeral-storage": "256Mi", "memory": "128Mi"}
DEFAULT_LIMITS = {"cpu": "500m", "ephemeral-storage": "1Gi", "memory": "256Mi"}
"""What a container gets that names nothing, where the tenant's quota covers the resource (B03)."""

CLUSTER_POLICY_PREFIX = "tenantry-"
CLUSTER_POLICY_PRIORITY = 100
DNS_PORT = 53


def cluster_policy_name(tenant: str) -> str:
    """Return the name of a tenant's ClusterNetworkPolicy."""
    return f"{CLUSTER_POLICY_PREFIX}{tenant}"


def children(tenant: Tenant, cluster_uid: str, *, has_cluster_policies: bool = False) -> list[Child]:
    """Return everything that a tenant should have, whole.

    Args:
        tenant: Its uid names the owner; without one (`tenantry render`) the labels that hold it are empty.
        cluster_uid: The uid of the namespace kube-system.
        has_cluster_policies: The cluster has the kind ClusterNetworkPolicy.

    Raises:
        InputError: The quota or the container defaults are wrong in a way that the CRD's schema did not catch.
    """
    hard = quota.normal(tenant.spec.quota.hard)
    found = [_namespace(tenant, cluster_uid)]
    if hard:
        found.append(_quota(tenant, hard))
    limits = _limits(tenant, hard)
    if limits is not None:
        found.append(limits)
    found += _network(tenant)
    if has_cluster_policies and tenant.spec.cluster_network_policy is ClusterNetworkPolicyMode.ENABLED:
        found.append(_cluster_policy(tenant))
    found.append(_owner_binding(tenant))
    return found


def _meta(tenant: Tenant, name: str) -> ObjectMeta:
    labels = {marks.MANAGED_BY: marks.MANAGER, marks.TENANT: tenant.metadata.name}
    return ObjectMeta(name=name, namespace=tenant.metadata.name, labels=labels)


def _cluster_meta(tenant: Tenant, name: str, labels: dict[str, str]) -> ObjectMeta:
    owner = OwnerReference(
        api_version=tenant.resource.api_version,
        kind=tenant.resource.kind,
        name=tenant.metadata.name,
        uid=tenant.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    everywhere = {marks.MANAGED_BY: marks.MANAGER, marks.TENANT: tenant.metadata.name}
    return ObjectMeta(name=name, labels={**everywhere, **labels}, owner_references=(owner,))


def _namespace(tenant: Tenant, cluster_uid: str) -> Child:
    labels = {
        marks.KIND: marks.KIND_CORE,
        marks.TENANT_UID: tenant.metadata.uid,
        marks.CLUSTER_UID: cluster_uid,
        **({marks.SUSPENDED: "true"} if tenant.spec.suspended else {}),
    }
    return Child(
        object=Namespace(metadata=_cluster_meta(tenant, tenant.metadata.name, labels)),
        wave=WAVE_NAMESPACE,
        owner_uid=tenant.metadata.uid,
    )


def _quota(tenant: Tenant, hard: dict[str, str]) -> Child:
    return Child(
        object=ResourceQuota(metadata=_meta(tenant, QUOTA), spec=ResourceQuotaSpec(hard=hard)), wave=WAVE_LIMITS
    )


def _limits(tenant: Tenant, hard: dict[str, str]) -> Child | None:
    given = tenant.spec.container_defaults
    requests = _defaults(given.requests, DEFAULT_REQUESTS, hard, "requests.")
    limits = _defaults(given.limits, DEFAULT_LIMITS, hard, "limits.")
    if not requests and not limits:
        return None
    for name, limit in limits.items():
        # The server fills in a missing request itself: what we write has to be what is stored.
        request = requests.setdefault(name, limit)
        if quantity.parse(request) <= quantity.parse(limit):
            continue
        # It refuses a request above its limit: what was given stands, what is only our standard gives way.
        if name not in given.requests:
            requests[name] = limit
        elif name not in given.limits:
            limits[name] = request
        else:
            raise InputError(
                f"spec.containerDefaults.requests {name!r} must not be more than spec.containerDefaults.limits: it is"
                f" {request!r}, the limit {limit!r}"
            )
    item = LimitRangeItem(type="Container", default_request=_sorted(requests), default=_sorted(limits))
    return Child(
        object=LimitRange(metadata=_meta(tenant, LIMITS), spec=LimitRangeSpec(limits=(item,))), wave=WAVE_LIMITS
    )


def _sorted(quantities: dict[str, str]) -> dict[str, str]:
    return dict(sorted(quantities.items()))


def _defaults(
    given: dict[str, str | int], standard: dict[str, str], hard: dict[str, str], prefix: str
) -> dict[str, str]:
    """Return the defaults of one side; never more than the whole quota, or no pod would ever fit."""
    chosen = {name: quantity.canonical(value) for name, value in given.items()}
    for name, value in standard.items():
        limit = hard.get(prefix + name)
        if limit is not None and name not in chosen:
            chosen[name] = quantity.least(value, limit)
    return chosen


# -- network --------------------------------------------------------------------------------------


def _own(tenant: Tenant) -> LabelSelector:
    # By uid, not by name: a later tenant of the same name is another one.
    return LabelSelector(match_labels={marks.TENANT_UID: tenant.metadata.uid})


def _network(tenant: Tenant) -> list[Child]:
    mode = tenant.spec.isolation.network
    if mode is NetworkIsolation.OPEN:
        return []
    own = NetworkPolicyPeer(namespace_selector=_own(tenant))
    ingress = (IngressRule(from_=(own,)),)
    if mode is NetworkIsolation.BASELINE:
        return [_policy(tenant, ISOLATION_POLICY, ingress=ingress, types=("Ingress",))]
    dns = NetworkPolicyPeer(
        namespace_selector=LabelSelector(match_labels={"kubernetes.io/metadata.name": "kube-system"}),
        pod_selector=LabelSelector(match_labels={"k8s-app": "kube-dns"}),
    )
    ports = tuple(NetworkPolicyPort(protocol=protocol, port=DNS_PORT) for protocol in ("UDP", "TCP"))
    return [
        _policy(
            tenant,
            ISOLATION_POLICY,
            ingress=ingress,
            egress=(EgressRule(to=(own,)),),
            types=("Ingress", "Egress"),
        ),
        _policy(tenant, DNS_POLICY, egress=(EgressRule(to=(dns,), ports=ports),), types=("Egress",)),
    ]


def _policy(
    tenant: Tenant,
    name: str,
    *,
    types: tuple[str, ...],
    ingress: tuple[IngressRule, ...] = (),
    egress: tuple[EgressRule, ...] = (),
) -> Child:
    spec = NetworkPolicySpec(pod_selector=LabelSelector(), policy_types=types, ingress=ingress, egress=egress)
    return Child(object=NetworkPolicy(metadata=_meta(tenant, name), spec=spec), wave=WAVE_LIMITS)


def _cluster_policy(tenant: Tenant) -> Child:
    own = ClusterPeer(namespaces=_own(tenant))
    tenants = LabelSelector(match_expressions=(LabelRequirement(key=marks.TENANT_UID, operator="Exists"),))
    others = ClusterPeer(namespaces=tenants)
    spec = ClusterNetworkPolicySpec(
        tier="Admin",
        priority=CLUSTER_POLICY_PRIORITY,
        subject=NamespaceSubject(namespaces=_own(tenant)),
        # Pass leaves it to the tenant's own policies, which may be tighter.
        ingress=(
            ClusterIngressRule(name="own-tenant", action="Pass", from_=(own,)),
            ClusterIngressRule(name="other-tenants", action="Deny", from_=(others,)),
        ),
        egress=(
            ClusterEgressRule(name="own-tenant", action="Pass", to=(own,)),
            ClusterEgressRule(name="other-tenants", action="Deny", to=(others,)),
        ),
    )
    meta = _cluster_meta(tenant, cluster_policy_name(tenant.metadata.name), {})
    return Child(object=ClusterNetworkPolicy(metadata=meta, spec=spec), wave=WAVE_LIMITS, owner_uid=tenant.metadata.uid)


# -- people ---------------------------------------------------------------------------------------


def _owner_binding(tenant: Tenant) -> Child:
    subjects = () if tenant.spec.suspended else tuple(_subject(owner) for owner in tenant.spec.owners)
    return Child(
        object=RoleBinding(
            metadata=_meta(tenant, OWNER_BINDING),
            role_ref=RoleRef(kind="ClusterRole", name=marks.OWNER_ROLE, api_group=RBAC_GROUP),
            subjects=subjects,
        ),
        wave=WAVE_PEOPLE,
    )


def _subject(owner: Owner) -> Subject:
    if owner.kind is OwnerKind.SERVICE_ACCOUNT:
        return Subject(kind=owner.kind, name=owner.name, namespace=owner.namespace)
    return Subject(kind=owner.kind, name=owner.name, api_group=RBAC_GROUP)

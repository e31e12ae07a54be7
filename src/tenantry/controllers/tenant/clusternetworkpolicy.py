"""ClusterNetworkPolicies, which keep other tenants away whatever the NetworkPolicies in namespaces allow. Pure.

    tenantry-TENANT            Pass its own tree, Deny other tenants
    tenantry-TENANT.zone-UID   of each zone of an Open tenant with several: Pass itself, Deny the rest of the tree

Pass leaves it to NetworkPolicies, which may be tighter, and which keep zones apart until both sides open. An Open
tenant has none.

Source: network-policy-api v0.2, ClusterNetworkPolicy (rules of a lower priority number go first; the first that matches
decides, Pass leaves the tier).
"""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api.kubernetes import (
    ClusterEgressRule,
    ClusterIngressRule,
    ClusterNetworkPolicySpec,
    ClusterPeer,
    LabelRequirement,
    LabelSelector,
    NamespaceSubject,
)
from tenantry.api.marks import TENANT_UID, ZONE
from tenantry.api.tenant import ClusterNetworkPolicyMode, NetworkIsolation, Tenant
from tenantry.controllers.network import core_zone

PREFIX = "tenantry-"
ZONE_PRIORITY = 99
PRIORITY = 100


def name_of(tenant: str) -> str:
    """Return the name of a tenant's ClusterNetworkPolicy."""
    return f"{PREFIX}{tenant}"


def has_zones(tenant: Tenant) -> bool:
    """Return whether a tenant's zones have policies of their own, so that a new Subtenant adds one."""
    is_asked_for = tenant.spec.cluster_network_policy is ClusterNetworkPolicyMode.ENABLED
    return is_asked_for and tenant.spec.isolation.network is NetworkIsolation.OPEN


def policies(tenant: Tenant, zones: Sequence[str]) -> dict[str, ClusterNetworkPolicySpec]:
    """Return the policies of a tenant, by name.

    Args:
        tenant: The tenant.
        zones: The zones of its tree beside that of its core namespace.
    """
    # By uid, not by name: a later tenant of the same name is another one.
    tree = LabelSelector(match_labels={TENANT_UID: tenant.metadata.uid})
    tenants = LabelSelector(match_expressions=(LabelRequirement(key=TENANT_UID, operator="Exists"),))
    found = {name_of(tenant.metadata.name): _spec(PRIORITY, tree, ("own-tenant", tree), ("other-tenants", tenants))}
    if zones and has_zones(tenant):
        for zone in sorted({core_zone(tenant), *zones}):
            own = LabelSelector(match_labels={ZONE: zone})
            # A tenant's name has no dot: this is never the name of another one's.
            name = f"{name_of(tenant.metadata.name)}.zone-{zone}"
            found[name] = _spec(ZONE_PRIORITY, own, ("own-zone", own), ("other-zones", tree))
    return found


def _spec(
    priority: int, subject: LabelSelector, passed: tuple[str, LabelSelector], denied: tuple[str, LabelSelector]
) -> ClusterNetworkPolicySpec:
    rules = [
        (name, action, (ClusterPeer(namespaces=peers),))
        for action, (name, peers) in (("Pass", passed), ("Deny", denied))
    ]
    return ClusterNetworkPolicySpec(
        tier="Admin",
        priority=priority,
        subject=NamespaceSubject(namespaces=subject),
        ingress=tuple(ClusterIngressRule(name=name, action=action, from_=peers) for name, action, peers in rules),
        egress=tuple(ClusterEgressRule(name=name, action=action, to=peers) for name, action, peers in rules),
    )

"""Builders of objects for tests, with the API server's defaults; they reject impossible objects."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api.marks import is_reserved
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import (
    ClusterNetworkPolicyMode,
    ContainerDefaults,
    Isolation,
    NetworkIsolation,
    Tenant,
    TenantQuota,
    TenantSpec,
    TenantStatus,
)

CLUSTER_UID = "c1c1c1c1-0000-4000-8000-000000000001"


def user(name: str) -> Owner:
    """Return an owner of the kind User."""
    return Owner(kind=OwnerKind.USER, name=name)


def group(name: str) -> Owner:
    """Return an owner of the kind Group."""
    return Owner(kind=OwnerKind.GROUP, name=name)


def service_account(namespace: str, name: str) -> Owner:
    """Return an owner of the kind ServiceAccount."""
    return Owner(kind=OwnerKind.SERVICE_ACCOUNT, name=name, namespace=namespace)


def tenant(
    name: str = "acme",
    *,
    uid: str = "",
    owners: Sequence[Owner] = (),
    quota: dict[str, str | int] | None = None,
    requests: dict[str, str | int] | None = None,
    limits: dict[str, str | int] | None = None,
    network: NetworkIsolation = NetworkIsolation.ISOLATED,
    cluster_policy: bool = False,
    suspended: bool = False,
    generation: int = 1,
    status: TenantStatus | None = None,
) -> Tenant:
    """Return a tenant as the API server would return it.

    Args:
        name: Its name.
        uid: Its uid; by default derived from the name.
        owners: The owner; the user alice by default.
        quota: Quota keys and quantities.
        requests: The containers' default requests.
        limits: The containers' default limits.
        network: Its network isolation.
        cluster_policy: Whether it asks for ClusterNetworkPolicies.
        suspended: Whether it is suspended.
        generation: Of its spec.
        status: Its status.

    Raises:
        ValueError: The API server would have refused it.
    """
    if is_reserved(name):
        raise ValueError(f"the API server refuses a tenant called {name!r}")
    return Tenant(
        metadata=ObjectMeta(
            name=name,
            uid=uid or f"{name}-uid",
            resource_version="1",
            generation=generation,
            creation_timestamp="2026-01-01T00:00:00Z",
        ),
        spec=TenantSpec(
            owners=tuple(owners) or (user("alice"),),
            quota=TenantQuota(hard=quota or {}),
            container_defaults=ContainerDefaults(requests=requests or {}, limits=limits or {}),
            isolation=Isolation(network=network),
            cluster_network_policy=(
                ClusterNetworkPolicyMode.ENABLED if cluster_policy else ClusterNetworkPolicyMode.DISABLED
            ),
            suspended=suspended,
        ),
        status=status or TenantStatus(),
    )

"""Kubernetes' objects with the fields that people look at and Tenantry never writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import ClusterNetworkPolicy, Namespace, NetworkPolicy, ResourceQuota
from tenantry.api.model import KubernetesObject, Model, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli.forest import Use

if TYPE_CHECKING:
    from tenantry.kube.client import Client

PODS = Resource("", "v1", "pods", "Pod")


class NamespaceStatus(Model, frozen=True, kw_only=True):
    """Active or Terminating."""

    phase: str = ""


class NamespaceSeen(KubernetesObject, frozen=True, kw_only=True):
    """A namespace with its phase."""

    resource: ClassVar[Resource] = Namespace.resource

    status: NamespaceStatus = NamespaceStatus()


class QuotaStatus(Model, frozen=True, kw_only=True):
    """What Kubernetes enforces, and what is used of it; quota key to quantity."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class QuotaSeen(KubernetesObject, frozen=True, kw_only=True):
    """A quota with what is used of it."""

    resource: ClassVar[Resource] = ResourceQuota.resource

    status: QuotaStatus = QuotaStatus()

    def uses(self) -> tuple[Use, ...]:
        """Return what is used of each key, sorted."""
        used = self.status.used
        return tuple(Use(key, used.get(key, "0"), hard) for key, hard in sorted(self.status.hard.items()))


class PolicySpec(Model, frozen=True, kw_only=True):
    """What a NetworkPolicy is about."""

    policy_types: tuple[str, ...] = ()


class PolicySeen(KubernetesObject, frozen=True, kw_only=True):
    """A NetworkPolicy, whoever wrote it: its ports may be names and its peers addresses."""

    resource: ClassVar[Resource] = NetworkPolicy.resource

    spec: PolicySpec = PolicySpec()


class ClusterPolicySpec(Model, frozen=True, kw_only=True):
    """Whether tenants can loosen a ClusterNetworkPolicy (Baseline) or not (Admin)."""

    tier: str = ""


class ClusterPolicySeen(KubernetesObject, frozen=True, kw_only=True):
    """A ClusterNetworkPolicy."""

    resource: ClassVar[Resource] = ClusterNetworkPolicy.resource

    spec: ClusterPolicySpec = ClusterPolicySpec()


class Series(Model, frozen=True, kw_only=True):
    """How often an event happened, and when last."""

    count: int
    last_observed_time: str


class EventSeen(KubernetesObject, frozen=True, kw_only=True):
    """An event, whoever wrote it: old clients leave out what new ones require."""

    resource: ClassVar[Resource] = Resource("events.k8s.io", "v1", "events", "Event")

    event_time: str | None = None
    type: str = ""
    reason: str = ""
    note: str = ""
    series: Series | None = None

    @property
    def last(self) -> str:
        """Return when it happened last, RFC 3339."""
        if self.series is not None:
            return self.series.last_observed_time
        return self.event_time or self.metadata.creation_timestamp

    @property
    def count(self) -> int:
        """Return how often it happened."""
        return self.series.count if self.series is not None else 1


class _Remaining(msgspec.Struct, frozen=True, rename="camel"):
    remaining_item_count: int = 0


class _First(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    metadata: _Remaining


async def subnamespaces(client: Client, namespace: str) -> list[str] | None:
    """Return the names of the Subnamespaces in a namespace, sorted; None where that is not allowed."""
    try:
        found = await client.list(Subnamespace, namespace=namespace)
    except ApiError:
        return None
    return sorted(each.metadata.name for each in found)


async def count_pods(client: Client, namespace: str) -> int | None:
    """Return how many pods a namespace has, reading only one of them; None where that is not allowed."""
    from tenantry.kube import wire

    try:
        answer = await client.request("GET", wire.path(PODS, namespace), query={"limit": "1"})
    except ApiError:
        return None
    first = client.decode(_First, answer)
    return len(first.items) + first.metadata.remaining_item_count


async def tenants_named(client: Client, names: Sequence[str]) -> list[Tenant]:
    """Return the tenants of these names, all where none are given.

    Raises:
        NotFound: One of the names is no tenant's.
    """
    if not names:
        return await client.list(Tenant)
    return [await client.get(Tenant, name) for name in dict.fromkeys(names)]

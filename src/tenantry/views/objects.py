"""Kubernetes' objects with the fields that people read and the operator never writes."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenantry.api.kubernetes import ClusterNetworkPolicy, Namespace, NetworkPolicy, ResourceQuota
from tenantry.api.model import KubernetesObject, Model, Resource


class KeyUsage(msgspec.Struct, frozen=True):
    """How much of one quota key is used; canonical quantities."""

    key: str
    used: str
    hard: str


class NamespaceStatus(Model, frozen=True, kw_only=True):
    """Phase of a namespace: Active or Terminating."""

    phase: str = ""


class NamespaceWithPhase(KubernetesObject, frozen=True, kw_only=True):
    """A namespace with its phase."""

    resource: ClassVar[Resource] = Namespace.resource

    status: NamespaceStatus = NamespaceStatus()


class ResourceQuotaStatus(Model, frozen=True, kw_only=True):
    """The limits that Kubernetes enforces, and what is used of them; quota key to quantity."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuotaWithUsage(KubernetesObject, frozen=True, kw_only=True):
    """A ResourceQuota with its status."""

    resource: ClassVar[Resource] = ResourceQuota.resource

    status: ResourceQuotaStatus = ResourceQuotaStatus()

    def usage(self) -> tuple[KeyUsage, ...]:
        """Return what is used of each key, sorted."""
        used = self.status.used
        return tuple(KeyUsage(key, used.get(key, "0"), hard) for key, hard in sorted(self.status.hard.items()))


class PolicyTypes(Model, frozen=True, kw_only=True):
    """The directions that a NetworkPolicy restricts."""

    policy_types: tuple[str, ...] = ()


class NetworkPolicyTypes(KubernetesObject, frozen=True, kw_only=True):
    """A NetworkPolicy of any author: the model that the operator writes has no ports by name and no address blocks."""

    resource: ClassVar[Resource] = NetworkPolicy.resource

    spec: PolicyTypes = PolicyTypes()


class PolicyTier(Model, frozen=True, kw_only=True):
    """The tier of a ClusterNetworkPolicy; tenants can loosen Baseline, not Admin."""

    tier: str = ""


class ClusterNetworkPolicyTier(KubernetesObject, frozen=True, kw_only=True):
    """A ClusterNetworkPolicy with its tier."""

    resource: ClassVar[Resource] = ClusterNetworkPolicy.resource

    spec: PolicyTier = PolicyTier()


class EventRepeats(Model, frozen=True, kw_only=True):
    """How often a repeated event happened, and when it happened last."""

    count: int
    last_observed_time: str


class ReportedEvent(KubernetesObject, frozen=True, kw_only=True):
    """An event of any author: old clients omit fields that new ones require."""

    resource: ClassVar[Resource] = Resource("events.k8s.io", "v1", "events", "Event")

    event_time: str | None = None
    type: str = ""
    reason: str = ""
    note: str = ""
    series: EventRepeats | None = None

    @property
    def last(self) -> str:
        """Return when the event happened last, RFC 3339."""
        if self.series is not None:
            return self.series.last_observed_time
        return self.event_time or self.metadata.creation_timestamp

    @property
    def count(self) -> int:
        """Return how often the event happened."""
        return self.series.count if self.series is not None else 1

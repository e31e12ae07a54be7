"""Kubernetes' API Priority and Fairness, with only the fields that Tenantry decides.

Source: the API reference of Kubernetes 1.36, flowcontrol.apiserver.k8s.io/v1.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenantry.api.model import KubernetesObject, Model, Resource

GROUP = "flowcontrol.apiserver.k8s.io"


class Queuing(Model, frozen=True, kw_only=True):
    """How requests wait: each user's in the shortest of `hand_size` queues."""

    queues: int
    hand_size: int
    queue_length_limit: int


class LimitResponse(Model, frozen=True, kw_only=True):
    """What becomes of requests when all seats are taken: type Queue, or Reject."""

    type: str
    queuing: Queuing


class Limited(Model, frozen=True, kw_only=True):
    """How many seats a level has, in proportion to the shares of all levels; percentages of what it has."""

    nominal_concurrency_shares: int
    lendable_percent: int
    borrowing_limit_percent: int
    limit_response: LimitResponse


class PriorityLevelConfigurationSpec(Model, frozen=True, kw_only=True):
    """A level of type Limited."""

    type: str
    limited: Limited


class PriorityLevelConfiguration(KubernetesObject, frozen=True, kw_only=True):
    """So many requests at a time, and the others wait."""

    resource: ClassVar[Resource] = Resource(
        GROUP, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", namespaced=False
    )

    spec: PriorityLevelConfigurationSpec


class Named(Model, frozen=True, kw_only=True):
    """A user or a group."""

    name: str


class ServiceAccountNamed(Model, frozen=True, kw_only=True):
    """A ServiceAccount; the name "*" is every one of the namespace."""

    namespace: str
    name: str


class FlowSubject(Model, frozen=True, kw_only=True):
    """A subject: the kind User, Group or ServiceAccount, and the field of that kind."""

    kind: str
    user: Named | None = None
    group: Named | None = None
    service_account: ServiceAccountNamed | None = None


class ResourceRule(Model, frozen=True, kw_only=True):
    """Which requests for objects."""

    verbs: tuple[str, ...]
    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    cluster_scope: bool
    namespaces: tuple[str, ...]


class NonResourceRule(Model, frozen=True, kw_only=True):
    """Which requests for other pages."""

    verbs: tuple[str, ...]
    non_resource_urls: tuple[str, ...] = msgspec.field(name="nonResourceURLs")


class FlowRule(Model, frozen=True, kw_only=True):
    """The subjects and requests that a FlowSchema matches."""

    subjects: tuple[FlowSubject, ...]
    resource_rules: tuple[ResourceRule, ...]
    non_resource_rules: tuple[NonResourceRule, ...]


class LevelReference(Model, frozen=True, kw_only=True):
    """A priority level by its name."""

    name: str


class Distinguisher(Model, frozen=True, kw_only=True):
    """How requests are divided into flows: type ByUser, or ByNamespace."""

    type: str


class FlowSchemaSpec(Model, frozen=True, kw_only=True):
    """The priority level of matching requests; the lowest `matching_precedence` that matches decides."""

    priority_level_configuration: LevelReference
    matching_precedence: int
    distinguisher_method: Distinguisher
    rules: tuple[FlowRule, ...]


class FlowSchema(KubernetesObject, frozen=True, kw_only=True):
    """Which requests are served at which level."""

    resource: ClassVar[Resource] = Resource(GROUP, "v1", "flowschemas", "FlowSchema", namespaced=False)

    spec: FlowSchemaSpec

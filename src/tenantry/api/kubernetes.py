"""Kinds of Kubernetes, with only the fields that Tenantry sets.

Sources: the API reference of Kubernetes 1.36, and network-policy-api v0.2 for ClusterNetworkPolicy. A field that the
API server would default has no default here, so that Tenantry writes what the server stores.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from tenantry.api.marks import TENANT
from tenantry.api.model import KubernetesObject, Model, Resource

RBAC_GROUP = "rbac.authorization.k8s.io"

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the mirror of a static pod, which the kubelet creates."""


class Namespace(KubernetesObject, frozen=True, kw_only=True):
    """A namespace: only its metadata is ours."""

    resource: ClassVar[Resource] = Resource("", "v1", "namespaces", "Namespace", namespaced=False, owned=())


class ResourceQuotaSpec(Model, frozen=True, kw_only=True):
    """`hard` maps a quota key to a canonical quantity."""

    hard: dict[str, str]


class ResourceQuota(KubernetesObject, frozen=True, kw_only=True):
    """The quota of one namespace."""

    resource: ClassVar[Resource] = Resource("", "v1", "resourcequotas", "ResourceQuota")

    spec: ResourceQuotaSpec


class LimitRangeItem(Model, frozen=True, kw_only=True):
    """Defaults for one type of thing; both maps are resource name to canonical quantity."""

    type: str
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}


class LimitRangeSpec(Model, frozen=True, kw_only=True):
    """The items of a LimitRange."""

    limits: tuple[LimitRangeItem, ...]


class LimitRange(KubernetesObject, frozen=True, kw_only=True):
    """Requests and limits for containers that name none."""

    resource: ClassVar[Resource] = Resource("", "v1", "limitranges", "LimitRange")

    spec: LimitRangeSpec


class LabelRequirement(Model, frozen=True, kw_only=True):
    """A label that must exist (operator `Exists`), or must not (`DoesNotExist`)."""

    key: str
    operator: str


class LabelSelector(Model, frozen=True, kw_only=True):
    """An empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class IPBlock(Model, frozen=True, kw_only=True):
    """Addresses."""

    cidr: str
    except_: tuple[str, ...] = msgspec.field(name="except", default=())


class NetworkPolicyPeer(Model, frozen=True, kw_only=True):
    """Pods of the selected namespaces, all of them without a pod selector; or addresses."""

    ip_block: IPBlock | msgspec.UnsetType = msgspec.UNSET
    namespace_selector: LabelSelector | msgspec.UnsetType = msgspec.UNSET
    pod_selector: LabelSelector | msgspec.UnsetType = msgspec.UNSET


class NetworkPolicyPort(Model, frozen=True, kw_only=True):
    """A port of a protocol."""

    protocol: str
    port: int


class IngressRule(Model, frozen=True, kw_only=True):
    """Sources that may connect to the selected pods."""

    from_: tuple[NetworkPolicyPeer, ...] = msgspec.field(name="from", default=())
    ports: tuple[NetworkPolicyPort, ...] = ()


class EgressRule(Model, frozen=True, kw_only=True):
    """Destinations that the selected pods may connect to."""

    to: tuple[NetworkPolicyPeer, ...] = ()
    ports: tuple[NetworkPolicyPort, ...] = ()


class NetworkPolicySpec(Model, frozen=True, kw_only=True):
    """Rules for the selected pods; a policy type without rules denies."""

    pod_selector: LabelSelector
    policy_types: tuple[str, ...]
    ingress: tuple[IngressRule, ...] = ()
    egress: tuple[EgressRule, ...] = ()


class NetworkPolicy(KubernetesObject, frozen=True, kw_only=True):
    """What may connect to and from the pods of one namespace."""

    resource: ClassVar[Resource] = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")

    spec: NetworkPolicySpec


class RoleRef(Model, frozen=True, kw_only=True):
    """The role that a binding gives; immutable."""

    kind: str
    name: str
    api_group: str


class Subject(Model, frozen=True, kw_only=True):
    """A subject of a binding. Users and groups have an apiGroup, ServiceAccounts a namespace."""

    kind: str
    name: str
    api_group: str | msgspec.UnsetType = msgspec.UNSET
    namespace: str | msgspec.UnsetType = msgspec.UNSET


class RoleBinding(KubernetesObject, frozen=True, kw_only=True):
    """Rights in one namespace."""

    resource: ClassVar[Resource] = Resource(
        RBAC_GROUP, "v1", "rolebindings", "RoleBinding", owned=("roleRef", "subjects")
    )

    role_ref: RoleRef
    subjects: tuple[Subject, ...] = ()


class ClusterRoleBinding(KubernetesObject, frozen=True, kw_only=True):
    """Rights in the whole cluster."""

    resource: ClassVar[Resource] = Resource(
        RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False, owned=("roleRef", "subjects")
    )

    role_ref: RoleRef
    subjects: tuple[Subject, ...] = ()


class RoleRule(Model, frozen=True, kw_only=True):
    """Verbs on resources; with names, only on the objects that have them. Rules for URLs have no resources."""

    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ()


class ClusterRole(KubernetesObject, frozen=True, kw_only=True):
    """Rights that a binding grants."""

    resource: ClassVar[Resource] = Resource(
        RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False, owned=("rules",)
    )

    rules: tuple[RoleRule, ...]


class OwnerRole(KubernetesObject, frozen=True, kw_only=True):
    """The ClusterRole of owners, whose rules Kubernetes aggregates."""

    # Other than the ClusterRoles that Tenantry writes: it is watched by itself.
    resource: ClassVar[Resource] = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False, owned=())

    rules: tuple[RoleRule, ...] | None = None


class NamespaceRole(KubernetesObject, frozen=True, kw_only=True):
    """A Role that Tenantry writes in a tenant's namespace."""

    # Other than the Roles that children inherit, which are watched by themselves.
    resource: ClassVar[Resource] = Resource(RBAC_GROUP, "v1", "roles", "Role", owned=("rules",), selected=TENANT)

    rules: tuple[RoleRule, ...]


class NamespaceSubject(Model, frozen=True, kw_only=True):
    """The namespaces that a ClusterNetworkPolicy is about."""

    namespaces: LabelSelector


class ClusterPeer(Model, frozen=True, kw_only=True):
    """All pods of the selected namespaces."""

    namespaces: LabelSelector


class ClusterIngressRule(Model, frozen=True, kw_only=True):
    """Accept, Deny or Pass connections from the peers."""

    name: str
    action: str
    from_: tuple[ClusterPeer, ...] = msgspec.field(name="from")


class ClusterEgressRule(Model, frozen=True, kw_only=True):
    """Accept, Deny or Pass connections to the peers."""

    name: str
    action: str
    to: tuple[ClusterPeer, ...]


class ClusterNetworkPolicySpec(Model, frozen=True, kw_only=True):
    """Rules in order; the first that matches decides. A lower priority number is evaluated first."""

    tier: str
    priority: int
    subject: NamespaceSubject
    ingress: tuple[ClusterIngressRule, ...] = ()
    egress: tuple[ClusterEgressRule, ...] = ()


class ClusterNetworkPolicy(KubernetesObject, frozen=True, kw_only=True):
    """A policy that no tenant can loosen; only in clusters that have the kind (network-policy-api v0.2)."""

    resource: ClassVar[Resource] = Resource(
        "policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies", "ClusterNetworkPolicy", namespaced=False
    )

    spec: ClusterNetworkPolicySpec

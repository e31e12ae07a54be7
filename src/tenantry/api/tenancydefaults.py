"""TenancyDefaults: what an administrator decides for all tenants. Only the object named `default` counts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.clustertemplate import NAME_PATTERN as TEMPLATE_PATTERN
from tenantry.api.crd import AGE, MESSAGE, READY, Column, Conditions, Names, ObservedGeneration, Rule, list_map, rules
from tenantry.api.fairness import Fairness
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.quota import Quantity, Quota
from tenantry.api.requests import AutoApproval
from tenantry.api.rules import Rules
from tenantry.api.slice import DEFAULT_GRACE_SECONDS, MAX_GRACE_SECONDS
from tenantry.api.snapshotdestinations import ControlPlaneDefaults
from tenantry.api.subnamespace import NEVER_INHERITED

NAME = "default"

NODE_LOCAL_DNS = "169.254.20.10"
"""The default address of NodeLocal DNS. Source: Kubernetes, "Using NodeLocal DNSCache"."""


class InheritableKind(Model, frozen=True, kw_only=True):
    """A namespaced kind that children may inherit."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!(size(self.group) > 0 ? self.plural + '.' + self.group : self.plural).matches('^({NEVER_INHERITED})$')",
            "must not be a kind that controllers create, a Tenantry kind, or a kind with a field of its"
            " own in spec.inheritance of a Subnamespace",
            field="plural",
        ),
    )

    group: Annotated[str, Meta(max_length=253, description='The API group; "" for the core group.')]
    version: Annotated[str, Meta(min_length=1, max_length=63, description="The version to use, as in v1.")]
    plural: Annotated[str, Meta(min_length=1, max_length=63, description="As in URLs: widgets.")]
    kind: Annotated[str, Meta(min_length=1, max_length=63, description="As in objects: Widget.")]


class OfferedUse(StrEnum):
    """What a field of an offered kind has."""

    SECRET = "Secret"  # noqa: S105 - a kind
    CONFIG_MAP = "ConfigMap"
    SERVICE = "Service"
    CLAIM = "PersistentVolumeClaim"
    WRITTEN_SECRET = "WrittenSecret"  # noqa: S105 - a use
    SELECTOR = "LabelSelector"
    OMITTED = "Omitted"


class OfferedField(Model, frozen=True, kw_only=True):
    """A field of an offered kind that is not mirrored as it is."""

    path: Annotated[
        str,
        Meta(
            max_length=253,
            pattern=r"^(spec|status)([.][A-Za-z0-9_-]+(\[\])?)*[.][A-Za-z0-9_-]+$",
            description="The fields with dots between them, as in spec.secretName. [] after a field that is a list"
            " means each of its items, as in spec.rules[].serviceName.",
        ),
    ]
    use: Annotated[
        OfferedUse,
        Meta(
            description="What is there: the name of a Secret or ConfigMap, which is copied; the name of a Service or"
            " PersistentVolumeClaim; WrittenSecret, for the name of a Secret that a program of the cluster writes, and"
            " which then appears inside; a LabelSelector, which then selects objects of the same namespace inside only;"
            " or Omitted, for a field that is not mirrored."
        ),
    ]


class OfferedKind(Model, frozen=True, kw_only=True):
    """A custom kind of the cluster that virtual control planes have."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.group.contains('.') && self.group != '{GROUP}' && !self.group.endsWith('.{GROUP}')",
            "must be the group of a CustomResourceDefinition, and not one of Tenantry",
            field="group",
        ),
    )

    group: Annotated[str, Meta(min_length=1, max_length=253, description="The API group.")]
    version: Annotated[str, Meta(min_length=1, max_length=63, description="The version to use, as in v1.")]
    plural: Annotated[str, Meta(min_length=1, max_length=63, description="As in URLs: certificates.")]
    kind: Annotated[str, Meta(min_length=1, max_length=63, description="As in objects: Certificate.")]
    fields: Annotated[
        tuple[OfferedField, ...],
        Meta(
            max_length=32,
            description="Fields that are not mirrored as they are: names of other objects, selectors, and fields that"
            " must not reach the host.",
        ),
    ] = ()


class IngressController(Model, frozen=True, kw_only=True):
    """Pods that connect to the pods of tenants, because Ingresses and routes name these."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.podLabels.all(k, self.podLabels[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",
            "must have only values of labels",
            "podLabels",
        ),
    )

    namespace: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            description="The namespace of the controller. While it belongs to a tenant, its pods are not let in.",
        ),
    ]
    pod_labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(
            min_length=1,
            max_length=8,
            description="Labels that the controller's pods have, and other pods of that namespace do not have.",
        ),
    ]


class NetworkDefaults(Model, frozen=True, kw_only=True):
    """Addresses of the cluster that the tenants' network policies mention."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.dnsAddresses) || self.dnsAddresses.all(a, isIP(a))", "must be IP addresses", "dnsAddresses"),
        Rule("!has(self.keptCidrs) || self.keptCidrs.all(c, isCIDR(c))", "must be CIDRs", "keptCidrs"),
    )

    dns_addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=45)], ...],
        Meta(
            max_length=8,
            description="Addresses of the cluster's DNS besides its pods in kube-system, for example of NodeLocal"
            " DNS. Pods may connect to port 53 there.",
        ),
    ] = (NODE_LOCAL_DNS,)
    kept_cidrs: Annotated[
        tuple[Annotated[str, Meta(max_length=49)], ...],
        Meta(
            max_length=32,
            description="CIDRs that no pod of a Baseline tenant may connect to, besides the addresses of nodes,"
            " link-local and metadata addresses. List the nodes' subnets here, so that policies need not"
            " follow the nodes.",
        ),
    ] = ()
    ingress_controllers: Annotated[
        tuple[IngressController, ...],
        Meta(
            max_length=8,
            description="Pods outside of all tenants that may connect to the pods of Isolated and Baseline tenants:"
            " ingress controllers and gateways. Without them, Ingresses and routes of these tenants get no traffic.",
        ),
    ] = ()


class SandboxDefaults(Model, frozen=True, kw_only=True):
    """In which runtime sandboxed pods run."""

    runtime_class_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="The RuntimeClass; if it does not exist, there is no sandbox. Default: the first by name with"
            ' the label tenantry.dev/sandbox: "true", else the first whose handler is gvisor, runsc or'
            " kata, or begins with one of these and a hyphen.",
        ),
    ] = ""


class CleaningPolicy(StrEnum):
    """Which nodes must be clean before a slice releases them."""

    WHERE_AGENTS = "WhereAgents"
    REQUIRED = "Required"


class SliceDefaults(Model, frozen=True, kw_only=True):
    """Limits and defaults of slices."""

    max_grace_period_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GRACE_SECONDS,
            description="The longest spec.gracePeriodSeconds of a SliceClaim. Left out: 3600.",
        ),
    ] = 3600
    min_grace_period_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GRACE_SECONDS,
            description="The shortest spec.gracePeriodSeconds of a SliceClaim of whole nodes. Default: 60.",
        ),
    ] = DEFAULT_GRACE_SECONDS
    disruption_budget_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=7 * MAX_GRACE_SECONDS,
            description="Seconds during which the operator respects a PodDisruptionBudget, counted from the first"
            " eviction and at least the grace period. Then it deletes the pods. Default: 3600.",
        ),
    ] = 3600
    cooldown_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GRACE_SECONDS,
            description="Seconds after an eviction for a Dynamic claim, during which no other Dynamic claim of the same"
            " tenant, and no Dynamic claim on the same node, evicts pods. Default: 300.",
        ),
    ] = 300
    shared_nodes: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="How many nodes stay shared. Only nodes that any pod can run on count, and contributed nodes"
            " do not. 0: a tenant with enough quota can claim every node, which leaves none for the pods"
            " of the cluster itself, for example of its DNS. Default: 1.",
        ),
    ] = 1
    cleaning: Annotated[
        CleaningPolicy,
        Meta(
            description="Which nodes a slice releases only after the tenant's data is removed. WhereAgents: nodes"
            " with a cleaning agent; other nodes are released as they are. Required: all nodes; a node"
            " without an agent stays reserved until an administrator runs `tenantry node cleaned`."
        ),
    ] = CleaningPolicy.WHERE_AGENTS


class FederationDefaults(Model, frozen=True, kw_only=True):
    """What holds for all peers."""

    peer_labels: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=317)], ...],
        Meta(
            max_length=64,
            description="Keys of labels that a peer may propose for its Node, besides those of topology.kubernetes.io"
            " and federation.tenantry.dev. Labels that name a node, its role, or are Tenantry's are never admitted.",
        ),
    ] = ()
    default_quota: Annotated[
        Quota,
        Meta(
            description="The share at each peer of a namespace with the label federation.tenantry.dev/offload. A key"
            " above the quota of its Tenant is cut to that quota. Left out: cpu 1, memory 1Gi, pods 10."
        ),
    ] = Quota(hard={"cpu": "1", "memory": "1Gi", "pods": "10"})


class ClusterDefaults(Model, frozen=True, kw_only=True):
    """What holds for DedicatedClusters."""

    template: Annotated[
        str,
        Meta(
            max_length=63,
            pattern=TEMPLATE_PATTERN,
            description="The ClusterTemplate of clusters that are created without spec.template. Default: none.",
        ),
    ] = ""


class TreeDefaults(Model, frozen=True, kw_only=True):
    """Limits of the trees of tenants that set none."""

    max_count: Annotated[
        int,
        Meta(ge=0, le=10_000, description="How many subnamespaces a tenant has; 0 for no limit. Left out: 20."),
    ] = 20
    max_depth: Annotated[
        int,
        Meta(
            ge=0,
            le=60,
            description="How deep its tree is; 1 is right below the core namespace, 0 for no limit. Left out: 5.",
        ),
    ] = 5


_Counts = Annotated[
    dict[str, Annotated[int, Meta(ge=0, le=1_000_000)]],
    Meta(
        max_length=64,
        extra_json_schema=rules(
            Rule(
                "self.all(k, size(k) <= 253 && k.matches('^[a-z0-9-]+([.][a-z0-9.-]+)?$'))",
                "must have only plurals, with their group unless it is the core group, as in configmaps or"
                " deployments.apps",
            )
        ),
    ),
]


class ObjectCounts(Model, frozen=True, kw_only=True):
    """How many objects of a kind a namespace may have, for the kinds whose standard does not fit."""

    core: Annotated[
        _Counts, Meta(description="Plural and group to the number of objects in the core namespace of each tenant.")
    ] = {}
    child: Annotated[_Counts, Meta(description="Plural and group to the number of objects in each child.")] = {}


class EphemeralStorage(Model, frozen=True, kw_only=True):
    """How much of the nodes' disks the pods of one namespace may request."""

    core: Annotated[Quantity, Meta(description="In the core namespace of each tenant. Default: 400Gi.")] = "400Gi"
    child: Annotated[Quantity, Meta(description="In each child. Default: 100Gi.")] = "100Gi"


class TenancyDefaultsSpec(Model, frozen=True, kw_only=True):
    """What holds for all tenants."""

    inheritable_kinds: Annotated[
        tuple[InheritableKind, ...],
        Meta(
            max_length=32,
            description="Namespaced kinds beyond the seven that a Subnamespace may name in spec.inheritance.others. The"
            " operator needs the verbs get, list, watch, create, update and delete on each: give them in a ClusterRole"
            ' with the label tenantry.dev/aggregate-to-operator: "true".',
            extra_json_schema=list_map("group", "plural"),
        ),
    ] = ()
    offered_kinds: Annotated[
        tuple[OfferedKind, ...],
        Meta(
            max_length=16,
            description="Custom kinds of the cluster that virtual control planes have, too. Their objects are mirrored"
            " to the host: offer only kinds whose objects are safe in the namespace of any tenant. Give the operator"
            " the verbs get, list and watch in a ClusterRole with the label tenantry.dev/aggregate-to-operator:"
            ' "true", and the mirrors the verbs create, update, patch and delete in one with the label'
            ' tenantry.dev/aggregate-to-mirror: "true".',
            extra_json_schema=list_map("group", "plural"),
        ),
    ] = ()
    rules: Annotated[
        Rules,
        Meta(description="What workloads may request in every namespace of every tenant. Tenants can only tighten it."),
    ] = Rules()
    network: Annotated[
        NetworkDefaults, Meta(description="Addresses of the cluster that the tenants' network policies mention.")
    ] = NetworkDefaults()
    sandbox: Annotated[SandboxDefaults, Meta(description="In which runtime sandboxed pods run.")] = SandboxDefaults()
    namespaces: Annotated[
        TreeDefaults, Meta(description="Limits of the trees of tenants that set none in spec.namespaces.")
    ] = TreeDefaults()
    object_counts: Annotated[
        ObjectCounts,
        Meta(
            description="How many objects of each kind a namespace of a tenant may have. Every kind that owners may"
            " create has a standard; a key in spec.quota of a Tenant takes precedence."
        ),
    ] = ObjectCounts()
    ephemeral_storage: Annotated[
        EphemeralStorage,
        Meta(
            description="The most requests.ephemeral-storage of all pods in a namespace of a tenant. Pods that request"
            " none are not counted. The key requests.ephemeral-storage or limits.ephemeral-storage in spec.quota of a"
            " Tenant takes precedence."
        ),
    ] = EphemeralStorage()
    slices: Annotated[SliceDefaults, Meta(description="Limits and defaults of slices.")] = SliceDefaults()
    federation: Annotated[FederationDefaults, Meta(description="What holds for all peers.")] = FederationDefaults()
    fairness: Annotated[Fairness, Meta(description="How the API server's work is shared out between tenants.")] = (
        Fairness()
    )
    virtual_control_planes: Annotated[
        ControlPlaneDefaults, Meta(description="What virtual control planes may use.")
    ] = ControlPlaneDefaults()
    dedicated_clusters: Annotated[ClusterDefaults, Meta(description="What holds for DedicatedClusters.")] = (
        ClusterDefaults()
    )
    auto_approve: Annotated[
        tuple[AutoApproval, ...],
        Meta(
            max_length=16,
            description="Rules by which the operator approves TenantRequests: a request needs to match one of them.",
            extra_json_schema=list_map("name"),
        ),
    ] = ()


class TenancyDefaultsStatus(Model, frozen=True, kw_only=True):
    """Whether it is in force."""

    observed_generation: ObservedGeneration = 0
    conditions: Conditions = ()


class TenancyDefaults(KubernetesObject, frozen=True, kw_only=True):
    """What an administrator decides for all tenants; only the object named default counts."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "tenancydefaults", "TenancyDefaults", namespaced=False)
    names: ClassVar[Names] = Names(short=("tdef",))
    access: ClassVar[KindAccess] = KindAccess(operator=READ, updates=("status",))
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(f"self.metadata.name == '{NAME}'", f"must be {NAME}", field="metadata.name"),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        Column("Inheritable", "string", ".spec.inheritableKinds[*].plural"),
        MESSAGE,
        AGE,
    )

    spec: TenancyDefaultsSpec
    status: TenancyDefaultsStatus = TenancyDefaultsStatus()

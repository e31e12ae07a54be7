"""The Tenant: its owners, its quota and its isolation."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.controlplanechoice import CONVERTED, FIXED, SHORT, ControlPlaneChoice
from tenantry.api.conversion import Conversion
from tenantry.api.crd import AGE, MESSAGE, READY, REASON, Column, Conditions, Names, ObservedGeneration, Rule, rules
from tenantry.api.dedicatedcluster import MAX_NAME as MAX_CLUSTER_NAME
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.owner import Owner
from tenantry.api.quota import ContainerResources, Quota
from tenantry.api.ruledeclarations import PATTERN_PARSES
from tenantry.api.rules import Rules
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.slice import MAX_NAME as MAX_CLAIM_NAME
from tenantry.api.slice import OwnNodes
from tenantry.api.times import Instant

SLICE_WITHOUT_NODES = "must not be set unless nodes is Slice"
NODES_OF_CLUSTER = "must be Shared if controlPlane is Dedicated: the DedicatedCluster has the nodes"
CLUSTER_NAME_TOO_LONG = f"must have at most {MAX_CLUSTER_NAME} characters if spec.isolation.controlPlane is Dedicated"
CLAIM_NAME_TOO_LONG = f"must have at most {MAX_CLAIM_NAME} characters if spec.isolation.nodes is Slice"


class ContainerDefaults(Model, frozen=True, kw_only=True):
    """Default requests and limits of containers, in a tenant whose quota covers compute."""

    requests: Annotated[ContainerResources, Meta(description="Resource name to quantity, as in cpu: 100m.")] = {}
    limits: Annotated[ContainerResources, Meta(description="Resource name to quantity, as in memory: 256Mi.")] = {}


class NetworkIsolation(StrEnum):
    """How strictly the network of a tenant is isolated."""

    OPEN = "Open"
    BASELINE = "Baseline"
    ISOLATED = "Isolated"


class NodesChoice(StrEnum):
    """On which nodes the pods of a tenant run."""

    SHARED = "Shared"
    SLICE = "Slice"


class IsolationClass(StrEnum):
    """How much an attacker in the tenant must break to reach other tenants (docs/concepts/isolation.md)."""

    SOFT = "soft"
    HARD = "hard"
    HARDER = "hard+"


class Federation(Model, frozen=True, kw_only=True):
    """Which other clusters a tenant may use."""

    peers: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=63)], ...],
        Meta(
            max_length=64,
            description="PeerClusters on which pods of the tenant may run, with the ConfigMaps and Secrets that they"
            " name. The administrators of those clusters can read them.",
        ),
    ] = ()


class Isolation(Model, frozen=True, kw_only=True):
    """How hard the tenant is isolated; the defaults are the safe ones for untrusted tenants."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("!has(self.allowedCidrs) || self.allowedCidrs.all(c, isCIDR(c))", "must be CIDRs", "allowedCidrs"),
        Rule("!has(self.slice) || self.nodes == 'Slice'", SLICE_WITHOUT_NODES, "slice"),
        # The API server also checks the default of this field, {}, before it fills in those inside.
        Rule(
            "!has(self.controlPlane) || self.controlPlane != 'Dedicated' || self.nodes == 'Shared'",
            NODES_OF_CLUSTER,
            "nodes",
        ),
    )

    network: Annotated[
        NetworkIsolation,
        Meta(
            description="Isolated: pods connect within the tenant and to the cluster's DNS only. Baseline: pods"
            " outside the tenant cannot connect to them; they can connect anywhere except to nodes,"
            " link-local and metadata addresses. Open: no network policies. A Subtenant counts as another"
            " tenant."
        ),
    ] = NetworkIsolation.ISOLATED
    runtime: (
        Annotated[
            RuntimeChoice,
            Meta(
                description="Sandboxed: every pod runs in the cluster's sandbox and in no other RuntimeClass. Shared:"
                " pods share the kernel of their node. Default: Sandboxed as long as the cluster has a"
                " sandbox, which the condition Sandboxed shows."
            ),
        ]
        | UnsetType
    ) = UNSET
    control_plane: Annotated[
        ControlPlaneChoice,
        Meta(
            description="Shared: owners work with the API server of the cluster. Virtual: a VirtualControlPlane of the"
            " tenant's name is created in its namespace; owners are administrators there, and cannot run pods or"
            " write objects in the namespace themselves. A change converts the tenant while its pods run; see"
            " status.conversion. Dedicated: the same with a DedicatedCluster of the tenant's name, whose control plane"
            " has nodes of its own; the field must not change from or to Dedicated."
        ),
    ] = ControlPlaneChoice.SHARED
    nodes: Annotated[
        NodesChoice,
        Meta(
            description="Shared: pods run on the nodes of all tenants. Slice: the operator creates a SliceClaim of the"
            " tenant's name in its namespace and keeps it. Pods of the whole tree run on nodes of the tenant only;"
            " until these are Bound, new pods are refused."
        ),
    ] = NodesChoice.SHARED
    slice: (
        Annotated[OwnNodes, Meta(description="The nodes that the SliceClaim requests. Default: one node.")] | UnsetType
    ) = UNSET
    allowed_cidrs: Annotated[
        tuple[Annotated[str, Meta(max_length=49)], ...],
        Meta(
            max_length=32,
            description="Addresses that the tenant's own NetworkPolicies may open to: each of their ipBlocks must lie"
            " within one of these.",
        ),
    ] = ()
    contributors: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...],
        Meta(
            max_length=32,
            description="Other tenants on whose contributed nodes this tenant's pods may run, if they tolerate the"
            " taint tenantry.dev/contributed-by. The owner of such a node can read what its pods can,"
            " Secrets included.",
        ),
    ] = ()
    federation: Annotated[Federation, Meta(description="The other clusters on which its pods may run.")] = Federation()


class OnShortage(StrEnum):
    """What happens when the quota has become smaller than what its subnamespaces hold."""

    KEEP = "Keep"
    RECLAIM = "Reclaim"


class TenantQuota(Quota, frozen=True, kw_only=True):
    """What the whole tenant may use, and the rule for when that becomes too little."""

    on_shortage: Annotated[
        OnShortage,
        Meta(
            description="What happens when the quota no longer covers what the subnamespaces hold. Keep: all keep"
            " their shares, and a condition reports what is missing. Reclaim: the youngest lose their"
            " shares first; running pods continue, new use is rejected."
        ),
    ] = OnShortage.KEEP


class MarkRules(Model, frozen=True, kw_only=True):
    """Which labels, or annotations, the namespaces of the tree have."""

    required: Annotated[
        tuple[Annotated[str, Meta(max_length=317)], ...],
        Meta(max_length=16, description="Keys that every Subnamespace must set."),
    ] = ()
    allowed: Annotated[
        tuple[Annotated[str, Meta(max_length=317)], ...],
        Meta(
            max_length=16,
            description="Keys that a Subnamespace may set, besides those with the prefix TENANT.tenantry.dev/. A key"
            " that ends in * allows every key with that prefix.",
        ),
    ] = ()


class HomeNames(Model, frozen=True, kw_only=True):
    """Names that a Subnamespace may request for a namespace of another cluster, whose name is part of the digits.

    The operator computes them from the annotations federation.tenantry.dev/home and federation.tenantry.dev/namespace
    of the Subnamespace.
    """

    cluster_id: Annotated[
        str,
        Meta(max_length=64, description='The cluster id of that cluster; "" if it is not known yet.'),
    ] = ""


class NamespaceRules(Model, frozen=True, kw_only=True):
    """Limits of the tenant's tree."""

    max_count: Annotated[
        int,
        Meta(ge=0, description="How many subnamespaces, the whole tree counted; 0 for the number in TenancyDefaults."),
    ] = 0
    max_depth: Annotated[
        int,
        Meta(ge=0, description="How deep; 1 is below the core namespace, 0 for the depth in TenancyDefaults."),
    ] = 0
    name_pattern: Annotated[
        str,
        Meta(
            max_length=256,
            description="A regular expression (RE2) that the name of a Subnamespace must match whole.",
            extra_json_schema=rules(PATTERN_PARSES),
        ),
    ] = ""
    exact_names: Annotated[
        str,
        Meta(
            max_length=256,
            description="A regular expression (RE2) that a name must match whole which a Subnamespace requests by"
            " spec.namespaceName. Default: none may be requested. Namespaces of all tenants share these names.",
            extra_json_schema=rules(PATTERN_PARSES),
        ),
    ] = ""
    home_names: Annotated[HomeNames, Meta(description="Names for namespaces of another cluster.")] | UnsetType = UNSET
    labels: Annotated[MarkRules, Meta(description="Labels of the namespaces.")] = MarkRules()
    annotations: Annotated[MarkRules, Meta(description="Annotations of the namespaces.")] = MarkRules()


class ClusterNetworkPolicyMode(StrEnum):
    """Whether a policy above the tenant's own NetworkPolicies confines it."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class TenantSpec(Model, frozen=True, kw_only=True):
    """What the tenant should be."""

    owners: Annotated[
        tuple[Owner, ...],
        Meta(
            min_length=1,
            max_length=64,
            description="The users, groups and ServiceAccounts that own the tenant; at least one.",
        ),
    ]
    quota: Annotated[TenantQuota, Meta(description="What the whole tenant may use; no key, no limit.")] = TenantQuota()
    container_defaults: Annotated[
        ContainerDefaults, Meta(description="Requests and limits of containers that name none.")
    ] = ContainerDefaults()
    isolation: Annotated[Isolation, Meta(description="How hard the tenant is isolated.")] = Isolation()
    cluster_network_policy: Annotated[
        ClusterNetworkPolicyMode,
        Meta(
            description="Enabled: a ClusterNetworkPolicy, which the tenant cannot loosen, keeps other tenants' pods"
            " away. Needs that kind (network-policy-api v0.2) and a network plugin that implements it."
        ),
    ] = ClusterNetworkPolicyMode.DISABLED
    namespaces: Annotated[NamespaceRules, Meta(description="Limits of the tenant's tree of namespaces.")] = (
        NamespaceRules()
    )
    rules: Annotated[
        Rules,
        Meta(
            description="What workloads may request in every namespace of the tree; never looser than in"
            " TenancyDefaults. By default pod security is Baseline, pods cannot name their node, and"
            " Services are reachable from inside the cluster only."
        ),
    ] = Rules()
    expires_at: Annotated[
        Instant,
        Meta(description="When the operator suspends the tenant. A later time resumes it; no data is lost."),
    ] = ""
    suspended: Annotated[
        bool,
        Meta(description="True: only administrators have access, no new objects can be created, and no data is lost."),
    ] = False


class TenantStatus(Model, frozen=True, kw_only=True):
    """The observed state of a tenant."""

    observed_generation: ObservedGeneration = 0
    namespace: Annotated[str, Meta(description="The tenant's core namespace, after it is created.")] = ""
    isolation_class: (
        Annotated[
            IsolationClass,
            Meta(
                description="soft: shared control plane, or shared kernels. hard: own control plane, and sandboxed pods"
                " or own nodes. hard+: own cluster with own nodes. Computed from what is in force."
            ),
        ]
        | UnsetType
    ) = UNSET
    conversion: (
        Annotated[Conversion, Meta(description="How far a change of spec.isolation.controlPlane is.")] | UnsetType
    ) = UNSET
    conditions: Conditions = ()


class Tenant(KubernetesObject, frozen=True, kw_only=True):
    """A tenant: a core namespace of the same name, its owners' rights, its quota and its isolation."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "tenants", "Tenant", namespaced=False)
    names: ClassVar[Names] = Names(short=("tnt",))
    access: ClassVar[KindAccess] = KindAccess(operator=(*READ, "administer"), updates=("status", "finalizers"))
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{DNS_LABEL}') && size(self.metadata.name) <= 63",
            "must be a DNS label (at most 63 lower-case letters, digits and -), because the tenant's namespace"
            " has the same name",
            field="metadata.name",
        ),
        Rule(
            "self.metadata.name != 'default' && !self.metadata.name.startsWith('kube-')"
            " && !self.metadata.name.startsWith('tenantry-')",
            "must not be default nor begin with kube- or tenantry-, which are reserved; choose another name",
            field="metadata.name",
        ),
        SHORT,
        Rule(
            f"self.spec.isolation.controlPlane != 'Dedicated' || size(self.metadata.name) <= {MAX_CLUSTER_NAME}",
            CLUSTER_NAME_TOO_LONG,
            field="metadata.name",
        ),
        Rule(
            f"self.spec.isolation.nodes != 'Slice' || size(self.metadata.name) <= {MAX_CLAIM_NAME}",
            CLAIM_NAME_TOO_LONG,
            field="metadata.name",
        ),
        CONVERTED,
        FIXED,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Suspended", "string", '.status.conditions[?(@.type=="Suspended")].status'),
        Column("Network", "string", ".spec.isolation.network"),
        Column("Namespace", "string", ".status.namespace", priority=1),
        Column("Control Plane", "string", ".spec.isolation.controlPlane", priority=1),
        Column("Sandboxed", "string", '.status.conditions[?(@.type=="Sandboxed")].status', priority=1),
        Column("Nodes", "string", ".spec.isolation.nodes", priority=1),
        Column("Class", "string", ".status.isolationClass", priority=1),
        MESSAGE,
        AGE,
    )

    spec: TenantSpec
    status: TenantStatus = TenantStatus()

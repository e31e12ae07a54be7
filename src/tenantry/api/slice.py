"""Slices: nodes, or parts of them, that one tenant has for itself for a while.

A SliceClaim in a tenant's namespace requests nodes; the cluster-scoped Slice records which nodes it has:

    Pending ─► Reserved ─► Draining ─► Bound ─► Releasing
    no nodes   no new      pods of     only     its pods are evicted,
    yet        pods there  others are  its      the nodes are
                           evicted     pods     cleaned

Labels of the nodes record which slice they belong to (`api/marks.py`); the status of the Slice repeats it. The operator
creates the Slice of a Dynamic claim, an administrator that of a Manual claim.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.crd import AGE, MESSAGE, REASON, Column, Conditions, Names, ObservedGeneration, Rule
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import EDIT, KEEP, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.quota import ContainerResources, Quantities
from tenantry.api.times import Instant

MAX_NAME = 46
"""The longest name of a claim: the Slice's name, also a label, appends a hyphen and 16 hexadecimal digits."""

MAX_NODES = 500
DEFAULT_GRACE_SECONDS = 60
DEFAULT_REPLACE_SECONDS = 300
MAX_GRACE_SECONDS = 86400
"""A day: more than this no administrator can allow."""

LIMITS_MAP = "tenantry-slices"
"""The `PolicyParameters` in Tenantry's namespace that give policies the settings of slices in TenancyDefaults."""

MAX_GRACE = "maxGracePeriodSeconds"
MIN_GRACE = "minGracePeriodSeconds"
"""The names of their texts, whole numbers."""

_NAMES = Annotated[tuple[Annotated[str, Meta(max_length=253)], ...], Meta(max_length=MAX_NODES)]


class ClaimMode(StrEnum):
    """Whether the operator or an administrator creates the Slice."""

    DYNAMIC = "Dynamic"
    MANUAL = "Manual"


class Sharing(StrEnum):
    """Whether a slice has whole nodes or parts of them."""

    WHOLE = "Whole"
    PART = "Part"


class Users(StrEnum):
    """The namespaces whose pods run on a slice."""

    SUBNAMESPACES = "Subnamespaces"
    EVERYBODY = "Everybody"
    CLUSTER = "Cluster"


class SliceState(StrEnum):
    """The state of a slice."""

    PENDING = "Pending"
    RESERVED = "Reserved"
    DRAINING = "Draining"
    BOUND = "Bound"
    RELEASING = "Releasing"


class SelectorOperator(StrEnum):
    """How a requirement compares the value of a label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class SelectorRequirement(Model, frozen=True, kw_only=True):
    """A requirement on a label of a node."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "must be set for In and NotIn, and must not be set otherwise",
            field="values",
        ),
    )

    key: Annotated[str, Meta(min_length=1, max_length=317, description="The key of the label.")]
    operator: Annotated[SelectorOperator, Meta(description="In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...], Meta(max_length=32, description="The values for In and NotIn.")
    ] = ()


class NodeSelector(Model, frozen=True, kw_only=True):
    """A selector of nodes; an empty selector matches every node."""

    match_labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(max_length=32, description="Labels that a node must have."),
    ] = {}
    match_expressions: Annotated[
        tuple[SelectorRequirement, ...],
        Meta(max_length=16, description="Further requirements on the labels of a node."),
    ] = ()


class SliceClaimSpec(Model, frozen=True, kw_only=True):
    """The nodes that a claim requests, and the namespaces that use them."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.sharing != 'Part'"
            " || (has(self.perNode) && 'cpu' in self.perNode && 'memory' in self.perNode && size(self.perNode) == 2)",
            "must be cpu and memory if sharing is Part: it is the size of the part of each node",
            field="perNode",
        ),
        Rule(
            "self.sharing != 'Part' || !has(self.total) || size(self.total) == 0",
            "may only be set if sharing is Whole",
            field="total",
        ),
        Rule("self.sharing == oldSelf.sharing", "must not change: create another claim", field="sharing"),
        Rule(
            "self.sharing != 'Part' || self.perNode == oldSelf.perNode",
            "must not change if sharing is Part: create another claim",
            field="perNode",
        ),
    )

    mode: (
        Annotated[
            ClaimMode,
            Meta(
                description="Dynamic: the operator assigns nodes as soon as enough are available. Manual: an"
                " administrator approves the claim. Default: Manual if rules.standard of the namespace is Restricted,"
                " else Dynamic."
            ),
        ]
        | UnsetType
    ) = UNSET
    sharing: Annotated[
        Sharing,
        Meta(
            description="Whole: whole nodes, for this claim only. Part: a part of the size perNode of each node,"
            " which other claims may share."
        ),
    ] = Sharing.WHOLE
    count: Annotated[
        int, Meta(ge=1, le=MAX_NODES, description="The number of nodes; with total, the least number. Default: 1.")
    ] = 1
    selector: Annotated[NodeSelector, Meta(description="Labels of the nodes.")] = NodeSelector()
    node_names: Annotated[_NAMES, Meta(description="Only these nodes are considered. Default: every node.")] = ()
    per_node: Annotated[
        ContainerResources,
        Meta(description="The least capacity of each node, or the size of each part, for example cpu: 8."),
    ] = {}
    total: Annotated[
        ContainerResources,
        Meta(description="The least capacity of all nodes together; the operator takes as many nodes as necessary."),
    ] = {}
    users: Annotated[
        Users,
        Meta(
            description="Subnamespaces: those that spec.subnamespaces names, and those in this namespace whose"
            " spec.sliceClaimName names the claim. Everybody: this namespace. Each includes its"
            " descendants, except those of a Subtenant. Cluster: no namespace; the nodes serve the DedicatedCluster"
            " that created the claim, and a lower count gives back those that have not joined it."
        ),
    ] = Users.SUBNAMESPACES
    subnamespaces: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...],
        Meta(max_length=64, description="Subnamespaces in this namespace whose pods run on the slice."),
    ] = ()
    grace_period_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GRACE_SECONDS,
            description="Seconds that pods of other namespaces get to stop before they are deleted. Default: 60."
            " spec.slices of TenancyDefaults sets a minimum, which holds for whole nodes, and a maximum.",
        ),
    ] = DEFAULT_GRACE_SECONDS
    replace_after_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GRACE_SECONDS,
            description="Seconds after which a node that is not ready is released and replaced by another one that"
            " fits. If none fits, the node stays. 0: never. Default: 300.",
        ),
    ] = DEFAULT_REPLACE_SECONDS
    expires_at: Annotated[Instant, Meta(description="When the nodes are released. A later time renews the claim.")] = ""


class SliceClaimStatus(Model, frozen=True, kw_only=True):
    """The state of a slice."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[SliceState, Meta(description="Pending, Reserved, Draining, Bound or Releasing.")] = (
        SliceState.PENDING
    )
    slice: Annotated[str, Meta(description="The name of its Slice, which may not exist yet.")] = ""
    nodes: Annotated[_NAMES, Meta(description="The nodes.")] = ()
    namespaces: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...],
        Meta(max_length=1000, description="The namespaces whose pods run on the slice."),
    ] = ()
    conditions: Conditions = ()


class SliceClaim(KubernetesObject, frozen=True, kw_only=True):
    """A request of a tenant for nodes of its own."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "sliceclaims", "SliceClaim")
    names: ClassVar[Names] = Names(short=("slc",))
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP, updates=("status",), owners=EDIT)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{DNS_LABEL}') && size(self.metadata.name) <= {MAX_NAME}",
            f"must be a DNS label of at most {MAX_NAME} lower-case letters, digits and -, because the Slice has this"
            " name with a hyphen and 16 digits behind it",
            field="metadata.name",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column("State", "string", ".status.state"),
        REASON,
        Column("Nodes", "string", ".status.nodes"),
        Column("Expires", "string", ".spec.expiresAt", priority=1),
        MESSAGE,
        AGE,
    )

    spec: SliceClaimSpec
    status: SliceClaimStatus = SliceClaimStatus()


class ClaimReference(Model, frozen=True, kw_only=True):
    """The claim that a Slice is for."""

    namespace: Annotated[str, Meta(min_length=1, max_length=63, description="The namespace of the claim.")]
    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME, description="The name of the claim.")]
    uid: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=64,
            description="The uid of the claim, which tells it from a later claim of the same name.",
        ),
    ]


class ApprovedNodes(Model, frozen=True, kw_only=True):
    """The nodes that an administrator has approved for a Manual claim."""

    count: Annotated[int, Meta(ge=1, le=MAX_NODES, description="As spec.count of the claim.")] = 1
    selector: Annotated[NodeSelector, Meta(description="As spec.selector of the claim.")] = NodeSelector()
    node_names: Annotated[_NAMES, Meta(description="As spec.nodeNames of the claim.")] = ()
    per_node: Annotated[ContainerResources, Meta(description="As spec.perNode of the claim.")] = {}
    total: Annotated[ContainerResources, Meta(description="As spec.total of the claim.")] = {}


class OwnNodes(Model, frozen=True, kw_only=True):
    """The nodes of a tenant with `isolation.nodes: Slice`."""

    count: Annotated[
        int, Meta(ge=1, le=MAX_NODES, description="The number of nodes; with total, the least number. Default: 1.")
    ] = 1
    selector: Annotated[NodeSelector, Meta(description="Labels of the nodes.")] = NodeSelector()
    per_node: Annotated[
        ContainerResources, Meta(description="The least capacity of each node, for example cpu: 8.")
    ] = {}
    total: Annotated[
        ContainerResources,
        Meta(description="The least capacity of all nodes together; the operator takes as many nodes as necessary."),
    ] = {}


def approval_of(spec: SliceClaimSpec) -> ApprovedNodes:
    """Return the approval of what a claim requests now."""
    return ApprovedNodes(
        count=spec.count,
        selector=spec.selector,
        node_names=spec.node_names,
        per_node=spec.per_node,
        total=spec.total,
    )


class ContributedQuota(Model, frozen=True, kw_only=True):
    """What the contributed nodes of a slice add to the ResourceQuota of one namespace, beside the tenant's quota."""

    namespace: Annotated[str, Meta(min_length=1, max_length=63, description="The namespace, which uses the slice.")]
    uid: Annotated[str, Meta(min_length=1, max_length=64, description="The uid of the namespace.")]
    hard: Annotated[
        Quantities,
        Meta(description="The agreed capacity of the nodes by quota key, or what the nodes report if that is less."),
    ] = {}


class SliceSpec(Model, frozen=True, kw_only=True):
    """The claim that a slice belongs to, and what it is charged."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("self.claim == oldSelf.claim", "must not change: delete the Slice and create another one", field="claim"),
    )

    claim: Annotated[ClaimReference, Meta(description="The claim.")]
    tenant: Annotated[str, Meta(min_length=1, max_length=63, description="The tenant that the claim belongs to.")]
    sharing: Annotated[Sharing, Meta(description="Whole or Part, as in the claim.")] = Sharing.WHOLE
    grace_period_seconds: Annotated[
        int, Meta(ge=0, le=MAX_GRACE_SECONDS, description="Seconds that pods get to stop, also when the slice ends.")
    ] = DEFAULT_GRACE_SECONDS
    charge: Annotated[
        Quantities,
        Meta(
            description="The capacity of its nodes by quota key, which is charged to the tenant's quota for the keys"
            " that the quota has. Nodes that the tenant contributed with an agreed capacity are left out. Empty for a"
            " Manual claim."
        ),
    ] = {}
    contributed: (
        Annotated[
            ContributedQuota,
            Meta(description="What its contributed nodes may add now. Absent: nothing, and what they added goes back."),
        ]
        | UnsetType
    ) = UNSET
    approved: (
        Annotated[
            ApprovedNodes,
            Meta(
                description="For a Manual claim: the nodes that an administrator has approved. Later changes of these"
                " fields of the claim have no effect until they are approved. Default: what the claim requests when"
                " the operator first sees the Slice."
            ),
        ]
        | UnsetType
    ) = UNSET


class SliceStatus(Model, frozen=True, kw_only=True):
    """The state and the nodes of a slice."""

    observed_generation: ObservedGeneration = 0
    state: Annotated[SliceState, Meta(description="Pending, Reserved, Draining, Bound or Releasing.")] = (
        SliceState.PENDING
    )
    nodes: Annotated[_NAMES, Meta(description="The nodes.")] = ()
    charged: Annotated[
        dict[str, str],
        Meta(
            max_length=64,
            description="The part of spec.charge that the tenant's quota has granted; the slice takes no more nodes"
            " than that covers.",
        ),
    ] = {}
    contributed: (
        Annotated[
            ContributedQuota,
            Meta(
                description="What its contributed nodes add at most. Written before the ResourceQuota grows by it, and"
                " removed after the ResourceQuota has shrunk."
            ),
        ]
        | UnsetType
    ) = UNSET
    leaving_since: Annotated[
        Instant, Meta(description="When the eviction of pods began; empty while no pod has to leave.")
    ] = ""
    conditions: Conditions = ()


class Slice(KubernetesObject, frozen=True, kw_only=True):
    """Nodes that one tenant has for itself. Tenants cannot write it."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "slices", "Slice", namespaced=False)
    names: ClassVar[Names] = Names()
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP, updates=("status",))
    columns: ClassVar[tuple[Column, ...]] = (
        Column("State", "string", ".status.state"),
        Column("Tenant", "string", ".spec.tenant"),
        Column("Claim", "string", ".spec.claim.name"),
        Column("Nodes", "string", ".status.nodes"),
        MESSAGE,
        AGE,
    )

    spec: SliceSpec
    status: SliceStatus = SliceStatus()


def slice_name(claim_name: str, claim_uid: str) -> str:
    """Return what the Slice of a claim is called: another claim of the same name has another."""
    return f"{claim_name[:MAX_NAME]}-{blake2b(claim_uid.encode(), digest_size=8).hexdigest()}"

"""Slices: nodes that one tenant has for itself for a while.

A SliceClaim asks, in a tenant's namespace; a Slice is what is given, and the same for the whole cluster:

    Pending ─► Reserved ─► Draining ─► Bound ─► Releasing
    no nodes   set aside,  somebody    theirs    given back:
    yet        nobody new  uses it:    alone     their pods leave
                           others leave

Which nodes a slice has stands on the nodes themselves (`api/marks.py`); a Slice's status only says it again. A Dynamic
claim's Slice is made by the operator, a Manual one's by an administrator.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Column, Names, Rule, list_map
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import Condition, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.quota import ContainerResources, Quantities
from tenantry.api.times import Instant

MAX_NAME = 46
"""The longest name of a claim: with a hyphen and 16 hexadecimal digits behind it, it is its Slice's, and a label."""

MAX_NODES = 500
DEFAULT_GRACE_SECONDS = 60
DEFAULT_REPLACE_SECONDS = 300
MAX_GRACE_SECONDS = 86400
"""A day: more than this no administrator can allow."""

LIMITS_MAP = "tenantry-slices"
"""The ConfigMap in Tenantry's namespace by which policies know what TenancyDefaults say of slices."""

MAX_GRACE = "maxGracePeriodSeconds"
"""Its key, a whole number."""

_NAMES = Annotated[tuple[Annotated[str, Meta(max_length=253)], ...], Meta(max_length=MAX_NODES)]


class ClaimMode(StrEnum):
    """Who makes the Slice."""

    DYNAMIC = "Dynamic"
    MANUAL = "Manual"


class Sharing(StrEnum):
    """How much of its nodes a slice has."""

    WHOLE = "Whole"
    PART = "Part"


class Users(StrEnum):
    """Whose pods run on it."""

    SUBNAMESPACES = "Subnamespaces"
    EVERYBODY = "Everybody"


class SliceState(StrEnum):
    """How far it is."""

    PENDING = "Pending"
    RESERVED = "Reserved"
    DRAINING = "Draining"
    BOUND = "Bound"
    RELEASING = "Releasing"


class SelectorOperator(StrEnum):
    """How a label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class SelectorRequirement(Model, frozen=True, kw_only=True):
    """What a label of a node must be."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "must be given for In and NotIn, and for nothing else",
            field="values",
        ),
    )

    key: Annotated[str, Meta(min_length=1, max_length=317, description="Of the label.")]
    operator: Annotated[SelectorOperator, Meta(description="In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...], Meta(max_length=32, description="For In and NotIn.")
    ] = ()


class NodeSelector(Model, frozen=True, kw_only=True):
    """Which nodes do; an empty one takes any."""

    match_labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(max_length=32, description="Labels that a node must have."),
    ] = {}
    match_expressions: Annotated[
        tuple[SelectorRequirement, ...], Meta(max_length=16, description="What else must be so.")
    ] = ()


class SliceClaimSpec(Model, frozen=True, kw_only=True):
    """Which nodes are asked for, and for whom."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.sharing != 'Part'"
            " || (has(self.perNode) && 'cpu' in self.perNode && 'memory' in self.perNode && size(self.perNode) == 2)",
            "must be cpu and memory where sharing is Part: it is the size of the part of each node",
            field="perNode",
        ),
        Rule(
            "self.sharing != 'Part' || !has(self.total) || size(self.total) == 0",
            "may only be given where sharing is Whole",
            field="total",
        ),
        Rule("self.sharing == oldSelf.sharing", "must not change: make another claim", field="sharing"),
        Rule(
            "self.sharing != 'Part' || self.perNode == oldSelf.perNode",
            "must not change where sharing is Part: make another claim",
            field="perNode",
        ),
    )

    mode: Annotated[
        ClaimMode,
        Meta(description="Dynamic: the operator gives nodes as soon as it can. Manual: an administrator decides."),
    ] = ClaimMode.DYNAMIC
    sharing: Annotated[
        Sharing,
        Meta(
            description="Whole: nodes that nobody else has. Part: of each node a part of the size perNode, beside the"
            " parts of others."
        ),
    ] = Sharing.WHOLE
    count: Annotated[
        int, Meta(ge=1, le=MAX_NODES, description="How many nodes; with total, at least as many. Left out: 1.")
    ] = 1
    selector: Annotated[NodeSelector, Meta(description="Labels of the nodes.")] = NodeSelector()
    node_names: Annotated[_NAMES, Meta(description="Only these nodes do; left out: any.")] = ()
    per_node: Annotated[
        ContainerResources, Meta(description="What each node has at least, or the size of each part; as in cpu: 8.")
    ] = {}
    total: Annotated[
        ContainerResources, Meta(description="What the nodes have together at least; as many are taken as it takes.")
    ] = {}
    users: Annotated[
        Users,
        Meta(
            description="Subnamespaces: those that spec.subnamespaces names, and those in this namespace whose"
            " spec.sliceClaimName names the claim. Everybody: this namespace. Each with everything below it, but never"
            " what is below a Subtenant."
        ),
    ] = Users.SUBNAMESPACES
    subnamespaces: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...],
        Meta(max_length=64, description="Subnamespaces in this namespace whose pods run on it."),
    ] = ()
    grace_period_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GRACE_SECONDS,
            description="How long pods of others may take to leave before they are deleted. Left out: 60. An"
            " administrator may have set a maximum.",
        ),
    ] = DEFAULT_GRACE_SECONDS
    replace_after_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_GRACE_SECONDS,
            description="A node that has not been ready for so long is given back, and another that fits is taken;"
            " where none does, it stays. 0: never. Left out: 300.",
        ),
    ] = DEFAULT_REPLACE_SECONDS
    expires_at: Annotated[Instant, Meta(description="When the nodes are given back; renew it by a later time.")] = ""


class SliceClaimStatus(Model, frozen=True, kw_only=True):
    """How far it is."""

    observed_generation: Annotated[
        int, Meta(description="The generation of the spec that the conditions are about.")
    ] = 0
    state: Annotated[SliceState, Meta(description="Pending, Reserved, Draining, Bound or Releasing.")] = (
        SliceState.PENDING
    )
    slice: Annotated[str, Meta(description="What its Slice is called, or will be.")] = ""
    nodes: Annotated[_NAMES, Meta(description="The nodes.")] = ()
    namespaces: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...],
        Meta(max_length=1000, description="The namespaces whose pods run there."),
    ] = ()
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16, extra_json_schema=list_map("type"))] = ()


class SliceClaim(KubernetesObject, frozen=True, kw_only=True):
    """A tenant asks for nodes of its own."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "sliceclaims", "SliceClaim")
    names: ClassVar[Names] = Names(singular="sliceclaim", short=("slc",), categories=("tenantry",))
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
        Column("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Nodes", "string", ".status.nodes"),
        Column("Expires", "string", ".spec.expiresAt", priority=1),
        Column("Message", "string", '.status.conditions[?(@.type=="Ready")].message', priority=1),
        Column("Age", "date", ".metadata.creationTimestamp"),
    )

    spec: SliceClaimSpec
    status: SliceClaimStatus = SliceClaimStatus()


class ClaimReference(Model, frozen=True, kw_only=True):
    """The claim that a Slice is for."""

    namespace: Annotated[str, Meta(min_length=1, max_length=63, description="Where the claim is.")]
    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME, description="Of the claim.")]
    uid: Annotated[str, Meta(min_length=1, max_length=64, description="Of the claim: not of another of its name.")]


class SliceSpec(Model, frozen=True, kw_only=True):
    """For whom it is."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("self.claim == oldSelf.claim", "must not change: delete the Slice and make another", field="claim"),
    )

    claim: Annotated[ClaimReference, Meta(description="The claim.")]
    tenant: Annotated[str, Meta(min_length=1, max_length=63, description="Whose claim it is.")]
    sharing: Annotated[Sharing, Meta(description="Whole nodes, or parts of them, as the claim says.")] = Sharing.WHOLE
    grace_period_seconds: Annotated[
        int, Meta(ge=0, le=MAX_GRACE_SECONDS, description="How long pods may take to leave, also at the end.")
    ] = DEFAULT_GRACE_SECONDS
    charge: Annotated[
        Quantities,
        Meta(
            description="What its nodes have, by quota key: as much of the tenant's quota is the claim's, of the keys"
            " that the quota has. Nothing for a Manual claim."
        ),
    ] = {}


class SliceStatus(Model, frozen=True, kw_only=True):
    """How far it is, and which nodes it has."""

    observed_generation: Annotated[
        int, Meta(description="The generation of the spec that the conditions are about.")
    ] = 0
    state: Annotated[SliceState, Meta(description="Pending, Reserved, Draining, Bound or Releasing.")] = (
        SliceState.PENDING
    )
    nodes: Annotated[_NAMES, Meta(description="The nodes.")] = ()
    charged: Annotated[
        dict[str, str],
        Meta(max_length=64, description="What of spec.charge the tenant's quota has given; it takes no more nodes."),
    ] = {}
    leaving_since: Annotated[Instant, Meta(description="Since when pods have to leave; none while no pod has to.")] = ""
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16, extra_json_schema=list_map("type"))] = ()


class Slice(KubernetesObject, frozen=True, kw_only=True):
    """Nodes that one tenant has for itself; tenants do not write it."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "slices", "Slice", namespaced=False)
    names: ClassVar[Names] = Names(singular="slice", short=(), categories=("tenantry",))
    validations: ClassVar[tuple[Rule, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = (
        Column("State", "string", ".status.state"),
        Column("Tenant", "string", ".spec.tenant"),
        Column("Claim", "string", ".spec.claim.name"),
        Column("Nodes", "string", ".status.nodes"),
        Column("Message", "string", '.status.conditions[?(@.type=="Ready")].message', priority=1),
        Column("Age", "date", ".metadata.creationTimestamp"),
    )

    spec: SliceSpec
    status: SliceStatus = SliceStatus()


def slice_name(claim_name: str, claim_uid: str) -> str:
    """Return what the Slice of a claim is called: another claim of the same name has another."""
    return f"{claim_name[:MAX_NAME]}-{blake2b(claim_uid.encode(), digest_size=8).hexdigest()}"

"""The TenantResourceQuota: how the quota of a tenant is divided over its tree, and temporary changes to it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import AGE, MESSAGE, READY, Column, Conditions, Names, Rule, list_map, rules
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.quota import QUOTA_KEY
from tenantry.api.times import Instant

MAX_CLAIMS = 64
MAX_REMOTE = 1024

SignedQuantity = Annotated[
    int | str,
    Meta(
        description="A Kubernetes quantity; a negative one takes away.",
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "maxLength": 64,
            **rules(
                Rule(
                    "type(self) == int || self.matches('[0-9]') && isQuantity(self)",
                    "must be a quantity, as in 2, 8Gi or -500m",
                )
            ),
        },
    ),
]


class Adjustment(Model, frozen=True, kw_only=True):
    """A change to the tenant's quota for a while (E10)."""

    name: Annotated[str, Meta(min_length=1, max_length=63, description="What it is known by.")]
    resources: Annotated[
        dict[str, SignedQuantity],
        Meta(
            max_length=64,
            description="Quota keys that the tenant's quota has, and how much is added or, negative, taken away.",
            extra_json_schema=rules(
                Rule(
                    f"self.all(k, size(k) <= 253 && k.matches('{QUOTA_KEY}'))",
                    "must have only keys of Kubernetes' resource quotas",
                )
            ),
        ),
    ]
    expires_at: Annotated[Instant, Meta(description="When it ends; empty for never.")] = ""


class TenantResourceQuotaSpec(Model, frozen=True, kw_only=True):
    """Only the adjustments are its own: the quota is `Tenant.spec.quota`."""

    adjustments: Annotated[
        tuple[Adjustment, ...],
        Meta(max_length=32, description="Temporary changes of the quota.", extra_json_schema=list_map("name")),
    ] = ()


class ClaimKind(StrEnum):
    """The kind of an object that has a share without a namespace of its own."""

    SLICE_CLAIM = "SliceClaim"
    VIRTUAL_CONTROL_PLANE = "VirtualControlPlane"
    PEER_CLUSTER = "PeerCluster"


class ClaimShareStatus(Model, frozen=True, kw_only=True):
    """The share of a SliceClaim, a VirtualControlPlane or a peer; a map from quota key to canonical quantity."""

    claim: Annotated[str, Meta(description="The name of the object.")]
    kind: Annotated[ClaimKind, Meta(description="The kind of the object.")] = ClaimKind.SLICE_CLAIM
    assigned: Annotated[dict[str, str], Meta(max_length=64)] = {}


class ShareStatus(Model, frozen=True, kw_only=True):
    """The share of one namespace and its descendants; maps from quota key to canonical quantity."""

    namespace: str
    parent: str = ""
    depth: int = 0
    assigned: Annotated[dict[str, str], Meta(max_length=64)] = {}
    used: Annotated[dict[str, str], Meta(max_length=64)] = {}
    free: Annotated[dict[str, str], Meta(max_length=64)] = {}
    claims: Annotated[
        tuple[ClaimShareStatus, ...],
        Meta(
            max_length=MAX_CLAIMS,
            description="What the SliceClaims and VirtualControlPlanes in the namespace have, and what peers have for"
            " it, the oldest first. Namespaces whose pods run on the nodes of a SliceClaim hold its share in its"
            " place.",
        ),
    ] = ()


class BatchTarget(Model, frozen=True, kw_only=True):
    """What a batch writes into one namespace's ResourceQuota; quota key to canonical quantity."""

    namespace: str
    uid: str
    hard: Annotated[dict[str, str], Meta(max_length=64)] = {}


class Batch(Model, frozen=True, kw_only=True):
    """A batch of changes to ResourceQuotas, written before the first of them, so that any replica can finish it."""

    number: Annotated[
        int, Meta(description="The resourceVersion that the batch was decided on; no other batch has the same number.")
    ] = 0
    counted: Annotated[
        bool,
        Meta(description="True: the operator knows what every namespace of the tree holds, and status.hard covers it."),
    ] = False
    targets: Annotated[tuple[BatchTarget, ...], Meta(max_length=512)] = ()


class RemoteShareStatus(Model, frozen=True, kw_only=True):
    """What a namespace has at a peer; maps from quota key to canonical quantity."""

    peer: Annotated[str, Meta(description="The PeerCluster.")]
    namespace: Annotated[str, Meta(description="The namespace here.")]
    number: Annotated[
        int, Meta(description="The resourceVersion that `given` was decided on. The peer confirms it by this number.")
    ] = 0
    held: Annotated[
        dict[str, str], Meta(max_length=64, description="What the peer may hold: nothing else gets it.")
    ] = {}
    given: Annotated[
        dict[str, str],
        Meta(max_length=64, description="What the peer should hold; less than `held` until the peer has confirmed it."),
    ] = {}
    unreachable_since: Annotated[
        Instant, Meta(description="Since when the peer does not answer: it keeps what it holds; empty if it answers.")
    ] = ""


class TenantResourceQuotaStatus(Model, frozen=True, kw_only=True):
    """The division of the quota."""

    observed_generation: int = 0
    hard: Annotated[
        dict[str, str],
        Meta(max_length=64, description="What the whole tree may use now. No sum over the tree exceeds it."),
    ] = {}
    used: Annotated[dict[str, str], Meta(max_length=64, description="What the whole tree uses.")] = {}
    batch: Annotated[Batch, Meta(description="The batch of changes to ResourceQuotas that is under way.")] = Batch()
    clusters: Annotated[
        tuple[RemoteShareStatus, ...],
        Meta(
            max_length=MAX_REMOTE,
            description="What peers have for namespaces of the tree. It is written before a peer is raised, and lowered"
            " when the peer has confirmed that it holds less.",
        ),
    ] = ()
    tree: Annotated[
        tuple[ShareStatus, ...],
        Meta(max_length=500, description="The tree from the top; the lowest levels of a large tree are left out."),
    ] = ()
    omitted: Annotated[int, Meta(description="The number of namespaces of the tree that are not listed.")] = 0
    conditions: Conditions = ()


class TenantResourceQuota(KubernetesObject, frozen=True, kw_only=True):
    """The quota of one tenant's whole tree. The operator creates it with the tenant's name."""

    resource: ClassVar[Resource] = Resource(
        GROUP, VERSION, "tenantresourcequotas", "TenantResourceQuota", namespaced=False
    )
    names: ClassVar[Names] = Names(short=("trq",))
    access: ClassVar[KindAccess] = KindAccess(operator=(*READ, "create", "patch"), updates=("status",))
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{DNS_LABEL}') && size(self.metadata.name) <= 63",
            "must be a tenant's name",
            field="metadata.name",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        Column("CPU", "string", ".status.hard.requests\\.cpu"),
        Column("Memory", "string", ".status.hard.requests\\.memory"),
        MESSAGE,
        AGE,
    )

    spec: TenantResourceQuotaSpec
    status: TenantResourceQuotaStatus = TenantResourceQuotaStatus()

"""NamespaceOffloading and NamespaceMap: the namespaces of tenants that also exist at peers (L02 to L04, L06).

NamespaceOffloading "offloading" in "shop"  ─►  NamespaceMap "b": shop ─► shop-3f2a… of peer "b"
                                            ─►  marks of the namespace "shop", by which policies place its pods
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.crd import (
    AGE,
    ATOMIC_MAP,
    MESSAGE,
    READY,
    REASON,
    Column,
    Conditions,
    Names,
    ObservedGeneration,
    Rule,
)
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import EDIT, KEEP, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.peercluster import PREFIX
from tenantry.api.quota import Quota
from tenantry.api.slice import SelectorRequirement

OFFLOADING = "offloading"
"""The name of the one NamespaceOffloading of a namespace."""

FINALIZER = f"{PREFIX}/offloading"
"""Keeps a NamespaceOffloading until its namespaces at peers are gone."""

DEFAULTED = f"{PREFIX}/default"
"""On a NamespaceOffloading that the operator created for a label of its namespace. The value is always "true"."""

MOST_PEERS = 64
MOST_KEYS = 16
"""The most quota keys of a share: all shares at one peer are in one object of etcd."""

MOST_NAMESPACES = 1000
"""The most namespaces of this cluster at one peer."""

MOST_BYTES = 640 * 1024
"""The maximum size of the shares at one peer, of the 1.5 MiB that etcd takes; their state has the rest."""

MOST_LOST = 4000
"""How many pods of this cluster are let go at most while a peer is given up; others wait for it."""

MOST_WORDS = 512
"""The longest message of a peer about a namespace."""


class PodStrategy(StrEnum):
    """Where pods of a namespace may run."""

    LOCAL = "Local"
    REMOTE = "Remote"
    LOCAL_AND_REMOTE = "LocalAndRemote"


class MappingStrategy(StrEnum):
    """Which name a namespace has at a peer."""

    DEFAULT_NAME = "DefaultName"
    ENFORCE_SAME_NAME = "EnforceSameName"


class ServiceReflection(StrEnum):
    """Which Services of a namespace also exist at its peers."""

    NONE = "None"
    ALL = "All"


class Reflection(Model, frozen=True, kw_only=True):
    """Which objects of a namespace also exist at its peers, beside those that pods name."""

    services: Annotated[
        ServiceReflection,
        Meta(
            description="All: each Service with a selector has a Service of the same name, with which pods at a peer"
            " find pods there. It has an address of its own there, or is headless, and no way in from outside. Nothing"
            " of it comes back."
        ),
    ] = ServiceReflection.NONE


class ClusterSelectorTerm(Model, frozen=True, kw_only=True):
    """Requirements on the labels of a peer, of which it must meet all."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.matchExpressions.all(e, !format.qualifiedName().validate(e.key).hasValue())",
            "must have only keys of labels, as in topology.kubernetes.io/region",
            field="matchExpressions",
        ),
        Rule(
            "self.matchExpressions.all(e, !has(e.values)"
            " || e.values.all(v, !format.labelValue().validate(v).hasValue()))",
            "must have only values of labels",
            field="matchExpressions",
        ),
    )

    match_expressions: Annotated[
        tuple[SelectorRequirement, ...],
        Meta(min_length=1, max_length=16, description="A peer must meet all of them."),
    ]


class ClusterSelector(Model, frozen=True, kw_only=True):
    """A selector of peers by the labels of their Nodes, in the form of a NodeSelector of Kubernetes."""

    node_selector_terms: Annotated[
        tuple[ClusterSelectorTerm, ...],
        Meta(min_length=1, max_length=8, description="A peer is selected if it meets one of them."),
    ]


class NamespaceOffloadingSpec(Model, frozen=True, kw_only=True):
    """At which peers pods of the namespace may run."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.quota) || !has(self.quota.hard) || size(self.quota.hard) <= {MOST_KEYS}",
            f"must have at most {MOST_KEYS} keys",
            field="quota",
        ),
    )

    pod_strategy: Annotated[
        PodStrategy,
        Meta(
            description="Where new pods run. Local: in this cluster only. Remote: at the selected peers only."
            " LocalAndRemote: in either, as the scheduler chooses. Pods that exist stay where they are."
        ),
    ] = PodStrategy.LOCAL_AND_REMOTE
    mapping_strategy: Annotated[
        MappingStrategy,
        Meta(
            description="The name of the namespace at a peer. DefaultName: its own name, a hyphen and 16 hexadecimal"
            " digits. EnforceSameName: its own name, if the peer allows that and the name is free there."
        ),
    ] = MappingStrategy.DEFAULT_NAME
    cluster_selector: (
        Annotated[
            ClusterSelector,
            Meta(
                description="Which of the peers that the tenant may use get the namespace, by the labels of their"
                " Nodes. federation.tenantry.dev/peer has the name of the PeerCluster. Left out: all that"
                " spec.isolation.federation.peers of its Tenant names."
            ),
        ]
        | UnsetType
    ) = UNSET
    quota: Annotated[
        Quota,
        Meta(
            description="What the namespace has at each of them, of what the peer gives this cluster, whether its pods"
            " use it or not. A key that is not named follows the pods there, if it counts pods or what they request: it"
            " is raised before a pod is sent, and lowered ten minutes after they need less."
        ),
    ] = Quota()
    reflection: Annotated[
        Reflection, Meta(description="Which objects also exist at the peers, beside those that pods name.")
    ] = Reflection()

    share: Annotated[
        Quota,
        Meta(
            description="What each of them gets of the quota of the tenant, beside what pods of the namespace use"
            " there: for what runs there without a pod here. It is reserved here first, and pods of the namespace here"
            " cannot use it; the peer needs that much of its own quota for this cluster."
        ),
    ] = Quota()
    forget_unreachable: Annotated[
        bool,
        Meta(
            description="If a peer does not answer: the deletion of the NamespaceOffloading does not wait for it, and"
            " when an administrator gives the peer up, the quota does not hold what pods may still use there. They may"
            " run on until the peer is back."
        ),
    ] = False


class OffloadingPhase(StrEnum):
    """How far a namespace is at one peer: a phase of its NamespaceMap, or why it has none."""

    CREATING = "Creating"
    ACCEPTED = "Accepted"
    REFUSED = "Refused"
    NAME_TAKEN = "NameTaken"
    TERMINATING = "Terminating"
    LOST = "Lost"
    NOT_ALLOWED = "NotAllowed"
    NO_PEER = "NoPeer"


class OffloadedTo(Model, frozen=True, kw_only=True):
    """How far one peer is."""

    name: Annotated[str, Meta(description="The PeerCluster.")]
    namespace: Annotated[str, Meta(description="The namespace there.")] = ""
    phase: Annotated[
        OffloadingPhase,
        Meta(
            description="As in a NamespaceMap; Terminating also while pods leave a peer that is not selected any more;"
            " NotAllowed while they leave a peer that the tenant may not use any more; NoPeer if no PeerCluster of the"
            " name has spec.host."
        ),
    ] = OffloadingPhase.CREATING


class NamespaceOffloadingStatus(Model, frozen=True, kw_only=True):
    """How far the peers are."""

    observed_generation: ObservedGeneration = 0
    clusters: Annotated[tuple[OffloadedTo, ...], Meta(max_length=2 * MOST_PEERS)] = ()
    conditions: Conditions = ()


class NamespaceOffloading(KubernetesObject, frozen=True, kw_only=True):
    """Pods of the namespace that this object is in may run at peers."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "namespaceoffloadings", "NamespaceOffloading")
    names: ClassVar[Names] = Names(short=("nsof",))
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP, updates=("status", "finalizers"), owners=EDIT)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name == '{OFFLOADING}'",
            f"must be {OFFLOADING}: a namespace has one NamespaceOffloading",
            field="metadata.name",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Pods", "string", ".spec.podStrategy"),
        MESSAGE,
        AGE,
    )

    spec: NamespaceOffloadingSpec = NamespaceOffloadingSpec()
    status: NamespaceOffloadingStatus = NamespaceOffloadingStatus()


class MapPhase(StrEnum):
    """How far a namespace at a peer is."""

    CREATING = "Creating"
    ACCEPTED = "Accepted"
    REFUSED = "Refused"
    NAME_TAKEN = "NameTaken"
    TERMINATING = "Terminating"
    LOST = "Lost"


class MappedNamespace(Model, frozen=True, kw_only=True):
    """A namespace at a peer."""

    peer_namespace: Annotated[str, Meta(description="Its name.")] = ""
    uid: Annotated[str, Meta(description="The uid of its Subnamespace there; another one is never touched.")] = ""
    workspace: Annotated[str, Meta(description="The Workspace there in which its Subnamespace is.")] = ""
    phase: Annotated[
        MapPhase,
        Meta(
            description="Creating; Accepted: it is there; Refused: see message; NameTaken: another namespace"
            " there has its name; Terminating; Lost: it was deleted at"
            " the peer, and is created again."
        ),
    ] = MapPhase.CREATING
    message: Annotated[str, Meta(max_length=MOST_WORDS, description="The words of the peer, if it refuses.")] = ""


class DesiredNamespace(Model, frozen=True, kw_only=True):
    """A namespace that should exist at a peer."""

    name: Annotated[str, Meta(max_length=63, description="The name of its Subnamespace there.")]
    tenant: Annotated[str, Meta(max_length=63, description="The Tenant of the namespace here.")] = ""
    workspace: Annotated[
        str, Meta(max_length=63, description="The Workspace there in which its Subnamespace is: one for each Tenant.")
    ] = ""
    # Without the rules of quotas: the operator copies it from a NamespaceOffloading, which has them.
    hard: Annotated[
        dict[str, Annotated[str, Meta(max_length=64)]],
        Meta(max_length=64, description="Its share of what the peer gives this cluster: quota key to quantity."),
    ] = {}
    mapping_strategy: Annotated[MappingStrategy, Meta(description="Which name the namespace has there.")] = (
        MappingStrategy.DEFAULT_NAME
    )
    services: Annotated[bool, Meta(description="Services of the namespace also exist there.")] = False
    share: Annotated[
        dict[str, Annotated[str, Meta(max_length=64)]],
        Meta(max_length=64, description="What it should have of the quota of its tenant: quota key to quantity."),
    ] = {}
    leaving: Annotated[
        bool, Meta(description="No further pods are sent there: the namespace ends when those that run there are gone.")
    ] = False


class NamespaceMapSpec(Model, frozen=True, kw_only=True):
    """Which namespaces should exist at the peer."""

    desired: Annotated[
        dict[str, DesiredNamespace],
        Meta(max_length=MOST_NAMESPACES, description="By the namespace here.", extra_json_schema=ATOMIC_MAP),
    ] = {}


class ConfirmedShare(Model, frozen=True, kw_only=True):
    """What the peer has confirmed of the share of a namespace."""

    number: Annotated[
        int,
        Meta(
            description="Of the record in status.clusters of the TenantResourceQuota: the peer holds no more than that."
        ),
    ]


class LostPods(Model, frozen=True, kw_only=True):
    """Pods of a namespace that are let go although the peer may still run them, until it shows that they are gone."""

    tenant: Annotated[str, Meta(max_length=63, description="The Tenant whose quota they count for.")] = ""
    uids: Annotated[tuple[str, ...], Meta(max_length=MOST_LOST, description="The uids of the pods here.")] = ()
    hard: Annotated[
        dict[str, Annotated[str, Meta(max_length=64)]],
        Meta(max_length=64, description="What they may use there: quota key to quantity."),
    ] = {}
    holds: Annotated[
        bool,
        Meta(
            description="Whether the quota of the tenant holds that. Not with spec.forgetUnreachable of the"
            " NamespaceOffloading."
        ),
    ] = True
    released: Annotated[
        bool, Meta(description="They are deleted here. Otherwise, they wait until the quota has room to hold them.")
    ] = False


class GiveUpProgress(Model, frozen=True, kw_only=True):
    """How far the pods of a peer that is given up are."""

    request: Annotated[
        str, Meta(max_length=64, description="The annotation federation.tenantry.dev/give-up of the PeerCluster.")
    ]
    pods: Annotated[int, Meta(description="How many were let go.")] = 0
    waiting: Annotated[int, Meta(description="How many are left, because the quota has no room to hold them.")] = 0


class NamespaceMapStatus(Model, frozen=True, kw_only=True):
    """Which namespaces exist at the peer."""

    current: Annotated[
        dict[str, MappedNamespace],
        Meta(max_length=MOST_NAMESPACES, description="By the namespace here.", extra_json_schema=ATOMIC_MAP),
    ] = {}
    shares: Annotated[
        dict[str, ConfirmedShare],
        Meta(max_length=MOST_NAMESPACES, description="By the namespace here.", extra_json_schema=ATOMIC_MAP),
    ] = {}
    lost: Annotated[
        dict[str, LostPods],
        Meta(
            max_length=MOST_NAMESPACES,
            description="Pods that were let go when the peer was given up, by the namespace here.",
        ),
    ] = {}
    give_up: Annotated[GiveUpProgress, Meta(description="While the peer is given up.")] | UnsetType = UNSET


class NamespaceMap(KubernetesObject, frozen=True, kw_only=True):
    """The namespaces of this cluster that also exist at one peer; it has the name of the PeerCluster."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "namespacemaps", "NamespaceMap", namespaced=False)
    names: ClassVar[Names] = Names(short=("nsmap",))
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP, updates=("status",))
    validations: ClassVar[tuple[Rule, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = (AGE,)

    spec: NamespaceMapSpec = NamespaceMapSpec()
    status: NamespaceMapStatus = NamespaceMapStatus()

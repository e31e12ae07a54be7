"""NamespaceOffloading and NamespaceMap: the namespaces of tenants that also exist at peers (L02, L04).

NamespaceOffloading "offloading" in "shop"  ─►  NamespaceMap "b": shop ─► shop-3f2a… of peer "b"
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import AGE, MESSAGE, READY, REASON, Column, Conditions, Names, ObservedGeneration, Rule
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import EDIT, KEEP, READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.peercluster import MAX_NAME, PREFIX
from tenantry.api.quota import Quota

OFFLOADING = "offloading"
"""The name of the one NamespaceOffloading of a namespace."""

FINALIZER = f"{PREFIX}/offloading"
"""Keeps a NamespaceOffloading until its namespaces at peers are gone."""

MOST_PEERS = 64


class NamespaceOffloadingSpec(Model, frozen=True, kw_only=True):
    """At which peers pods of the namespace may run."""

    peers: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=MAX_NAME)], ...],
        Meta(
            min_length=1,
            max_length=MOST_PEERS,
            description="The PeerClusters at which the namespace gets a namespace of its own. The tenant must be"
            " allowed to use each of them: spec.isolation.federation.peers of its Tenant.",
        ),
    ]
    quota: Annotated[
        Quota,
        Meta(
            description="The share that the namespace gets at each of them, of what the peer gives this cluster; 0 of"
            " every key that the peer limits and that is not named."
        ),
    ] = Quota()


class OffloadedTo(Model, frozen=True, kw_only=True):
    """How far one peer is."""

    name: Annotated[str, Meta(description="The PeerCluster.")]
    namespace: Annotated[str, Meta(description="The namespace there.")] = ""
    phase: Annotated[
        str,
        Meta(
            description="As in a NamespaceMap; NotAllowed if the tenant may not use the peer, NoPeer if there is none"
            " of the name."
        ),
    ] = ""


class NamespaceOffloadingStatus(Model, frozen=True, kw_only=True):
    """How far the peers are."""

    observed_generation: ObservedGeneration = 0
    clusters: Annotated[tuple[OffloadedTo, ...], Meta(max_length=2 * MOST_PEERS)] = ()
    conditions: Conditions = ()


class NamespaceOffloading(KubernetesObject, frozen=True, kw_only=True):
    """Pods of the namespace that this object is in may run at peers, if they tolerate the taint of their Nodes."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "namespaceoffloadings", "NamespaceOffloading")
    names: ClassVar[Names] = Names(short=("nsof",))
    access: ClassVar[KindAccess] = KindAccess(operator=(*READ, "patch"), updates=("status", "finalizers"), owners=EDIT)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name == '{OFFLOADING}'",
            f"must be {OFFLOADING}: a namespace has one NamespaceOffloading",
            field="metadata.name",
        ),
    )
    columns: ClassVar[tuple[Column, ...]] = (READY, REASON, Column("Peers", "string", ".spec.peers"), MESSAGE, AGE)

    spec: NamespaceOffloadingSpec
    status: NamespaceOffloadingStatus = NamespaceOffloadingStatus()


class MapPhase(StrEnum):
    """How far a namespace at a peer is."""

    CREATING = "Creating"
    ACCEPTED = "Accepted"
    REFUSED = "Refused"
    TERMINATING = "Terminating"
    LOST = "Lost"


class MappedNamespace(Model, frozen=True, kw_only=True):
    """A namespace at a peer."""

    peer_namespace: Annotated[str, Meta(description="Its name.")] = ""
    uid: Annotated[str, Meta(description="The uid of its Subnamespace there; another one is never touched.")] = ""
    phase: Annotated[
        MapPhase,
        Meta(
            description="Creating; Accepted: it is there; Refused: see message; Terminating; Lost: it was deleted at"
            " the peer, and is created again."
        ),
    ] = MapPhase.CREATING
    message: Annotated[str, Meta(max_length=1024, description="The words of the peer, if it refuses.")] = ""


class DesiredNamespace(Model, frozen=True, kw_only=True):
    """A namespace that should exist at a peer."""

    name: Annotated[str, Meta(max_length=63, description="The name of its Subnamespace there.")]
    # Without the rules of quotas: the operator copies it from a NamespaceOffloading, which has them.
    hard: Annotated[
        dict[str, Annotated[str, Meta(max_length=64)]],
        Meta(max_length=64, description="Its share of what the peer gives this cluster: quota key to quantity."),
    ] = {}
    leaving: Annotated[
        bool, Meta(description="No further pods are sent there: the namespace ends when those that run there are gone.")
    ] = False


class NamespaceMapSpec(Model, frozen=True, kw_only=True):
    """Which namespaces should exist at the peer."""

    desired: Annotated[
        dict[str, DesiredNamespace],
        Meta(max_length=10000, description="By the namespace here."),
    ] = {}


class NamespaceMapStatus(Model, frozen=True, kw_only=True):
    """Which namespaces exist at the peer."""

    current: Annotated[dict[str, MappedNamespace], Meta(max_length=10000, description="By the namespace here.")] = {}


class NamespaceMap(KubernetesObject, frozen=True, kw_only=True):
    """The namespaces of this cluster that also exist at one peer; it has the name of the PeerCluster."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "namespacemaps", "NamespaceMap", namespaced=False)
    names: ClassVar[Names] = Names(short=("nsmap",))
    access: ClassVar[KindAccess] = KindAccess(operator=KEEP, updates=("status",))
    validations: ClassVar[tuple[Rule, ...]] = ()
    columns: ClassVar[tuple[Column, ...]] = (AGE,)

    spec: NamespaceMapSpec = NamespaceMapSpec()
    status: NamespaceMapStatus = NamespaceMapStatus()

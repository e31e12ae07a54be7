"""Reads the inputs of one DedicatedCluster from the caches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster, claim_name
from tenantry.api.marks import DELETE_FIRST
from tenantry.api.model import KubernetesObject, Resource
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim, slice_name
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.engine.cache import Cache

BY_CLUSTER = "cluster"
"""Index of the children of DedicatedClusters by the uid of their controlling owner."""

BY_PLANE = "plane"
"""Index of NodeHandovers by the uid of their VirtualControlPlane."""

BY_SLICE = "slice-of-handover"
"""Index of NodeHandovers by their Slice."""


class ClusterInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides about one DedicatedCluster.

    Args:
        found: The DedicatedCluster.
        plane: The VirtualControlPlane of its name, also one of another owner; None for none.
        claims: The SliceClaims that it controls, and those of others with a name that it needs, by name.
        handovers: The nodes that serve its control plane, or have its slices, or are on their way, by name.
        taken: Nodes of its claims that still serve another cluster.
        taken_outside: Names of its machines from outside that another cluster has.
        defaults: Of TenancyDefaults.
        template_name: The ClusterTemplate that it is to have; "" for none.
        template: That template; None if there is none of this name.
        offered: The names of all ClusterTemplates.
        pods: The number of pods that would have to leave each node, for pools that shrink; {} if it is not known.
        now: The time.
    """

    found: DedicatedCluster
    plane: VirtualControlPlane | None = None
    claims: Mapping[str, SliceClaim] = {}
    handovers: Mapping[str, NodeHandover] = {}
    taken: frozenset[str] = frozenset()
    taken_outside: frozenset[str] = frozenset()
    defaults: SliceDefaults = SliceDefaults()
    template_name: str = ""
    template: ClusterTemplate | None = None
    offered: tuple[str, ...] = ()
    pods: Mapping[str, int] = {}
    now: dt.datetime = dt.datetime.min.replace(tzinfo=dt.UTC)

    @property
    def uid(self) -> str:
        """Return the uid of the DedicatedCluster."""
        return self.found.metadata.uid

    @property
    def first(self) -> frozenset[str]:
        """Return the nodes that a user wants to leave before all others."""
        names = self.found.metadata.annotations.get(DELETE_FIRST, "").split(",")
        return frozenset(each.strip() for each in names)

    def is_child(self, each: KubernetesObject) -> bool:
        """Return whether the cluster controls an object."""
        return owner_of(each) == self.uid

    @property
    def own_plane(self) -> VirtualControlPlane | None:
        """Return its VirtualControlPlane; None for none, or one of another owner."""
        return self.plane if self.plane is not None and self.is_child(self.plane) else None

    @property
    def plane_uid(self) -> str:
        """Return the uid of its VirtualControlPlane; "" for none."""
        return self.own_plane.metadata.uid if self.own_plane is not None else ""

    @property
    def own_claims(self) -> list[SliceClaim]:
        """Return the SliceClaims that it controls and that have names of pools, by name."""
        start = claim_name(self.found.metadata.name, "")
        return [each for name, each in sorted(self.claims.items()) if name.startswith(start) and self.is_child(each)]


def wanted_template(found: DedicatedCluster, default: str) -> str:
    """Return the name of the template that a cluster is to have; "" for none.

    Args:
        found: The cluster.
        default: That of TenancyDefaults, which only new clusters get.
    """
    if found.spec.template or found.status.template is UNSET:
        return found.spec.template or default
    return found.status.template.name


def owner_of(each: KubernetesObject) -> str:
    """Return the uid of the DedicatedCluster that controls an object; "" for none.

    The kind counts, too: a policy refuses to users controlling references of this kind only.
    """
    kind = DedicatedCluster.resource.kind
    owners = each.metadata.owner_references
    return next((owner.uid for owner in owners if owner.controller and owner.kind == kind), "")


def _owners(found: SliceClaim) -> Iterable[str]:
    uid = owner_of(found)
    return [uid] if uid else []


def _plane_uid(found: NodeHandover) -> Iterable[str]:
    return [found.spec.plane.uid]


def _slice(found: NodeHandover) -> Iterable[str]:
    return [found.spec.slice]


CLAIM_INDEXES: Mapping[str, Callable[[SliceClaim], Iterable[str]]] = {BY_CLUSTER: _owners}
HANDOVER_INDEXES: Mapping[str, Callable[[NodeHandover], Iterable[str]]] = {BY_PLANE: _plane_uid, BY_SLICE: _slice}


class ClusterCaches(Protocol):
    """What has the objects of a cluster: a `Cluster`, or what `diff` has read."""

    def cache(self, resource: Resource) -> Cache[Any]:
        """Return the cache of a kind."""
        ...


def gather(cluster: ClusterCaches, found: DedicatedCluster, names: Sequence[str]) -> ClusterInputs:
    """Return the inputs of a DedicatedCluster that the caches have.

    Args:
        cluster: It has the caches, with the indexes of `CLAIM_INDEXES` and `HANDOVER_INDEXES`.
        found: The DedicatedCluster.
        names: The names of the claims that it needs.
    """
    meta = found.metadata
    plane: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(found.key)
    claims = cluster.cache(SliceClaim.resource)
    named = (claims.get(f"{meta.namespace}/{name}") for name in names)
    # Any user can write a uid into the owner references of an object of another namespace.
    own_claims = (each for each in claims.by_index(BY_CLUSTER, meta.uid) if each.metadata.namespace == meta.namespace)
    every: list[SliceClaim] = [*own_claims, *(each for each in named if each is not None)]
    handovers = cluster.cache(NodeHandover.resource)
    uid = plane.metadata.uid if plane is not None and owner_of(plane) == meta.uid else ""
    own: list[NodeHandover] = [*handovers.by_index(BY_PLANE, uid)] if uid else []
    children = [each for each in every if owner_of(each) == meta.uid]
    for each in children:
        own += handovers.by_index(BY_SLICE, slice_name(each.metadata.name, each.metadata.uid))
    names_of_own = {each.metadata.name for each in own}
    nodes = {name for each in children for name in each.status.nodes}
    outside = {each.name for each in found.spec.contributed} - names_of_own
    defaults: TenancyDefaults | None = cluster.cache(TenancyDefaults.resource).get(DEFAULTS)
    templates: Cache[ClusterTemplate] = cluster.cache(ClusterTemplate.resource)
    template_name = wanted_template(found, defaults.spec.dedicated_clusters.template if defaults is not None else "")
    return ClusterInputs(
        found=found,
        plane=plane,
        claims={each.metadata.name: each for each in every},
        handovers={each.metadata.name: each for each in own},
        taken=frozenset(name for name in nodes - names_of_own if handovers.get(name) is not None),
        taken_outside=frozenset(name for name in outside if handovers.get(name) is not None),
        defaults=defaults.spec.slices if defaults is not None else SliceDefaults(),
        template_name=template_name,
        template=templates.get(template_name) if template_name else None,
        offered=tuple(sorted(each.metadata.name for each in templates)),
    )

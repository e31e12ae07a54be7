"""What the operator would write of Cluster API for DedicatedClusters that it builds, from files or from a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api.clusterapi import CLUSTER_CLASSES, CLUSTERS
from tenantry.api.dedicatedcluster import ClusterProvider, DedicatedCluster
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.model import Json, Resource, object_key
from tenantry.controllers.dedicatedcluster import template as templates
from tenantry.controllers.dedicatedcluster import topology
from tenantry.controllers.dedicatedcluster.gather import ClusterInputs
from tenantry.controllers.dedicatedcluster.topology import TopologyInputs
from tenantry.engine.cluster import CRDS
from tenantry.kube import wire

if TYPE_CHECKING:
    from tenantry.kube.client import Client


class ClusterApiObjects(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster has of Cluster API.

    Args:
        is_installed: Whether it has Clusters. Without a cluster, it is taken for granted.
        clusters: Those of the names of DedicatedClusters, by key.
        classes: ClusterClasses by key: None for one that does not exist. One that is not here is not known.
    """

    is_installed: bool = True
    clusters: Mapping[str, Json] = {}
    classes: Mapping[str, Json | None] = {}


def may_be_built(found: DedicatedCluster) -> bool:
    """Return whether Cluster API builds a cluster, or may do so when the template is known."""
    return ClusterProvider.HOSTED not in {found.spec.provider, found.status.provider}


def inputs_of(objects: ClusterApiObjects, of: ClusterInputs) -> TopologyInputs | None:
    """Return what decides about a DedicatedCluster that Cluster API builds; None if the operator hosts it.

    Args:
        objects: What the cluster has of Cluster API.
        of: The DedicatedCluster, with its template.
    """
    if of.own_plane is not None:
        return None
    of = templates.applied(of)
    found = of.found
    provider = topology.resolve(found, of.template, is_installed=objects.is_installed)
    if provider is not ClusterProvider.CLUSTER_API:
        return None
    inputs = TopologyInputs(
        found=found,
        template=of.template,
        cluster=objects.clusters.get(found.key),
        is_installed=objects.is_installed,
    )
    reference = inputs.class_reference
    known: Json | UnsetType | None = objects.classes.get(object_key(*reference), UNSET) if reference else UNSET
    inputs = msgspec.structs.replace(inputs, cluster_class=known)
    return msgspec.structs.replace(inputs, refused=tuple(templates.refused(of, inputs.size)))


async def read(client: Client, inputs: Iterable[ClusterInputs]) -> ClusterApiObjects:
    """Read what decides about DedicatedClusters that Cluster API builds, or may build.

    Args:
        client: Of the cluster.
        inputs: The DedicatedClusters, with their templates.
    """
    due = [each for each in inputs if may_be_built(each.found)]
    if not due:
        return ClusterApiObjects()
    if await _find(client, CRDS, "", CLUSTERS.full_name) is None:
        return ClusterApiObjects(is_installed=False)
    clusters: dict[str, Json] = {}
    classes: dict[str, Json | None] = {}
    for each in due:
        meta = each.found.metadata
        cluster = await _find(client, CLUSTERS, meta.namespace, meta.name)
        if cluster is not None:
            clusters[each.found.key] = cluster
        of = TopologyInputs(found=each.found, template=each.template, cluster=cluster)
        if of.class_reference is not None:
            try:
                classes[object_key(*of.class_reference)] = await _find(client, CLUSTER_CLASSES, *of.class_reference)
            except Forbidden:
                continue
    return ClusterApiObjects(clusters=clusters, classes=classes)


async def _find(client: Client, resource: Resource, namespace: str, name: str) -> Json | None:
    try:
        answer = await client.request("GET", wire.path(resource, namespace, name))
    except NotFound:
        return None
    return msgspec.json.decode(answer, type=Json)

"""Objects of Tenantry's kinds as files have them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant


class Manifests(msgspec.Struct, frozen=True):
    """The objects of files.

    Args:
        tenants: The Tenants.
        subnamespaces: The Subnamespaces.
        clusters: The DedicatedClusters.
        templates: The ClusterTemplates.
        others: Objects of other kinds.
        removed: Objects that the cluster has and would no longer have.
    """

    tenants: list[Tenant]
    subnamespaces: list[Subnamespace]
    clusters: list[DedicatedCluster] = []
    templates: list[ClusterTemplate] = []
    others: list[KubernetesObject] = []
    removed: list[KubernetesObject] = []


class WantedObject(msgspec.Struct, frozen=True):
    """An object of a file.

    Args:
        where: Its place, as in `tenants.yaml, document 2`.
        value: The object.
        document: The object as the file has it, without fields that are null.
    """

    where: str
    value: KubernetesObject
    document: Json


def sorted_by_kind(values: Iterable[KubernetesObject], removed: Iterable[KubernetesObject] = ()) -> Manifests:
    """Return objects of all kinds as manifests.

    Args:
        values: The objects of files.
        removed: Objects that the cluster would no longer have.
    """
    found = Manifests([], [], [], [], [], list(removed))
    for each in values:
        if isinstance(each, Tenant):
            found.tenants.append(each)
        elif isinstance(each, Subnamespace):
            found.subnamespaces.append(each)
        elif isinstance(each, DedicatedCluster):
            found.clusters.append(each)
        elif isinstance(each, ClusterTemplate):
            found.templates.append(each)
        else:
            found.others.append(each)
    return found

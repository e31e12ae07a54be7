"""Tenants, Subnamespaces, DedicatedClusters and ClusterTemplates as files have them."""

from __future__ import annotations

import msgspec

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant


class Manifests(msgspec.Struct, frozen=True):
    """The objects of files."""

    tenants: list[Tenant]
    subnamespaces: list[Subnamespace]
    clusters: list[DedicatedCluster] = []
    templates: list[ClusterTemplate] = []

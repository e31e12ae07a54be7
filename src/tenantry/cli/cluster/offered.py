"""Refuses a version that the template of a cluster does not offer, instead of a wait for the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.wording import shortened
from tenantry.cli import kinds
from tenantry.controllers.dedicatedcluster import template
from tenantry.hosting import versions

if TYPE_CHECKING:
    from tenantry.kube.client import Client


async def check(client: Client, name: str, namespace: str, version: str) -> None:
    """Check that a cluster may get a version.

    Owners may not read templates; the operator then reports it in the condition Stalled.

    Args:
        client: The client of the host.
        name: Of the cluster.
        namespace: Its namespace.
        version: The minor version, as in "1.36".

    Raises:
        InputError: Its template does not offer the version.
    """
    found = await client.get(DedicatedCluster, name, namespace)
    if found.status.version and version == versions.minor(found.status.version):
        # The operator keeps it, and brings a cluster back to it.
        return
    wanted = found.spec.template or template.taken(found).name
    if not wanted:
        return
    try:
        offered = (await client.get(ClusterTemplate, wanted)).spec.versions
    except (Forbidden, NotFound):
        return
    if offered and version not in offered:
        raise InputError(
            f"{kinds.told(DedicatedCluster, name, namespace)}: ClusterTemplate {wanted!r} does not offer Kubernetes"
            f" {version}: choose {shortened(offered)}, or ask an administrator to add it to the template"
        )

"""Refuses a template that does not exist, and a version that it does not offer, instead of a wait for the operator."""

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
        found_template = await client.get(ClusterTemplate, wanted)
    except (Forbidden, NotFound):
        return
    _check_offered(found_template, kinds.told(DedicatedCluster, name, namespace), version)


async def check_new(client: Client, wanted: DedicatedCluster) -> None:
    """Check that a cluster may be created from the template that it names; owners may not read templates.

    Args:
        client: The client of the host.
        wanted: The cluster.

    Raises:
        InputError: There is no such template, or it does not offer the version.
    """
    spec, meta = wanted.spec, wanted.metadata
    if not spec.template:
        return
    try:
        found = await client.get(ClusterTemplate, spec.template)
    except Forbidden:
        return
    except NotFound as error:
        raise InputError(
            f"--template {spec.template!r}: there is no ClusterTemplate of this name: `tenantry get clustertemplates`"
            " lists all"
        ) from error
    if spec.version:
        _check_offered(found, kinds.told(DedicatedCluster, meta.name, meta.namespace), spec.version)


def _check_offered(found: ClusterTemplate, told: str, version: str) -> None:
    offered = found.spec.versions
    if offered and version not in offered:
        raise InputError(
            f"{told}: ClusterTemplate {found.metadata.name!r} does not offer Kubernetes {version}: choose"
            f" {shortened(offered)}, or ask an administrator to add it to the template"
        )

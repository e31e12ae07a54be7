"""What applying Subnamespaces and clusters of a file would change, asked of the API server: for owners.

Owners may not read Tenants.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT
from tenantry.api.model import Json
from tenantry.api.subnamespace import Subnamespace
from tenantry.engine.plan import StepAction
from tenantry.engine.preview import Preview, shown
from tenantry.kube import wire
from tenantry.kube.client import APPLY_PATCH
from tenantry.views.drift.changes import TenantDrift
from tenantry.views.manifests import Manifests

if TYPE_CHECKING:
    from tenantry.kube.client import Client

NOTE = "as an owner: the objects of the files only, not what the operator would make of them"
"""What this leaves out."""

PRUNES_NOTE = "as an owner: the objects of the files and the prunes only, not what the operator would make of them"
"""What a plan with prunes leaves out."""


async def find(client: Client, manifests: Manifests | None, refused: Forbidden) -> list[TenantDrift]:
    """Return what would change in the Subnamespaces and clusters of the files, tenant by tenant.

    Args:
        client: Of the owner.
        manifests: The files' objects.
        refused: What the API server said to a request that administrators may make.

    Raises:
        Forbidden: There are no files, a Tenant or a ClusterTemplate is in them, or the user may not write one of
            the others.
    """
    if manifests is None or manifests.tenants or manifests.templates:
        raise Forbidden(
            f"{refused}; the operator's plan follows from objects that only administrators may read. An owner sees"
            " with -f what applying Subnamespaces and DedicatedClusters would change"
        )
    changes: dict[str, list[Preview]] = defaultdict(list)
    for each in (*manifests.subnamespaces, *manifests.clusters):
        parent = await client.get(Namespace, each.metadata.namespace)
        found = await _change(client, each)
        changes[parent.metadata.labels.get(TENANT, "")] += [found] if found is not None else []
    return [TenantDrift(tenant=tenant, changes=tuple(found), blocked=()) for tenant, found in sorted(changes.items())]


async def _change(client: Client, given: Subnamespace | DedicatedCluster) -> Preview | None:
    """Return the change of one object; None if there is none."""
    resource, meta = given.resource, given.metadata
    path = wire.path(resource, meta.namespace, meta.name)
    try:
        before: Json | None = shown(resource, msgspec.json.decode(await client.request("GET", path), type=Json))
    except NotFound:
        before = None
    query = {"dryRun": "All", "fieldManager": "tenantry", "force": "true"}
    answer = await client.request("PATCH", path, query=query, body=wire.encode(given), content_type=APPLY_PATCH)
    after = shown(resource, msgspec.json.decode(answer, type=Json))
    if before == after:
        return None
    action = StepAction.CREATE if before is None else StepAction.UPDATE
    return Preview(
        action=action, kind=resource.kind, namespace=meta.namespace, name=meta.name, before=before, after=after
    )

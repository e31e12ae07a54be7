"""Namespaces that were made for a Subnamespace that was gone by then, as an operator does that was paused meanwhile."""

from __future__ import annotations

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import PARENT, SUBNAMESPACE, SUBNAMESPACE_UID, TENANT_UID
from tenantry.api.subnamespace import Subnamespace
from tenantry.controllers.watched import BY_NAMESPACE, tenant_of
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.world.naming import child_name


async def sweep(cluster: Cluster, key: str, cluster_uid: str) -> None:
    """Delete the namespace of a Subnamespace's name that is bound to an earlier one of that name, which is gone.

    One with Subnamespaces inside stays: deleting those is not for us to decide.

    Raises:
        ApiError: It could not be told whether it is gone, or not be deleted.
    """
    parent, _, name = key.partition("/")
    namespaces = cluster.cache(Namespace.resource)
    above: Observed | None = namespaces.get(parent)
    tenant_uid = above.labels.get(TENANT_UID, "") if above is not None else ""
    if not tenant_uid:
        return
    for candidate in (child_name(tenant_uid, parent, name), child_name(tenant_uid, parent, name, cluster_uid)):
        found: Observed | None = namespaces.get(candidate)
        if found is None or found.deleting or not tenant_of(found):
            continue
        if found.labels.get(PARENT) != parent or found.labels.get(SUBNAMESPACE) != name:
            continue
        inside = cluster.cache(Subnamespace.resource).by_index(BY_NAMESPACE, candidate)
        if not inside and await _is_orphan(cluster, found):
            # Not where it has changed since: an administrator may have given it to another Subnamespace.
            await cluster.writer.remove(Namespace.resource, "", candidate, uid=found.uid, version=found.version)


async def _is_orphan(cluster: Cluster, found: Observed) -> bool:
    """Tell whether no Subnamespace is the one that a namespace is bound to, wherever it is: it may be about to move.

    The API server is asked itself: a cache may be behind.
    """
    bound = found.labels.get(SUBNAMESPACE_UID)
    if any(each.metadata.uid == bound for each in cluster.cache(Subnamespace.resource)):
        return False
    return all(each.metadata.uid != bound for each in await cluster.live.list(Subnamespace))

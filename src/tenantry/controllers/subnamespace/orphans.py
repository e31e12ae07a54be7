"""Namespaces that an operator created for a Subnamespace that was already gone, as after a pause of the process.

A namespace that comes back from a backup looks the same: its labels name a Subnamespace of another uid, and its
Subnamespace may not be back yet. So a namespace is only deleted if the operator created it, in this cluster, for a
tenant that is still there. `tenantry adopt` binds the others to their Subnamespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import CLUSTER_UID, FIELD_MANAGER, PARENT, SUBNAMESPACE, SUBNAMESPACE_UID, TENANT_UID
from tenantry.api.model import KubernetesObject, Model, ObjectMeta, Resource, object_key
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.controllers.subnamespace.gather import tenant_above
from tenantry.controllers.watched import BY_NAMESPACE, tenant_of
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.world.naming import child_name


class _Writer(Model, frozen=True, kw_only=True):
    manager: str = ""


class _WrittenMeta(ObjectMeta, frozen=True, kw_only=True):
    managed_fields: tuple[_Writer, ...] = ()


class _WrittenNamespace(KubernetesObject, frozen=True, kw_only=True):
    """A namespace with the clients that wrote it."""

    resource: ClassVar[Resource] = Namespace.resource

    metadata: _WrittenMeta


class OrphanInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Namespaces that may be orphans, and the Subnamespaces that could own them.

    Args:
        candidates: Namespaces of the names that a Subnamespace gives its child.
        uids: The uids of all Subnamespaces, wherever they are: one may be about to move.
    """

    candidates: tuple[Observed, ...]
    uids: frozenset[str]


def plan(inputs: OrphanInputs) -> Plan:
    """Return the deletions of the namespaces that are bound to a Subnamespace that is gone."""
    return Plan(
        writes=tuple(
            # At this resourceVersion only: an administrator may have given it to another Subnamespace meanwhile.
            DirectWrite(
                request=request.delete(Namespace.resource, "", found.name, uid=found.uid, version=found.version),
            )
            for found in inputs.candidates
            if found.labels.get(SUBNAMESPACE_UID) not in inputs.uids
        )
    )


async def sweep(cluster: Cluster, key: str, cluster_uid: str) -> None:
    """Delete the namespace of a Subnamespace's name that is bound to an earlier one of that name, which is gone.

    A namespace that has Subnamespaces inside stays: only a person may decide to delete those.

    Raises:
        ApiError: The Subnamespaces could not be listed, or the namespace not be deleted.
    """
    candidates = tuple(_candidates(cluster, key, cluster_uid))
    cached: Iterable[Subnamespace] = cluster.cache(Subnamespace.resource)
    inputs = OrphanInputs(candidates=candidates, uids=frozenset(each.metadata.uid for each in cached))
    if not plan(inputs).writes:
        return
    # A cache may lag behind the creation of the Subnamespace, so the API server has the last word.
    listed = await cluster.live.list(Subnamespace)
    uids = inputs.uids | {each.metadata.uid for each in listed}
    made = tuple([each for each in candidates if await _is_made_by_operator(cluster, each)])
    outcome = await cluster.writer.apply(plan(OrphanInputs(candidates=made, uids=uids)))
    if outcome.error is not None:
        raise outcome.error


async def _is_made_by_operator(cluster: Cluster, found: Observed) -> bool:
    """Return whether the operator wrote a namespace: a client that restores a backup has another field manager."""
    try:
        live = await cluster.live.get(_WrittenNamespace, found.name)
    except NotFound:
        return False
    meta = live.metadata
    return meta.uid == found.uid and any(each.manager == FIELD_MANAGER for each in meta.managed_fields)


def _candidates(cluster: Cluster, key: str, cluster_uid: str) -> Iterator[Observed]:
    parent, _, name = key.partition("/")
    above = cluster.lookup(Namespace.resource, parent)
    tenant_uid = above.labels.get(TENANT_UID, "") if above is not None else ""
    if not tenant_uid or tenant_above(above, cluster.cache(Tenant.resource)) is None:
        return
    for candidate in (child_name(tenant_uid, parent, name), child_name(tenant_uid, parent, name, cluster_uid)):
        found = cluster.lookup(Namespace.resource, candidate)
        if found is None or found.deleting or not tenant_of(found):
            continue
        if found.labels.get(CLUSTER_UID) != cluster_uid:
            continue
        is_child = object_key(found.labels.get(PARENT, ""), found.labels.get(SUBNAMESPACE, "")) == key
        if is_child and not cluster.cache(Subnamespace.resource).by_index(BY_NAMESPACE, candidate):
            yield found

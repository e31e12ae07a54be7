"""Lets the pods of a peer go that an administrator has given up: the glue around `lostpods`.

annotation of the PeerCluster ─► NamespaceMap.status.lost ─► the quota holds it ─► pods deleted here ─► status.giveUp
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec import UNSET

from tenantry.api.errors import Conflict, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT
from tenantry.api.model import Json, object_key
from tenantry.api.offloading import (
    MOST_LOST,
    OFFLOADING,
    GiveUpProgress,
    LostPods,
    NamespaceMap,
    NamespaceMapStatus,
    NamespaceOffloading,
)
from tenantry.api.peercluster import PeerCluster, node_name
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.controllers.evictions import PODS
from tenantry.controllers.offloading import lostpods
from tenantry.controllers.offloading.leaving import BoundPod
from tenantry.controllers.quota.objects import record_of
from tenantry.engine.cluster import Cluster
from tenantry.engine.plan import merge_patch
from tenantry.world.quota import normal

LOOK_SECONDS = 5.0
"""How often the pods of a peer that is given up are looked at: others may be deleted here, or quota becomes free."""


async def go_on(cluster: Cluster, peer: PeerCluster, found: NamespaceMap) -> float | None:
    """Let the pods of a peer go, if it is given up and silent; return in how many seconds to look again.

    Args:
        cluster: The home.
        peer: The PeerCluster.
        found: Its NamespaceMap.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    before = found.status
    if not peer.give_up:
        if before.give_up is not UNSET:
            await _write(cluster, found, msgspec.structs.replace(before, give_up=UNSET))
        return None
    if not lostpods.is_silent(peer, cluster.clock.now()):
        return LOOK_SECONDS
    pods = await _pods(cluster, peer.metadata.name, {*found.spec.desired, *before.current})
    lost = _recorded(cluster, before, pods)
    if lost != before.lost:
        # Before any of them is deleted: the quota, and who looks at them when the peer is back, must know them.
        await _write(cluster, found, msgspec.structs.replace(before, lost=lost))
        return LOOK_SECONDS
    for namespace, each in lost.items():
        record = record_of(cluster.cache(TenantResourceQuota.resource).get(each.tenant), namespace, found.metadata.name)
        limited = _limited(cluster, each.tenant)
        if each.released or (limited is not None and lostpods.is_held(each, record, limited)):
            for write in lostpods.releases(pods.get(namespace, ()), each):
                with suppress(*write.ignores):
                    await cluster.writer.send(write.request)
            lost[namespace] = msgspec.structs.replace(each, released=True)
    gone = {uid for each in lost.values() if each.released for uid in each.uids}
    left = [each for mine in pods.values() for each in mine if lostpods.is_concerned(each)]
    waiting = sum(each.metadata.uid not in gone for each in left)
    progress = GiveUpProgress(request=peer.give_up, pods=len(gone), waiting=waiting)
    after = msgspec.structs.replace(before, lost=lost, give_up=progress)
    if after != before:
        await _write(cluster, found, after)
    return LOOK_SECONDS


async def _pods(cluster: Cluster, peer: str, namespaces: set[str]) -> dict[str, list[BoundPod]]:
    """Return the pods on the Node of a peer, by the namespace; others than those of mapped ones were never sent."""
    found: dict[str, list[BoundPod]] = {}
    selectors = {"fieldSelector": f"spec.nodeName={node_name(peer)}"}
    async for each in cluster.live.items(PODS, BoundPod, selectors=selectors):
        if each.metadata.namespace in namespaces:
            found.setdefault(each.metadata.namespace, []).append(each)
    return found


def _recorded(cluster: Cluster, before: NamespaceMapStatus, pods: dict[str, list[BoundPod]]) -> dict[str, LostPods]:
    """Return which pods are let go, with those that were already."""
    found: dict[str, LostPods] = {}
    room = MOST_LOST - sum(len(each.uids) for each in before.lost.values())
    for namespace in sorted({*before.lost, *pods}):
        known, mine = before.lost.get(namespace), pods.get(namespace, ())
        entry = lostpods.record(
            known, mine, tenant=_tenant(cluster, namespace), holds=not forgets(cluster, namespace), most=max(room, 0)
        )
        if entry is not None:
            room -= len(entry.uids) - (len(known.uids) if known is not None else 0)
            found[namespace] = entry
    return found


def forgets(cluster: Cluster, namespace: str) -> bool:
    """Return whether a namespace does not wait for peers that are silent."""
    key = object_key(namespace, OFFLOADING)
    found: NamespaceOffloading | None = cluster.cache(NamespaceOffloading.resource).get(key)
    return found is not None and found.spec.forget_unreachable


def silent(cluster: Cluster) -> set[str]:
    """Return the peers that have been silent for so long that their Nodes are not ready."""
    peers: Iterable[PeerCluster] = cluster.cache(PeerCluster.resource)
    return {each.metadata.name for each in peers if lostpods.is_silent(each, cluster.clock.now())}


def _tenant(cluster: Cluster, namespace: str) -> str:
    found = cluster.lookup(Namespace.resource, namespace)
    return found.labels.get(TENANT, "") if found is not None else ""


def _limited(cluster: Cluster, tenant: str) -> set[str] | None:
    """Return the keys that the quota of a tenant limits; None if that is not known, and nothing can be held."""
    found: Tenant | None = cluster.cache(Tenant.resource).get(tenant)
    try:
        return set(normal(found.spec.quota.hard)) if found is not None else set()
    except InputError:
        return None  # the CRD refuses such quotas, but for a few that the status of the Tenant reports


async def _write(cluster: Cluster, found: NamespaceMap, after: NamespaceMapStatus) -> None:
    """Write what has changed of the status of a map."""
    status = merge_patch(_state(found.status), _state(after))
    about: Json = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
    body: Json = {"metadata": about, "status": status}
    # Its event wakes this key.
    with suppress(NotFound, Conflict):
        await cluster.writer.patch(NamespaceMap.resource, "", found.metadata.name, body, subresource="status")


def _state(found: NamespaceMapStatus) -> Json:
    """Return the part of the status that this module writes."""
    return msgspec.to_builtins(NamespaceMapStatus(lost=found.lost, give_up=found.give_up))

"""Keeps the ClusterProfiles of peers, while the cluster has the kind: the glue.

PeerCluster ─► ClusterProfile in `tenantry-system`   (Kubernetes deletes it with the PeerCluster)

A ClusterProfile of another program is never changed: the API server refuses the creation of a second one of the name,
and a patch names the resourceVersion at which the object was Tenantry's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api import reasons
from tenantry.api.clusterinventory import PROFILES_NAMESPACE, ClusterProfile
from tenantry.api.errors import AlreadyExists, ApiError, BadRequest, Conflict, Forbidden, Invalid
from tenantry.api.model import Json
from tenantry.api.peercluster import PeerCluster
from tenantry.controllers import watched
from tenantry.controllers.peering.inventory import profile
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.conditions import Wanted

_REFUSALS = (Forbidden, Invalid, BadRequest)

MOST_QUOTED = 63
"""How much of the name of another cluster manager is reported."""


def watch() -> Watch:
    """Return the watch of the ClusterProfiles, whose keys are the names of PeerClusters."""
    return Watch(
        resource=ClusterProfile.resource,
        decode=watched.decoder(ClusterProfile),
        keys=_name,
        selectors={"fieldSelector": f"metadata.namespace={PROFILES_NAMESPACE}"},
        optional=True,
        # An installation whose rights are older than its operator runs all the same.
        awaited=False,
    )


async def keep(cluster: Cluster, peer: PeerCluster, labels: Mapping[str, str]) -> Wanted | None:
    """Write the ClusterProfile of a peer if it differs; return the condition, None if the cluster has no such kind.

    Args:
        cluster: This cluster.
        peer: The PeerCluster, with the status that it gets.
        labels: Those of its Node.
    """
    cache = cluster.cache_of(ClusterProfile.resource)
    if cache is None:
        return None
    if not cluster.is_listed(ClusterProfile.resource):
        return _no(reasons.PROGRESSING, "the operator has not listed the ClusterProfiles of this cluster yet")
    wanted = profile.profile(peer)
    try:
        found: ClusterProfile = cache.get(wanted.key) or await _create(cluster, wanted)
        obstacle = _obstacle(found)
        if obstacle is None:
            await _correct(cluster, peer, labels, wanted, found)
    except Conflict as error:
        obstacle = _no(reasons.PROGRESSING, str(error))
    except ApiError as error:
        obstacle = _no(reasons.REFUSED if isinstance(error, _REFUSALS) else reasons.API_ERROR, str(error))
    words = f"ClusterProfile {wanted.key!r} shows the peer to other programs"
    return obstacle or Wanted(reasons.INVENTORIED, True, reasons.PROFILE_WRITTEN, words)


def _obstacle(found: ClusterProfile) -> Wanted | None:
    """Return why an object that has the name is not written; None if it is."""
    if not profile.is_ours(found):
        manager = found.spec.cluster_manager.name
        return _no(
            reasons.OBJECT_EXISTS,
            f"ClusterProfile {found.key!r} belongs to cluster manager {manager[:MOST_QUOTED]!r}: delete it, or use"
            " another name for the peer",
        )
    if found.metadata.deletion_timestamp:
        return _no(reasons.PROGRESSING, f"ClusterProfile {found.key!r} is being deleted")
    return None


async def _create(cluster: Cluster, wanted: ClusterProfile) -> ClusterProfile:
    """Create a ClusterProfile, and return it or the object that has the name."""
    try:
        return await cluster.writer.create(wanted, quiet=True)
    except AlreadyExists:
        data = await cluster.live.find(wanted.resource, wanted.metadata.namespace, wanted.metadata.name)
        if data is None:
            raise
        return msgspec.json.decode(data, type=ClusterProfile)


async def _correct(
    cluster: Cluster, peer: PeerCluster, labels: Mapping[str, str], wanted: ClusterProfile, found: ClusterProfile
) -> None:
    body = profile.correction(wanted, found)
    if body:
        found = await cluster.writer.own(_patch(found, body), quiet=True)
    status = profile.status(peer, labels, found.status, rfc3339(cluster.clock.now()))
    if status is not None:
        # Every list of ours, also an empty one; a field that this version does not write stays.
        content: Json = {"conditions": [], "properties": [], "accessProviders": []}
        content |= msgspec.to_builtins(status)
        content["version"] = {"kubernetes": status.version.kubernetes or None}
        await cluster.writer.own(_patch(found, {"status": content}, subresource="status"), quiet=True)


def _patch(found: ClusterProfile, body: Json, *, subresource: str = "") -> request.ApiRequest:
    meta = found.metadata
    versioned: Json = {
        **body,
        "metadata": {**body.get("metadata", {}), "uid": meta.uid, "resourceVersion": meta.resource_version},
    }
    return request.patch(found.resource, meta.namespace, meta.name, versioned, subresource=subresource)


def _no(reason: str, message: str) -> Wanted:
    return Wanted(reasons.INVENTORIED, False, reason, message)


def _name(change: Change[ClusterProfile]) -> Iterable[str]:
    found = change.after or change.before
    return [found.metadata.name] if found is not None else []


def is_passing(condition: Wanted | None) -> bool:
    """Return whether the ClusterProfile is tried again soon: no event reports that the next attempt succeeds."""
    return condition is not None and condition.reason in {reasons.PROGRESSING, reasons.API_ERROR}

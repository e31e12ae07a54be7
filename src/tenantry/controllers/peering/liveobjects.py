"""Objects of peerings as the API server has them: no cache has those of `tenantry-peers`, which include Secrets."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.model import Json, Resource
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.mirror.things import COPIED

SECRETS = COPIED["Secret"]


async def find(cluster: Cluster, resource: Resource, name: str, namespace: str = PEERS_NAMESPACE) -> Json | None:
    """Return an object; None if there is none.

    Args:
        cluster: It has the object.
        resource: The kind.
        name: Its name.
        namespace: "" for a cluster-scoped one.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    data = await cluster.live.find(resource, namespace, name)
    return None if data is None else msgspec.json.decode(data)


async def delete(cluster: Cluster, resource: Resource, live: Json) -> None:
    """Delete an object by its uid, unless it is gone.

    Args:
        cluster: It has the object.
        resource: The kind.
        live: The object.

    Raises:
        Conflict: Another object has the name now.
        ApiError: The API server refuses, or does not answer.
    """
    meta = live["metadata"]
    with suppress(NotFound):
        await cluster.writer.send(request.delete(resource, meta.get("namespace", ""), meta["name"], uid=meta["uid"]))

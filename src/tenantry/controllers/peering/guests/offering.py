"""Publishes the offer to a home, and looks at the free resources again while it is a share. The glue."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from fractions import Fraction

from tenantry.api.model import Json
from tenantry.api.peercluster import GuestOffer, OfferStatus, PeerCluster, PeerGuest, tenant_name
from tenantry.controllers.peering import liveobjects
from tenantry.controllers.peering.guests import freeresources, offers
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.world import leases

SHARE_SECONDS = 30.0
"""How often the free resources are looked at."""


async def keep(cluster: Cluster, found: PeerCluster, half: PeerGuest) -> OfferStatus:
    """Publish what is offered to a home; return it.

    Args:
        cluster: The peer, which is this cluster.
        found: The PeerCluster.
        half: Its guest half.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    now, before = cluster.clock.now(), found.status.offered
    free: Mapping[str, Fraction] = {}
    if offers.needs_free(half, now):
        free = await freeresources.free(cluster, tenant_name(found.metadata.name))
    known = before if isinstance(before, OfferStatus) else None
    offered = offers.offered(half, free, known, now)
    made = offers.objects(found, offered)
    if offered != known or not await _is_published(cluster, made[0][1]):
        for resource, value in made:
            await cluster.writer.send(request.apply(resource, value))
    return offered


async def _is_published(cluster: Cluster, wanted: Json) -> bool:
    live = await liveobjects.find(cluster, offers.CONFIG_MAPS, wanted["metadata"]["name"])
    return live is not None and live.get("data") == wanted["data"]


def next_look(half: PeerGuest, now: dt.datetime, seconds: float) -> float:
    """Return in how many seconds the offer may change by itself.

    Args:
        half: The guest half.
        now: The time.
        seconds: The longest wait.
    """
    if offers.needs_free(half, now):
        seconds = min(seconds, SHARE_SECONDS)
    if isinstance(half.offer, GuestOffer):
        left = leases.lease(half.offer.expires, now).next_seconds
        seconds = min(seconds, left + 1 if left is not None else seconds)
    return seconds

"""Keeps the account and the Secret of an invitation while it is open. The glue."""

from __future__ import annotations

from contextlib import suppress

from msgspec import UNSET, UnsetType

from tenantry.api.errors import AlreadyExists
from tenantry.api.model import Json
from tenantry.api.peercluster import (
    GuestInvitation,
    InvitationPhase,
    InvitationStatus,
    PeerCluster,
    PeerGuest,
    inviter_name,
)
from tenantry.controllers.peering import liveobjects
from tenantry.controllers.peering.guests import invitations
from tenantry.controllers.peering.liveobjects import SECRETS
from tenantry.engine import request
from tenantry.engine.cluster import Cluster


async def keep(cluster: Cluster, found: PeerCluster, half: PeerGuest) -> InvitationStatus | UnsetType:
    """Bring the invitation of a guest half a step further; return its state.

    Args:
        cluster: The peer, which is this cluster.
        found: The PeerCluster.
        half: Its guest half.

    Raises:
        ApiError: The API server refuses, or does not answer.
    """
    before = found.status.invitation
    asked, known = half.invitation, before if isinstance(before, InvitationStatus) else None
    if not isinstance(asked, GuestInvitation):
        if known is not None:
            await _end(cluster, found)
        return UNSET
    name = inviter_name(found.metadata.name)
    live = await liveobjects.find(cluster, SECRETS, name)
    phase = invitations.phase(asked, known, live, cluster.clock.now())
    if phase is InvitationPhase.OPEN:
        await _open(cluster, found, asked, live)
    elif known is None or known.phase is not phase:
        await _end(cluster, found)
    return InvitationStatus(expires=asked.expires, phase=phase)


async def _open(cluster: Cluster, found: PeerCluster, asked: GuestInvitation, live: Json | None) -> None:
    if invitations.is_for(asked, live):
        # The Secret is written last. The home may delete the RoleBinding just now: it must not come back.
        return
    for resource, value in invitations.objects(found):
        await cluster.writer.send(request.apply(resource, value))
    if live is not None:
        # Tokens of an earlier invitation are bound to its Secret, by uid.
        await liveobjects.delete(cluster, SECRETS, live)
    with suppress(AlreadyExists):
        await cluster.writer.send(request.create_json(SECRETS, invitations.secret(found, asked)))


async def _end(cluster: Cluster, found: PeerCluster) -> None:
    """Delete what makes an invitation valid."""
    name = inviter_name(found.metadata.name)
    for resource in (SECRETS, *(resource for resource, _ in invitations.objects(found))):
        live = await liveobjects.find(cluster, resource, name)
        if live is not None and _is_ours(live, found):
            await liveobjects.delete(cluster, resource, live)


def _is_ours(live: Json, found: PeerCluster) -> bool:
    owners: list[Json] = live["metadata"].get("ownerReferences") or []
    return any(each.get("uid") == found.metadata.uid for each in owners)

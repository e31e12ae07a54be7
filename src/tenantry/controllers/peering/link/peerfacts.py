"""What a peer reports about itself, and whether it is the cluster that the PeerCluster means: untrusted."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import ApiError, ConfigError, Forbidden, NotFound, TerminalError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import CLUSTER_UID, PROPOSED_LABELS
from tenantry.api.peercluster import MAX_REPORTED, PEERS_NAMESPACE, OfferStatus, tenant_name
from tenantry.controllers.peering.guests import offers
from tenantry.controllers.peering.link.labels import proposed
from tenantry.kube.client import Client
from tenantry.kube.version import OLDEST, ServerVersion


class PeerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer reports about itself; untrusted.

    Args:
        cluster_id: Its cluster id.
        version: Its version of Kubernetes.
        labels: Those that it proposes for its Node.
        offer: What it offers; None if it does not say.
    """

    cluster_id: str = ""
    version: str = ""
    labels: Mapping[str, str] = {}
    offer: OfferStatus | None = None


class _OfferMap(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


async def read(client: Client, guest: str, *, home_id: str, known_id: str) -> PeerFacts:
    """Ask a peer about itself.

    Args:
        client: A client with the identity of the guest.
        guest: The name of the PeerCluster there.
        home_id: The id of this cluster.
        known_id: The id that the peer must have; "" for any.

    Raises:
        ConfigError: It does not serve the guest.
        TerminalError: It is this cluster, another one than before, or too old.
        ApiError: It refuses, or does not answer.
    """
    name = tenant_name(guest)
    try:
        core = await client.get(Namespace, name)
    except NotFound as error:
        raise ConfigError(
            f"the peer has no namespace {name!r}: create PeerCluster {guest!r} with spec.guest there"
        ) from error
    try:
        version = msgspec.json.decode(await client.request("GET", "/version"), type=ServerVersion)
    except msgspec.MsgspecError as error:
        raise ApiError(f"the peer reports no version of Kubernetes: {error}") from error
    facts = PeerFacts(
        cluster_id=core.metadata.labels.get(CLUSTER_UID, "")[:MAX_REPORTED],
        version=version.git_version[:MAX_REPORTED],
        labels=proposed(core.metadata.annotations.get(PROPOSED_LABELS, "")),
    )
    if facts.cluster_id == home_id:
        raise TerminalError(
            reasons.PEER_IS_HOME, "spec.host.server is the API server of this cluster, which cannot be its own peer"
        )
    if known_id and facts.cluster_id != known_id:
        raise TerminalError(
            reasons.PEER_CHANGED,
            f"spec.host.server is cluster {facts.cluster_id!r} now, and was {known_id!r}: correct the address; if the"
            " peer was made anew, remove the PeerCluster, and accept another invitation",
        )
    if version.minor < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise TerminalError(
            reasons.PEER_TOO_OLD,
            f"the peer is Kubernetes {facts.version!r}; Tenantry needs {needed} or newer there: upgrade the peer",
        )
    return msgspec.structs.replace(facts, offer=await _offer(client, guest))


async def _offer(client: Client, guest: str) -> OfferStatus | None:
    """Return what a peer offers; None if it does not say."""
    path = f"/api/v1/namespaces/{PEERS_NAMESPACE}/configmaps/{offers.offer_name(guest)}"
    try:
        found = msgspec.json.decode(await client.request("GET", path), type=_OfferMap)
    except (NotFound, Forbidden, msgspec.MsgspecError):
        # It has not made one yet.
        return None
    return offers.read(found.data.get(offers.OFFER_KEY, ""))

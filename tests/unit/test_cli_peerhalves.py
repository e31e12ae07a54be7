"""What stays of a PeerCluster that is connected again."""

from __future__ import annotations

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tenantry.api.model import ObjectMeta
from tenantry.api.peercluster import (
    GuestNames,
    GuestOffer,
    NodeIdentities,
    OfferAmounts,
    PeerCluster,
    PeerClusterSpec,
    PeerClusterStatus,
    PeerGuest,
    PeerHost,
)
from tenantry.api.peertunnel import GuestTunnel
from tenantry.cli.peerhalves import kept

HOST = PeerHost(server="https://new:6443", ca="b", guest="home", credentials_secret_name="s", cluster_id="c1")
SET_HOST = replace(
    HOST,
    server="https://old:6443",
    labels={"topology.kubernetes.io/region": "eu"},
    token_audiences=("vault",),
    node_identity=NodeIdentities.IMPERSONATION,
)
GUEST = PeerGuest(cluster_id="h1")
SET_GUEST = replace(
    GUEST,
    labels={"topology.kubernetes.io/region": "eu"},
    offer=GuestOffer(amounts=OfferAmounts.SHARE, percent=20),
    names=GuestNames.SAME,
    lease_seconds=3600,
    keep_seconds=7200,
    tunnel=GuestTunnel(server="https://home:6447", ca="c", credentials_secret_name="t"),
)


def peer(*, host: PeerHost | UnsetType = UNSET, guest: PeerGuest | UnsetType = UNSET, known: str = "") -> PeerCluster:
    """Return a PeerCluster, with the id of the peer that it has reached."""
    status = PeerClusterStatus(cluster_id=known)
    return PeerCluster(metadata=ObjectMeta(name="berlin"), spec=PeerClusterSpec(host=host, guest=guest), status=status)


@pytest.mark.parametrize("known_as", ["c1", ""])
def test_what_an_administrator_has_set_stays_when_a_peer_is_connected_again(known_as: str) -> None:
    found = kept(peer(host=replace(SET_HOST, cluster_id=known_as), known="c1"), PeerClusterSpec(host=HOST))
    assert found.host == replace(SET_HOST, server=HOST.server)


def test_what_an_administrator_has_set_stays_when_a_home_is_invited_again_without_its_tunnel() -> None:
    """The invitation states which cluster connects to the other one, and what is offered."""
    found = kept(peer(guest=SET_GUEST), PeerClusterSpec(guest=GUEST))
    assert found.guest == replace(SET_GUEST, tunnel=UNSET, offer=UNSET)


def test_what_a_command_states_counts() -> None:
    stated = replace(GUEST, labels={"topology.kubernetes.io/region": "us"})
    found = kept(peer(guest=SET_GUEST), PeerClusterSpec(guest=stated)).guest
    assert isinstance(found, PeerGuest)
    assert found.labels == stated.labels


def test_nothing_stays_for_another_cluster() -> None:
    """Tokens for audiences of the peer before must not go to another one."""
    other, stranger = replace(HOST, cluster_id="c2"), replace(GUEST, cluster_id="h2")
    both = peer(host=SET_HOST, guest=SET_GUEST)
    unnamed = peer(host=replace(SET_HOST, cluster_id=""), known="c1")
    assert kept(unnamed, PeerClusterSpec(host=other)) == PeerClusterSpec(host=other)
    assert kept(both, PeerClusterSpec(host=other)) == PeerClusterSpec(host=other)
    assert kept(both, PeerClusterSpec(guest=stranger)) == PeerClusterSpec(guest=stranger)

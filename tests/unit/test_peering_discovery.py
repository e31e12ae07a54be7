"""Clusters that were only discovered: what they grant, how long they stay, and which invitations fit (L13)."""

from __future__ import annotations

import datetime as dt

import pytest
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.model import ObjectMeta
from tenantry.api.peercluster import PeerCluster, PeerClusterSpec, PeerGuest, PeerHost
from tenantry.api.peerdiscovery import PeerDiscovery
from tenantry.api.quota import Quota
from tenantry.controllers.peering import discovery, status
from tenantry.hosting.selfsigned import self_signed

START = dt.datetime(2027, 1, 1, tzinfo=dt.UTC)
CA, OTHER_CA = (self_signed(name, [], now=START, life=dt.timedelta(1))[0].decode() for name in ("one", "other"))
(DIGEST,) = discovery.digests(CA)
(OTHER_DIGEST,) = discovery.digests(OTHER_CA)
FOUND = PeerDiscovery(
    server="https://api.example.com:6443", ca_digests=(DIGEST,), cluster_id="id", seen="2027-01-01T00:00:00Z"
)
HOST = PeerHost(
    server="https://api.example.com:6443", ca=CA, guest="home", credentials_secret_name="s", cluster_id="id"
)
GUEST = PeerGuest(quota=Quota(hard={"cpu": "1"}))
AUTHORITY = """
-----BEGIN CERTIFICATE-----
MIIBcTCCARegAwIBAgIUbMdlVeX1stteA53GGmcisI+YRYMwCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTI4MDU0NzQzWhgPMjEyNjExMDQwNTQ3NDNa
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYrUCJYRz
gm0QJ34N7ZeQ1VTZoQ8JUEtPvZdjHp+uVuhMcKmnaCivjvykqcd7IDfFZPS64eh9
2PmpSYtR5x2LG6NTMFEwHQYDVR0OBBYEFB2Kz6CncmPBjbiUmcRbIoOpatHgMB8G
A1UdIwQYMBaAFB2Kz6CncmPBjbiUmcRbIoOpatHgMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSAAwRQIgKVCK8FEpmb7NVXma5prnLj+jcTf47ORcCZtxjvhu
HskCIQCCKUG/+EB2u0BjrA0W14uSrVwEk77Xru0Jo9TV8gX0yg==
-----END CERTIFICATE-----
"""


def peer(spec: PeerClusterSpec) -> PeerCluster:
    return PeerCluster(metadata=ObjectMeta(name="berlin", uid="p1"), spec=spec)


def conditions(found: PeerCluster, host: status.HostState | None = None) -> dict[str, tuple[str, str]]:
    known = status.compute(found, status.GuestState(), host, "2027-01-01T00:00:00Z")
    return {each.type: (each.status, each.reason) for each in known.conditions}


def test_a_cluster_that_is_only_discovered_is_not_ready_and_ends_after_an_hour() -> None:
    found = peer(PeerClusterSpec(discovered=FOUND))
    told = conditions(found)
    assert told[reasons.READY] == ("False", reasons.NOT_ACCEPTED)
    assert told[reasons.DISCOVERED] == ("True", reasons.ESTABLISHED)
    # It needs a person, and nothing is wrong with it.
    assert reasons.STALLED not in told
    assert discovery.ends(found) == START + dt.timedelta(hours=1)


@pytest.mark.parametrize("used", [PeerClusterSpec(host=HOST), PeerClusterSpec(guest=GUEST)])
def test_a_cluster_that_is_used_stays(used: PeerClusterSpec) -> None:
    assert discovery.ends(peer(replace(used, discovered=FOUND))) is None
    assert discovery.ends(peer(used)) is None


@pytest.mark.parametrize(
    ("ca", "cluster_id", "words"),
    [
        (CA, "id", ""),
        (CA, "", ""),
        (OTHER_CA, "id", OTHER_DIGEST),
        # A second authority would be trusted for the server, too.
        (CA + OTHER_CA, "id", OTHER_DIGEST),
        ("", "id", "no digest"),
        ("garbage", "id", "no digest"),
        # OpenSSL would trust it, and it has no digest here.
        (CA + OTHER_CA.replace("BEGIN CERT", "BEGIN TRUSTED CERT"), "id", "no digest"),
        (CA, "another", "'another'"),
    ],
    ids=[
        "same",
        "unknown id",
        "another authority",
        "a second authority",
        "none",
        "no PEM",
        "another block",
        "another id",
    ],
)
def test_a_host_half_is_of_the_cluster_that_was_found(ca: str, cluster_id: str, words: str) -> None:
    half = replace(HOST, ca=ca, cluster_id=cluster_id)
    wrong = discovery.problem(peer(PeerClusterSpec(discovered=FOUND, host=half)))
    if not words:
        assert wrong is None
        return
    assert wrong is not None
    assert wrong.reason == reasons.OTHER_THAN_FOUND
    assert words in wrong.message
    told = conditions(peer(PeerClusterSpec(discovered=FOUND, host=half)), status.HostState(failure=wrong))
    assert told[reasons.DISCOVERED] == ("False", reasons.OTHER_THAN_FOUND)
    assert told[reasons.READY] == ("False", reasons.OTHER_THAN_FOUND)
    assert told[reasons.REACHABLE][0] == "False"


def test_two_authorities_are_accepted_while_one_replaces_the_other() -> None:
    both = replace(FOUND, ca_digests=(DIGEST, OTHER_DIGEST))
    assert discovery.contradiction(both, CA + OTHER_CA, "id") == ""
    assert discovery.contradiction(both, CA, "id") == ""


def test_the_digest_is_that_of_kubeadm() -> None:
    """As `openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | sha256sum` prints it."""
    assert discovery.digests(AUTHORITY) == ("sha256:89b6dff9600f91c915791921bd217e86048a4278e8b8cb17ab1abf33b321596d",)

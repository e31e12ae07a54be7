"""Clusters that were discovered: what is said of one, how long it is kept, and whether an invitation fits. Pure.

An administrator, or the DNS of a domain, names a cluster by the digests of its authorities. Nothing is asked there, and
nothing granted. When the administrator accepts an invitation under the same name, its authorities must be among these:
so an invitation that was replaced on its way sends no token anywhere.

Source: Kubernetes, "kubeadm join" (the digest is that of the SubjectPublicKeyInfo, RFC 7469).
"""

from __future__ import annotations

import datetime as dt
import hashlib

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tenantry.api import reasons
from tenantry.api.peercluster import PeerCluster, PeerGuest, PeerHost
from tenantry.api.peerdiscovery import KEEP_SECONDS, PeerDiscovery
from tenantry.engine.conditions import Wanted
from tenantry.engine.plan import Blocked
from tenantry.world.leases import instant

_BEGIN = "-----BEGIN"


def digests(ca: str) -> tuple[str, ...]:
    """Return the digest of each certificate, as in sha256:0123….

    Args:
        ca: Certificates in PEM.

    Raises:
        ValueError: They are none, or not only certificates.
        UnsupportedAlgorithm: A key is of an unknown kind.
    """
    found = x509.load_pem_x509_certificates(ca.encode())
    if ca.count(_BEGIN) != len(found):
        # TLS would trust a certificate in a block of another name, too.
        raise ValueError("there is something else than certificates in PEM")
    keys = (each.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) for each in found)
    return tuple(f"sha256:{hashlib.sha256(each).hexdigest()}" for each in keys)


def is_unused(found: PeerCluster) -> bool:
    """Return whether a cluster is only discovered."""
    return not isinstance(found.spec.host, PeerHost) and not isinstance(found.spec.guest, PeerGuest)


def ends(found: PeerCluster) -> dt.datetime | None:
    """Return when a PeerCluster is deleted because it was not used; None for never."""
    known = found.spec.discovered
    if not isinstance(known, PeerDiscovery) or not is_unused(found):
        return None
    return instant(known.seen) + dt.timedelta(seconds=KEEP_SECONDS)


def contradiction(known: PeerDiscovery, ca: str, cluster_id: str) -> str:
    """Return why a cluster is another one than was discovered; "" if it is the same.

    Args:
        known: What was discovered.
        ca: The certificates of its authorities, in PEM.
        cluster_id: Its id; "" for an unknown one.
    """
    try:
        there = digests(ca)
    except (ValueError, UnsupportedAlgorithm):
        there = ()
    # Each of them is trusted for the server, so one that was not found counts.
    others = [each for each in there if each not in known.ca_digests]
    if others or not there:
        words = f"the digest {others[0]}" if others else "no digest"
        return (
            f"its authority has {words}, which is not in spec.discovered.caDigests: compare it with `tenantry peer"
            " record` at that cluster; if its authority is another one now, discover it again"
        )
    if known.cluster_id and cluster_id and known.cluster_id != cluster_id:
        return (
            f"its cluster id is {cluster_id!r}, and spec.discovered.clusterId is {known.cluster_id!r}: it is another"
            " cluster with the same authority"
        )
    return ""


def problem(found: PeerCluster) -> Blocked | None:
    """Return why a PeerCluster is not used as it is, as far as that follows from its discovery."""
    known, half = found.spec.discovered, found.spec.host
    if not isinstance(known, PeerDiscovery):
        return None
    if is_unused(found):
        where = f"in the DNS of {known.source}" if known.source else "by an administrator"
        return Blocked(
            reason=reasons.NOT_ACCEPTED,
            message=f"found {where}; it grants nothing: send its administrator the file of `tenantry peer request`, and"
            f" accept the invitation with `tenantry peer accept {found.metadata.name} -f FILE`",
            passing=True,
        )
    words = contradiction(known, half.ca, half.cluster_id) if isinstance(half, PeerHost) else ""
    return Blocked(reason=reasons.OTHER_THAN_FOUND, message=f"spec.host: {words}") if words else None


def condition(found: PeerCluster) -> list[Wanted]:
    """Return the condition Discovered; none for a cluster that was not discovered."""
    known, half = found.spec.discovered, found.spec.host
    if not isinstance(known, PeerDiscovery):
        return []
    wrong = problem(found)
    if wrong is not None and wrong.reason == reasons.OTHER_THAN_FOUND:
        return [Wanted(reasons.DISCOVERED, False, wrong.reason, wrong.message)]
    words = f"at {known.server}" if not isinstance(half, PeerHost) else "its authorities are those that were found"
    return [Wanted(reasons.DISCOVERED, True, reasons.ESTABLISHED, words)]

"""What a certificate is for, and when it is replaced; who issues it, and where it is kept, differs by place. Pure.

    issued ──────────────────── two thirds: renewed ────────── end        a certificate, and an authority
    authority replaced ─► its certificates, at once
                       ─► those in `kept`, when the overlap is over: until then, clients trust both authorities

An authority is replaced when it is due, or when another generation of it is wanted: a certificate cannot be revoked,
but one of an authority that no server trusts any more is worth nothing.

Source: Kubernetes, "PKI certificates and requirements".
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Collection, Mapping

import msgspec

SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""The names by which programs in any cluster know its API server."""

KUBELET_CLIENT_USER = "kube-apiserver-kubelet-client"


class CertificateUse(enum.StrEnum):
    """The purpose of a certificate (extended key usage)."""

    CLIENT = "client"
    SERVER = "server"
    PEER = "peer"
    """Both, as etcd's peers need it."""


class LeafCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """One certificate.

    Args:
        ca: The name of its authority.
        user: The common name, which Kubernetes reads as the user name.
        group: The organization, which Kubernetes reads as the group; "" for none.
        use: Its purpose.
        names: DNS names and IP addresses of a server.
    """

    ca: str
    user: str
    group: str = ""
    use: CertificateUse = CertificateUse.CLIENT
    names: tuple[str, ...] = ()


class CertificateLives(msgspec.Struct, frozen=True, kw_only=True):
    """How long certificates are valid.

    Args:
        leaf: Of a certificate.
        authority: Of an authority, which signs certificates that end before it.
    """

    leaf: dt.timedelta = dt.timedelta(days=365)
    authority: dt.timedelta = dt.timedelta(days=3650)


LIVES = CertificateLives()


class IssuedCertificate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record of an issued certificate, so that a decision needs no parser of certificates.

    Args:
        leaf: What it was issued for; None for an authority.
        not_before: When it was issued; None in records of earlier versions, whose certificates had `LIVES`.
        not_after: When it ends.
        signer: The `not_before` of its authority, by which that is known.
        generation: Of an authority.
    """

    leaf: LeafCertificate | None
    not_before: dt.datetime | None = None
    not_after: dt.datetime
    signer: dt.datetime | None = None
    generation: int = 0


class DueCertificates(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be issued.

    Args:
        authorities: The names of authorities, sorted.
        leaves: The names of certificates, sorted.
    """

    authorities: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()


def renewal(issued: IssuedCertificate) -> dt.datetime:
    """Return when a certificate is renewed: at two thirds of its life."""
    life = LIVES.authority if issued.leaf is None else LIVES.leaf
    start = issued.not_before if issued.not_before is not None else issued.not_after - life
    return start + (issued.not_after - start) * 2 / 3


def due(
    index: Mapping[str, IssuedCertificate],
    wanted: Mapping[str, LeafCertificate],
    now: dt.datetime,
    *,
    generations: Mapping[str, int] | None = None,
    kept: Collection[str] = (),
) -> DueCertificates:
    """Return what is missing, was issued for something else, or is at two thirds of its life.

    Args:
        index: What was issued and is there, by name.
        wanted: Every certificate by its name; their authorities are wanted, too.
        now: The time.
        generations: The wanted generation of authorities by their names; without one, any will do.
        kept: Certificates that stay although their authority is replaced.
    """
    wished = generations or {}

    def is_good(name: str, leaf: LeafCertificate | None) -> bool:
        issued = index.get(name)
        return issued is not None and issued.leaf == leaf and now < renewal(issued)

    def stays(name: str) -> bool:
        return is_good(name, None) and wished.get(name) in (None, index[name].generation)

    replaced = {leaf.ca for leaf in wanted.values() if not stays(leaf.ca)}

    def may_stay(name: str, leaf: LeafCertificate) -> bool:
        if not is_good(name, leaf):
            return False
        return name in kept or (leaf.ca not in replaced and index[name].signer == index[leaf.ca].not_before)

    stale = {name for name, leaf in wanted.items() if not may_stay(name, leaf)}
    return DueCertificates(authorities=tuple(sorted(replaced)), leaves=tuple(sorted(stale)))


def next_renewal(index: Mapping[str, IssuedCertificate], names: Collection[str]) -> dt.datetime | None:
    """Return when the first of some certificates, or of their authorities, is renewed; None without any.

    Args:
        index: What was issued, by name.
        names: Of certificates.
    """
    found = {name: issued for name in names if (issued := index.get(name)) is not None}
    signers = {issued.leaf.ca for issued in found.values() if issued.leaf is not None}
    found |= {name: issued for name in signers if (issued := index.get(name)) is not None}
    return min((renewal(each) for each in found.values()), default=None)

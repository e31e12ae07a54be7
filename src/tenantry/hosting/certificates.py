"""What a certificate is for; who issues it, and where it is kept, differs by place. Pure.

Source: Kubernetes, "PKI certificates and requirements".
"""

from __future__ import annotations

import enum

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

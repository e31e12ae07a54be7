"""CertificateSigningRequests, with the fields that Tenantry reads or writes.

Source: Kubernetes, "Certificates and Certificate Signing Requests".
"""

from __future__ import annotations

from typing import ClassVar

from tenantry.api.model import KubernetesObject, Model, Resource

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
"""The signers of nodes."""

NODE = "system:node:"
"""The prefix of the user names of nodes."""

NODES_GROUP = "system:nodes"

BOOTSTRAP = "system:bootstrap:"
"""The prefix of the user names of bootstrap tokens, before their ids."""


def grant_name(peer: str) -> str:
    """Return the name of the ClusterRole by which the operator may act as the Node of a peer, and of its binding."""
    return f"tenantry-peer-node-{peer}"


class SigningSpec(Model, frozen=True, kw_only=True):
    """The requester, the signer and the PEM request in Base64."""

    request: str = ""
    signer_name: str = ""
    username: str = ""
    usages: tuple[str, ...] = ()
    expiration_seconds: int = 0


class SigningCondition(Model, frozen=True, kw_only=True):
    """A decision, or the failure of the signer."""

    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""


class SigningStatus(Model, frozen=True, kw_only=True):
    """The decisions so far, and the PEM certificate in Base64."""

    certificate: str = ""
    conditions: tuple[SigningCondition, ...] = ()


class SigningRequest(KubernetesObject, frozen=True, kw_only=True):
    """A CertificateSigningRequest."""

    resource: ClassVar[Resource] = Resource(
        "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
    )

    spec: SigningSpec = SigningSpec()
    status: SigningStatus = SigningStatus()

"""Whether a contributed node gets the certificate that it asks for: pure.

Source: Kubernetes, "Certificates and Certificate Signing Requests", "TLS bootstrapping".
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from typing import ClassVar

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from tenantry.api.contribution import PREFIX, node_of
from tenantry.api.model import KubernetesObject, Model, Resource

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
BOOTSTRAP = "system:bootstrap:"
NODE = "system:node:"

_NODES = frozenset({"system:nodes"})


class SigningSpec(Model, frozen=True, kw_only=True):
    """Who asks for what."""

    request: str = ""
    signer_name: str = ""
    username: str = ""


class SigningCondition(Model, frozen=True, kw_only=True):
    """What has been decided."""

    type: str
    status: str = "True"


class SigningStatus(Model, frozen=True, kw_only=True):
    """Whether it has been decided."""

    conditions: tuple[SigningCondition, ...] = ()


class SigningRequest(KubernetesObject, frozen=True, kw_only=True):
    """A CertificateSigningRequest."""

    resource: ClassVar[Resource] = Resource(
        "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
    )

    spec: SigningSpec = SigningSpec()
    status: SigningStatus = SigningStatus()


class _Asked(msgspec.Struct, frozen=True):
    """What stands in a request."""

    name: str
    groups: frozenset[str]
    hosts: frozenset[str]


decode = msgspec.json.Decoder(SigningRequest).decode


def concerned(request: SigningRequest) -> str:
    """Return the contributed node that a request that waits would be for; "" for none."""
    spec = request.spec
    if request.status.conditions:
        return ""
    if spec.signer_name == CLIENT and spec.username.startswith(BOOTSTRAP):
        return node_of(spec.username.removeprefix(BOOTSTRAP))
    if spec.signer_name == SERVING and spec.username.startswith(NODE + PREFIX):
        return spec.username.removeprefix(NODE)
    return ""


def may_have(
    request: SigningRequest, addresses: Mapping[str, frozenset[str]], reserved: frozenset[str] = frozenset()
) -> bool:
    """Tell whether a node gets its certificate: its own and no other's.

    Args:
        request: By whom `concerned` says.
        addresses: Of each node that there is, by its name; a node says them of itself.
        reserved: The API server's addresses, under which no node serves.
    """
    node = concerned(request)
    asked = _read(request.spec.request)
    if not node or asked is None or asked.name != NODE + node or asked.groups != _NODES:
        return False
    if request.spec.signer_name == CLIENT:
        # Who has the token may ask again as long as no node came of it.
        return not asked.hosts and node not in addresses
    others = frozenset(address for name, found in addresses.items() if name != node for address in found)
    own = {each for each in addresses.get(node, frozenset()) - others - reserved if _is_of_a_node(each)}
    return bool(asked.hosts) and asked.hosts <= own | {node}


def _is_of_a_node(address: str) -> bool:
    """Tell whether a node may have an address: names other than the node's own, as a Service's, are nobody's to say."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified)


def _read(text: str) -> _Asked | None:
    try:
        found = x509.load_pem_x509_csr(base64.b64decode(text))
    except ValueError:
        return None
    if not found.is_signature_valid:
        return None
    names = [str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = (str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    if len(names) != 1:
        return None
    try:
        hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return _Asked(names[0], frozenset(groups), frozenset())
    return _Asked(names[0], frozenset(groups), frozenset(str(each.value) for each in hosts))

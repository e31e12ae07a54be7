"""Requests for certificates as kubelets make them, and as they should not."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID, NameOID

CLIENT_USAGES = ("digital signature", "client auth")
SERVING_USAGES = ("digital signature", "server auth")

MALFORMED = (
    x509.UnrecognizedExtension(ExtensionOID.BASIC_CONSTRAINTS, b"garbage"),
    x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"garbage"),
    # An x400Address, which `cryptography` does not support.
    x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x02\xa3\x00"),
)
"""Extensions that keep a request from being read, each by itself: it is valid PEM, and signed by its key."""


def csr(
    user: str,
    *groups: str,
    names: Sequence[str] = (),
    key: ec.EllipticCurvePrivateKey | None = None,
    more: Sequence[x509.ExtensionType] = (),
) -> str:
    """Return `spec.request` of a CertificateSigningRequest.

    Args:
        user: The common name.
        groups: The organizations.
        names: IP addresses, DNS names, mail addresses and URIs.
        key: A key; a new one without.
        more: Further extensions.
    """
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
    for each in more:
        builder = builder.add_extension(each, critical=False)
    made = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(made.public_bytes(Encoding.PEM)).decode()


def _name(text: str) -> x509.GeneralName:
    if "@" in text:
        return x509.RFC822Name(text)
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)

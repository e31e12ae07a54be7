"""Certificate signing requests as kubelets make them, and authorities."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tenantry.api.model import ObjectMeta
from tenantry.api.signing import SigningRequest, SigningSpec


def request(signer: str, user: str, name: str, *hosts: str, group: str = "system:nodes") -> SigningRequest:
    """Return what a kubelet asks for."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if hosts:
        names = [
            x509.DNSName(each) if each[0].isalpha() else x509.IPAddress(ipaddress.ip_address(each)) for each in hosts
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = SigningSpec(request=base64.b64encode(pem).decode(), signer_name=signer, username=user)
    return SigningRequest(metadata=ObjectMeta(name="csr"), spec=spec)


def authority(name: str, now: dt.datetime) -> str:
    """Return the certificate of a new authority, PEM, which is valid for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now)
    builder = builder.not_valid_after(now + dt.timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

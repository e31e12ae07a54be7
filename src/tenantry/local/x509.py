"""Writes keys and certificates with `cryptography`; its callers decide which are issued."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tenantry.api.errors import LocalError
from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.local.files import write_private

if TYPE_CHECKING:
    from pathlib import Path

_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_KEYS = (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)

# A clock that was set back a little after `up` must not make the cluster unusable.
_SLACK = dt.timedelta(minutes=5)


def write_key_pair(folder: Path, name: str) -> None:
    """Write a private and its public key, as service account tokens need them."""
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder, name, key)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    write_private(folder / f"{name}.pub", public)


def write_authority(folder: Path, name: str, start: dt.datetime, end: dt.datetime) -> None:
    """Write a certificate authority that may sign leaves only.

    Its key is RSA: the API server verifies a client's certificate at every request, and an RSA signature is verified in
    less than half the time of an elliptic curve's (which was 5 % of the API server's CPU under load).
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tenantry-local-{name}")])
    builder = _builder(subject, subject, key, start, end).add_extension(x509.BasicConstraints(True, 0), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False).add_extension(_key_usage(signs=True), critical=True)
    _write_key(folder, name, key)
    write_private(folder / f"{name}.crt", builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def write_leaf(folder: Path, name: str, leaf: LeafCertificate, start: dt.datetime, end: dt.datetime) -> None:
    """Write a certificate and its key.

    Args:
        folder: The folder of the new files and of the authority.
        name: The base name of the files.
        leaf: The certificate.
        start: When it begins.
        end: When it ends.
    """
    signer = x509.load_pem_x509_certificate((folder / f"{leaf.ca}.crt").read_bytes())
    signer_key = load_pem_private_key((folder / f"{leaf.ca}.key").read_bytes(), None)
    if not isinstance(signer_key, _KEYS):
        raise LocalError(f'"{folder / leaf.ca}.key" is no key that signs: `tenantry down --purge`')
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, leaf.group)] if leaf.group else []
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, leaf.user))
    purposes = [
        *([ExtendedKeyUsageOID.CLIENT_AUTH] if leaf.use is not CertificateUse.SERVER else []),
        *([ExtendedKeyUsageOID.SERVER_AUTH] if leaf.use is not CertificateUse.CLIENT else []),
    ]
    builder = _builder(x509.Name(subject), signer.subject, key, start, end)
    builder = (
        builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()),
            critical=False,
        )
    )
    if leaf.names:
        alternatives = x509.SubjectAlternativeName([_general_name(each) for each in leaf.names])
        builder = builder.add_extension(alternatives, critical=False)
    _write_key(folder, name, key)
    write_private(folder / f"{name}.crt", builder.sign(signer_key, hashes.SHA256()).public_bytes(Encoding.PEM))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: _Key,
    start: dt.datetime,
    end: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _SLACK)
        .not_valid_after(end)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(folder: Path, name: str, key: _Key) -> None:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    write_private(folder / f"{name}.key", pem)

"""Keys with requests for their certificates, the approval of requests, and what became of them.

Whether a request is approved is decided elsewhere: `contributions/signing.py` decides about contributed nodes, and
others approve only what they have requested themselves.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping, Sequence

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from tenantry.api.errors import Conflict, NotFound, TenantryError
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import ObjectMeta
from tenantry.api.signing import CLIENT, SERVING, SigningRequest, SigningSpec, SigningStatus
from tenantry.engine import request
from tenantry.engine.plan import DirectWrite, Plan

_NAME_LENGTH = 63

_UNREADABLE = (
    ValueError,
    TypeError,
    OverflowError,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
    UnsupportedAlgorithm,
)
"""What `cryptography` raises for a request that it cannot read: most of it is parsed only when it is asked for."""

MOST_REQUEST = 16 * 1024
"""The largest request that is read, in Base64: a kubelet's has less than a tenth."""

_MOST_CONDITIONS, _MOST_TEXT = 4, 2048
_SIGNERS = frozenset({CLIENT, SERVING})
_decode = msgspec.json.Decoder(SigningRequest).decode


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate to request.

    Args:
        signer: The signer.
        user: The common name.
        group: The organization; "" for none.
        addresses: IP addresses of a server.
        usages: As in `spec.usages`.
        seconds: The lifetime; the signer may grant less.
        labels: More labels of the request.
    """

    signer: str
    user: str
    group: str = ""
    addresses: tuple[str, ...] = ()
    usages: tuple[str, ...]
    seconds: int
    labels: Mapping[str, str] = {}


class NewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is not created yet, and the key that belongs to it, as PEM."""

    object: SigningRequest
    key: bytes


def new(wish: Wish) -> NewRequest:
    """Generate a key and a request for its certificate, under a random name.

    Raises:
        ValueError: An address is none, or the user does not fit into a common name.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, wish.group)] if wish.group else []
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, wish.user))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if wish.addresses:
        names = [x509.IPAddress(ipaddress.ip_address(each)) for each in wish.addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    asked = SigningRequest(
        metadata=ObjectMeta(
            name=f"tenantry-{x509.random_serial_number():x}"[:_NAME_LENGTH],
            labels={MANAGED_BY: MANAGER, **wish.labels},
        ),
        spec=SigningSpec(
            request=base64.b64encode(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)).decode(),
            signer_name=wish.signer,
            usages=wish.usages,
            expiration_seconds=wish.seconds,
        ),
    )
    return NewRequest(object=asked, key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


class RequestedCertificate(msgspec.Struct, frozen=True):
    """The subject and the names of an X.509 request.

    Args:
        name: The common name.
        groups: The organizations.
        hosts: The subject alternative names of any type.
    """

    name: str
    groups: frozenset[str]
    hosts: frozenset[str]


def requested(text: str) -> RequestedCertificate | None:
    """Return what a request asks for; None if it cannot be read, is not signed by its key, or is ambiguous.

    Args:
        text: `spec.request`: PEM, in Base64.
    """
    try:
        return _read(x509.load_pem_x509_csr(base64.b64decode(text)))
    except _UNREADABLE:
        return None


def _read(found: x509.CertificateSigningRequest) -> RequestedCertificate | None:
    if not found.is_signature_valid:
        return None
    names = [str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = (str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    # A request with several common names is ambiguous: approver and signer could read different ones.
    if len(names) != 1:
        return None
    try:
        hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return RequestedCertificate(names[0], frozenset(groups), frozenset())
    return RequestedCertificate(names[0], frozenset(groups), frozenset(str(each.value) for each in hosts))


def bounded(data: msgspec.Raw) -> SigningRequest:
    """Return a request as controllers of nodes cache it, of which users of the cluster create as many as they like.

    What nodes request is kept until it is decided; of the rest, only what identifies it. Certificates never are. A
    request that is larger than any that a kubelet makes reads as one that cannot be read.
    """
    found = _decode(data)
    meta, conditions = found.metadata, found.status.conditions[:_MOST_CONDITIONS]
    own = ObjectMeta(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        creation_timestamp=meta.creation_timestamp,
    )
    if found.spec.signer_name not in _SIGNERS:
        return SigningRequest(metadata=own)
    kept = [replace(each, reason=each.reason[:_MOST_TEXT], message=each.message[:_MOST_TEXT]) for each in conditions]
    is_kept = not conditions and len(found.spec.request) <= MOST_REQUEST
    spec = found.spec if is_kept else replace(found.spec, request="")
    return SigningRequest(metadata=own, spec=spec, status=SigningStatus(conditions=tuple(kept)))


def approval(found: SigningRequest, reason: str, message: str) -> Plan:
    """Return the plan that approves a request; another decision, made in between, stands."""
    return Plan(writes=(decision(found, "Approved", reason, message),))


def decision(found: SigningRequest, type_: str, reason: str, message: str) -> DirectWrite:
    """Return the write that approves or denies a request; another decision, made in between, stands.

    Args:
        found: The request.
        type_: Approved or Denied.
        reason: Of the condition.
        message: Likewise.
    """
    condition = {"type": type_, "status": "True", "reason": reason, "message": message}
    name = found.metadata.name
    # The resourceVersion makes an approval and a denial at the same time exclude each other.
    body = {
        "metadata": {"resourceVersion": found.metadata.resource_version},
        "status": {"conditions": [condition]},
    }
    asked = request.patch(SigningRequest.resource, "", name, body, subresource="approval")
    return DirectWrite(request=asked, ignores=(Conflict, NotFound))


def certificate(found: SigningRequest | None, name: str) -> bytes | None:
    """Return the certificate of a request, as PEM; None until it is signed.

    Args:
        found: The request; None if it does not exist.
        name: Its name.

    Raises:
        TenantryError: The request was denied, failed or was deleted.
    """
    if found is None:
        raise TenantryError(f"the certificate request {name!r} was deleted before it was signed; try again")
    bad: Sequence[str] = ("Denied", "Failed")
    for each in found.status.conditions:
        if each.type in bad:
            raise TenantryError(f"the certificate request {name!r} is {each.type}: {each.reason}: {each.message}")
    return base64.b64decode(found.status.certificate) if found.status.certificate else None

"""Client certificates from the cluster's own signer, with the caller's own rights: how a person tries being a tenant.

    key, request ─► CertificateSigningRequest ─► approve ─► watch until signed ─► certificate; the object is deleted

Certificates cannot be revoked, so they are short, name a user and no group, and never a name that means something to
Kubernetes or to Tenantry.

Source: Kubernetes, "Certificates and Certificate Signing Requests".
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from contextlib import aclosing, suppress
from typing import ClassVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tenantry.api.errors import ApiError, InputError, RetryableError, TenantryError
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import ConditionStatus, KubernetesObject, Model, ObjectMeta, Resource
from tenantry.cli import durations
from tenantry.cli.following import follow, only
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

SIGNER = "kubernetes.io/kube-apiserver-client"
SHORTEST_SECONDS = 600
"""The API server refuses less."""

LONGEST_SECONDS = 7 * 86_400
SIGN_SECONDS = 30.0
REFUSED_PREFIXES = ("system:", "tenantry:")
LONGEST_USER = 64
"""The bound of a common name in X.509 (RFC 5280, ub-common-name)."""


class _Condition(Model, frozen=True, kw_only=True):
    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""


class _Spec(Model, frozen=True, kw_only=True):
    request: str
    signer_name: str
    usages: tuple[str, ...]
    expiration_seconds: int = 0


class _Status(Model, frozen=True, kw_only=True):
    certificate: str = ""
    conditions: tuple[_Condition, ...] = ()


class CertificateSigningRequest(KubernetesObject, frozen=True, kw_only=True):
    """A request to a signer of the cluster; request and certificate are base64 of PEM."""

    resource: ClassVar[Resource] = Resource(
        "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
    )

    spec: _Spec
    status: _Status = _Status()


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate and its key, PEM.

    Args:
        user: Whom it names.
        certificate: Signed by the cluster.
        key: Never left this process.
        expires: When it ends.
    """

    user: str
    certificate: bytes
    key: bytes
    expires: dt.datetime


def check_request(user: str, seconds: int) -> None:
    """Refuse names and lifetimes that no certificate should have.

    Raises:
        InputError: Says which and why.
    """
    if not user:
        raise InputError("--user must not be empty")
    prefix = next((prefix for prefix in REFUSED_PREFIXES if user.startswith(prefix)), None)
    if prefix is not None:
        raise InputError(f"--user {user!r} must not begin with {prefix!r}: such names have rights of their own")
    if len(user) > LONGEST_USER:
        raise InputError(f"--user {user!r} must be at most {LONGEST_USER} characters long, as a certificate's name is")
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise InputError(
            f"--expires {durations.text(seconds)} must be between {durations.text(SHORTEST_SECONDS)} and"
            f" {durations.text(LONGEST_SECONDS)}: a certificate cannot be taken back"
        )


class CertificateScope(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a certificate.

    Args:
        told: As in "tenant 'acme'".
        tenant: Whose it is.
        users: The owners there that are Users.
        is_suspended: No user has access now.
    """

    told: str
    tenant: str
    users: tuple[str, ...]
    is_suspended: bool


def default_user(place: CertificateScope) -> str:
    """Return the first owner that is a User.

    Raises:
        InputError: There is none.
    """
    if not place.users:
        raise InputError(f"{place.told} has no owner that is a User; say whom to name with --user")
    return place.users[0]


def warnings(place: CertificateScope, user: str) -> list[str]:
    """Return what a person should know who gets a certificate for this user."""
    found: list[str] = []
    if user not in place.users:
        found.append(
            f"{user!r} is not among the owners of {place.told}: unless a RoleBinding there names this user, the"
            " certificate gives no access (certificates carry no groups)"
        )
    if place.is_suspended:
        found.append(f"{place.told} is suspended: no user has access until it is resumed")
    return found


async def issue(client: Client, tenant: str, user: str, *, seconds: int) -> Issued:
    """Have the cluster sign a certificate for a user.

    Args:
        client: Whose rights are used to ask and to approve.
        tenant: For the request's label.
        user: The common name.
        seconds: How long it is good for; the signer may give less.

    Raises:
        Forbidden: The caller may not create or approve requests for this signer.
        RetryableError: The signer did not sign in time.
        TenantryError: The request was denied, or the signer failed.
    """
    # Another name than ours must not become another subject: the common name is all there is.
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    name = f"tenantry-{x509.random_serial_number():x}"[:63]
    asked = CertificateSigningRequest(
        metadata=ObjectMeta(name=name, labels={MANAGED_BY: MANAGER, "tenantry.dev/tenant": tenant}),
        spec=_Spec(
            request=base64.b64encode(request.public_bytes(Encoding.PEM)).decode(),
            signer_name=SIGNER,
            usages=("client auth",),
            expiration_seconds=seconds,
        ),
    )
    await client.create(asked)
    try:
        await _approve(client, name)
        pem = await _signed(client, name)
    finally:
        # Kubernetes deletes it after an hour, also if the caller may not delete it.
        with suppress(ApiError):
            await client.delete(asked.resource, "", name)
    return Issued(
        user=user,
        certificate=pem,
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        expires=x509.load_pem_x509_certificate(pem).not_valid_after_utc,
    )


async def _approve(client: Client, name: str) -> None:
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "TenantryKubeconfig",
        "message": "asked for and approved by the same person with `tenantry kubeconfig`",
    }
    patch = {"status": {"conditions": [condition]}}
    await client.merge_patch(CertificateSigningRequest.resource, "", name, patch, subresource="approval")


async def _signed(client: Client, name: str) -> bytes:
    changes = follow(client, CertificateSigningRequest, selectors=only((name,)))
    try:
        async with asyncio.timeout(SIGN_SECONDS), aclosing(changes):
            async for found in changes:
                certificate = _certificate(name, found.get(name))
                if certificate:
                    return certificate
    except TimeoutError as error:
        raise RetryableError(
            f"no controller signed the certificate request in {SIGN_SECONDS:.0f} s; does this cluster's controller"
            f" manager run the signer {SIGNER}?"
        ) from error
    raise AssertionError("following does not end by itself")


def _certificate(name: str, request: CertificateSigningRequest | None) -> bytes | None:
    """Return the certificate of a request, None until it is signed.

    Raises:
        TenantryError: It will not be signed.
    """
    if request is None:
        raise TenantryError(f"the certificate request {name!r} was deleted before it was signed; try again")
    for condition in request.status.conditions:
        if condition.type in {"Denied", "Failed"}:
            raise TenantryError(
                f"the certificate request {name!r} is {condition.type}: {condition.reason}: {condition.message}"
            )
    return base64.b64decode(request.status.certificate) if request.status.certificate else None


def kubeconfig_of(connection: Connection, namespace: str, issued: Issued) -> dict[str, object]:
    """Return a kubeconfig that is this user, by certificate, in a tenant's namespace."""
    user = {
        "client-certificate-data": base64.b64encode(issued.certificate).decode(),
        "client-key-data": base64.b64encode(issued.key).decode(),
    }
    return kubeconfig_with(connection, namespace, issued.user, user)


def kubeconfig_with(connection: Connection, namespace: str, name: str, user: object) -> dict[str, object]:
    """Return a kubeconfig for one user of one namespace.

    Args:
        connection: Where the cluster is and how it is trusted; nothing of its credentials is used.
        namespace: The namespace.
        name: What the file calls the user.
        user: The user's credentials, as a kubeconfig has them.
    """
    cluster: dict[str, object] = {"server": connection.server}
    if connection.ca:
        cluster["certificate-authority-data"] = base64.b64encode(connection.ca).decode()
    if connection.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if connection.tls_server_name:
        cluster["tls-server-name"] = connection.tls_server_name
    if connection.proxy_url:
        cluster["proxy-url"] = connection.proxy_url
    context = {"cluster": "cluster", "user": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": namespace, "context": context}],
        "current-context": namespace,
    }

"""The certificates of a virtual node at home: as a client of the API server, and as the server of its kubelet port.

    Secret ─► both, while they are good                                a restart requests nothing
    client    the operator requests and approves ─► signed ─► Secret
    serving   the node requests, with its client certificate, and the operator approves ─► signed ─► Secret

The operator approves only a request that it has made itself a moment ago, recognized by its content. NodeRestriction
admits requests of a node for its own name only. A certificate is renewed at two thirds of its life, and kept until its
end if the renewal fails.

A request that is not signed in time stays, and the next try waits for the same one: tries must not pile up requests.

Sources: Kubernetes, "Certificates and Certificate Signing Requests" (Kubernetes signers), "Using Node Authorization";
kubernetes/pkg/apis/certificates/helpers.go.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ipaddress
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from tenantry.api.errors import ApiError, InputError, NotFound, RetryableError, TenantryError, Unauthorized
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import KubernetesObject, ObjectMeta, Resource
from tenantry.api.signing import CLIENT, NODE, NODES_GROUP, SERVING, SigningRequest
from tenantry.controllers import signingrequests
from tenantry.controllers.signingrequests import NewRequest, Wish
from tenantry.engine.clock import Clock
from tenantry.engine.reader import Reader
from tenantry.engine.writer import Writer
from tenantry.hosting.certificates import IssuedCertificate, renewal

SIGN_SECONDS = 20.0
POLL_SECONDS = 0.5
LIFE_SECONDS = 86_400
"""The lifetime that is requested: Kubernetes revokes no certificate."""

RETRY_SECONDS = 300.0
"""How long a certificate that could not be renewed is used before the next try."""

LOOK_SECONDS = 600.0
"""How often the time of the next renewal is compared with the clock, which may have been set since."""

LEAST_SECONDS = 60.0
"""The shortest time between two looks, after a certificate that could not be renewed."""

LONGEST_NAME = 64 - len(NODE)
"""The longest name of a node: RFC 5280 bounds a common name (ub-common-name)."""

log = logging.getLogger(__name__)


class NodeCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate and its key, PEM.

    Args:
        certificate: The certificate.
        key: Its key.
        expires: When it ends.
        renewed: When it is renewed.
        addresses: The IP addresses of a server, as `ipaddress` writes them.
    """

    certificate: bytes
    key: bytes
    expires: dt.datetime
    renewed: dt.datetime
    addresses: frozenset[str] = frozenset()


class NodePair(msgspec.Struct, frozen=True, kw_only=True):
    """Both certificates of a node."""

    client: NodeCertificate
    serving: NodeCertificate

    @property
    def renewed(self) -> dt.datetime:
        """Return when the first of them is renewed."""
        return min(self.client.renewed, self.serving.renewed)


class NodeSecret(KubernetesObject, frozen=True, kw_only=True):
    """The Secret of a node; values are base64."""

    resource: ClassVar[Resource] = Resource("", "v1", "secrets", "Secret", owned=())

    type: str
    data: dict[str, str] = {}


class NodeAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The access to the cluster that has the node.

    Args:
        reader: Reads with the operator's rights.
        writer: Writes with the operator's rights: it creates and approves requests, and keeps the Secret.
        as_node: Opens a writer with a client certificate.
        clock: The clock.
    """

    reader: Reader
    writer: Writer
    as_node: Callable[[NodeCertificate], AbstractAsyncContextManager[Writer]]
    clock: Clock


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two certificates: its signer, its usages, and its keys in the Secret."""

    signer: str
    usage: str
    crt: str
    key: str


# The type kubernetes.io/tls requires the keys of the first.
_CLIENT = _Kind(signer=CLIENT, usage="client auth", crt="tls.crt", key="tls.key")
_SERVING = _Kind(signer=SERVING, usage="server auth", crt="serving.crt", key="serving.key")


class NodeCertificates:
    """The certificates of one node. The caller makes sure that no other node has the name.

    Args:
        node: The name of the node.
        secret: Namespace and name of the Secret that keeps them.
        home: The access to the cluster.
        sign_seconds: The time for a signature.
        poll_seconds: The time between two looks at a request.
        least_seconds: The shortest time between two looks whether a certificate is due.

    Raises:
        InputError: The name of the node is too long.
    """

    def __init__(
        self,
        node: str,
        secret: tuple[str, str],
        *,
        home: NodeAccess,
        sign_seconds: float = SIGN_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        least_seconds: float = LEAST_SECONDS,
    ) -> None:
        if len(node) > LONGEST_NAME:
            raise InputError(
                f"the name of the node {node!r} must be at most {LONGEST_NAME} characters long: after {NODE!r}, it is"
                " the common name of a certificate"
            )
        self._node = node
        self._secret = secret
        self._home = home
        self._sign_seconds = sign_seconds
        self._poll_seconds = poll_seconds
        self._least_seconds = least_seconds
        self._kept: dict[str, NodeCertificate] | None = None
        self._asked: dict[str, tuple[NewRequest, frozenset[str]]] = {}
        self._retry_at: dict[str, float] = {}

    async def client(self) -> NodeCertificate:
        """Return the client certificate, a new one if it is due.

        Raises:
            RetryableError: The cluster does not sign it in time.
            TenantryError: The request was denied, failed or was deleted.
            ApiError: The API server refuses, or does not answer.
        """
        return await self._current(_CLIENT, frozenset(), self._home.writer)

    async def serving(self, addresses: Iterable[str]) -> NodeCertificate:
        """Return the serving certificate for exactly these IP addresses, a new one if it is due.

        Raises:
            ValueError: An address is none.
            RetryableError: As `client`, as the others.
        """
        names = frozenset(str(ipaddress.ip_address(each)) for each in addresses)
        good = await self._good(_SERVING, names)
        if good is not None:
            return good
        try:
            async with self._home.as_node(await self.client()) as writer:
                return await self._current(_SERVING, names, writer)
        except Unauthorized:
            # The authority of clients may have been replaced.
            await self.forget()
            raise

    async def pair(self, addresses: Collection[str]) -> NodePair:
        """Return both certificates, new ones if they are due; arguments and errors as `client` and `serving`."""
        return NodePair(client=await self.client(), serving=await self.serving(addresses))

    async def renewals(self, known: NodePair, addresses: Collection[str]) -> AsyncGenerator[NodePair]:
        """Yield both certificates whenever one of them was renewed.

        Args:
            known: What is used now.
            addresses: As of `serving`.

        Raises:
            TenantryError: As `client` and `serving`, if one that is used has ended.
        """
        while True:
            left = (known.renewed - self._home.clock.now()).total_seconds()
            await asyncio.sleep(min(max(left, self._least_seconds), LOOK_SECONDS))
            found = await self.pair(addresses)
            if found != known:
                known = found
                yield found

    async def forget(self) -> None:
        """Do not use the client certificate any more: the API server does not know it."""
        (await self._certificates()).pop(_CLIENT.signer, None)

    # -- what is there ----------------------------------------------------------------------------

    async def _good(self, kind: _Kind, addresses: frozenset[str]) -> NodeCertificate | None:
        """Return a certificate that is not due."""
        found = (await self._certificates()).get(kind.signer)
        if found is None or found.addresses != addresses:
            return None
        now = self._home.clock.now()
        waits = self._home.clock.monotonic() < self._retry_at.get(kind.signer, 0.0)
        return found if now < (found.expires if waits else found.renewed) else None

    async def _certificates(self) -> dict[str, NodeCertificate]:
        """Return the certificates by their signers; those of the Secret at first."""
        if self._kept is None:
            namespace, name = self._secret
            try:
                data = (await self._home.reader.get(NodeSecret, name, namespace)).data
            except NotFound:
                data = {}
            read = {kind.signer: _kept(data, kind, NODE + self._node) for kind in (_CLIENT, _SERVING)}
            self._kept = {signer: found for signer, found in read.items() if found is not None}
        return self._kept

    async def _keep(self, kind: _Kind, found: NodeCertificate) -> None:
        namespace, name = self._secret
        kept = await self._certificates()
        kept[kind.signer] = found
        writer = self._home.writer
        try:
            await writer.patch(NodeSecret.resource, namespace, name, {"data": _data(kept)})
        except NotFound:
            meta = ObjectMeta(name=name, namespace=namespace, labels={MANAGED_BY: MANAGER})
            await writer.create(NodeSecret(metadata=meta, type="kubernetes.io/tls", data=_data(kept)))

    # -- what is requested ------------------------------------------------------------------------

    async def _current(self, kind: _Kind, addresses: frozenset[str], requester: Writer) -> NodeCertificate:
        good = await self._good(kind, addresses)
        if good is not None:
            return good
        try:
            found = await self._issued(kind, addresses, requester)
        except TenantryError as error:
            old = (await self._certificates()).get(kind.signer)
            if isinstance(error, Unauthorized) or old is None or old.addresses != addresses:
                raise
            if self._home.clock.now() >= old.expires:
                raise
            log.warning("certificate not renewed", extra={"node": self._node, "error": str(error)})
            self._retry_at[kind.signer] = self._home.clock.monotonic() + RETRY_SECONDS
            return old
        await self._keep(kind, found)
        return found

    async def _issued(self, kind: _Kind, addresses: frozenset[str], requester: Writer) -> NodeCertificate:
        asked = await self._ask(kind, addresses, requester)
        try:
            certificate = await self._signed(asked)
        except TimeoutError:
            raise RetryableError(
                f"the cluster does not sign {kind.signer}: the certificate request {asked.object.metadata.name!r} of"
                f" the node {self._node!r} has no certificate after {self._sign_seconds:.0f} s; does its controller"
                " manager run this signer? If the cluster has none, `tenantry peer allow-node` does without"
            ) from None
        except ApiError:
            raise
        except TenantryError:
            # Denied, failed or deleted: this request will have no certificate.
            self._asked.pop(kind.signer, None)
            raise
        self._asked.pop(kind.signer, None)
        found = read(certificate, asked.key)
        if found.addresses != addresses:
            raise TenantryError(f"the certificate of {kind.signer} for the node {self._node!r} has other addresses")
        return found

    async def _ask(self, kind: _Kind, addresses: frozenset[str], requester: Writer) -> NewRequest:
        """Return the request that waits for its certificate, or create one."""
        asked, its_addresses = self._asked.get(kind.signer, (None, None))
        if asked is not None and its_addresses == addresses:
            return asked
        wish = Wish(
            signer=kind.signer,
            user=NODE + self._node,
            group=NODES_GROUP,
            addresses=tuple(sorted(addresses)),
            usages=("digital signature", kind.usage),
            seconds=LIFE_SECONDS,
        )
        made = signingrequests.new(wish)
        await requester.create(made.object)
        self._asked[kind.signer] = made, addresses
        return made

    async def _signed(self, asked: NewRequest) -> bytes:
        """Approve a request, and wait for its certificate."""
        name, wanted = asked.object.metadata.name, asked.object.spec
        async with asyncio.timeout(self._sign_seconds):
            while True:
                found = await self._find(name)
                certificate = signingrequests.certificate(found, name)
                if certificate is not None:
                    return certificate
                if found is not None and not found.status.conditions:
                    spec = found.spec
                    if (spec.request, spec.signer_name, spec.usages) != (
                        wanted.request,
                        wanted.signer_name,
                        wanted.usages,
                    ):
                        raise TenantryError(f"the certificate request {name!r} was replaced; try again")
                    message = f"requested for the node {self._node!r}, which stands for another cluster"
                    outcome = await self._home.writer.apply(signingrequests.approval(found, "Peering", message))
                    if outcome.error is not None:
                        raise outcome.error
                await asyncio.sleep(self._poll_seconds)

    async def _find(self, name: str) -> SigningRequest | None:
        try:
            return await self._home.reader.get(SigningRequest, name)
        except NotFound:
            return None


def read(certificate: bytes, key: bytes) -> NodeCertificate:
    """Return a certificate with what it says.

    Args:
        certificate: PEM.
        key: Its key, PEM.

    Raises:
        ValueError: It is no certificate.
    """
    found = x509.load_pem_x509_certificate(certificate)
    issued = IssuedCertificate(leaf=None, not_before=found.not_valid_before_utc, not_after=found.not_valid_after_utc)
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = frozenset(str(each) for each in names.get_values_for_type(x509.IPAddress))
    except x509.ExtensionNotFound:
        addresses = frozenset[str]()
    return NodeCertificate(
        certificate=certificate,
        key=key,
        expires=found.not_valid_after_utc,
        renewed=renewal(issued),
        addresses=addresses,
    )


def _data(kept: Mapping[str, NodeCertificate]) -> dict[str, str]:
    """Return the data of the Secret that keeps certificates."""
    pairs = [(kind, kept[kind.signer]) for kind in (_CLIENT, _SERVING) if kind.signer in kept]
    values = {key: value for kind, each in pairs for key, value in ((kind.crt, each.certificate), (kind.key, each.key))}
    return {key: base64.b64encode(value).decode() for key, value in values.items()}


def _kept(data: Mapping[str, str], kind: _Kind, user: str) -> NodeCertificate | None:
    """Return a certificate of a Secret; None if there is none for this user, or the key is of another one."""
    try:
        certificate, key = (base64.b64decode(data[each], validate=True) for each in (kind.crt, kind.key))
        found = x509.load_pem_x509_certificate(certificate)
        if load_pem_private_key(key, None).public_key() != found.public_key():
            return None
        names = [each.value for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        return read(certificate, key) if names == [user] else None
    except (KeyError, ValueError, TypeError):
        # `binascii.Error` is a ValueError; an encrypted key is a TypeError.
        return None

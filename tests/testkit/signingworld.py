"""A World that signs certificates, as kube-controller-manager does once a request is approved."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tenantry.api.errors import Unauthorized
from tenantry.api.model import Json, KubernetesObject, Resource
from tenantry.api.signing import NODE, SERVING, SigningRequest
from tenantry.engine.clock import Clock
from tenantry.engine.request import ApiRequest
from tenantry.kube.client import ATTEMPTS
from tenantry.kube.transport import JSON
from testkit.model import World
from testkit.worldclient import WorldClient

KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "signer")])


class SigningWorld(World):
    """A World whose controller manager signs.

    Args:
        clock: For the lifetimes.

    Attributes:
        user: The user who sends the current request.
        unsigned: Signers that do not sign.
        denied: Whether another client denies each request at once.
        unknown: Users whose certificates the API server does not know.
        writes: The user, the method, the kind and the subresource of each write.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.user = "tenantry:operator"
        self.unsigned: set[str] = set()
        self.denied = False
        self.unknown: set[str] = set()
        self.writes: list[str] = []

    def answer(self, asked: ApiRequest) -> bytes:
        """Answer a request of `user`; see `World.answer`."""
        if self.user in self.unknown:
            raise Unauthorized("Unauthorized", status=401)
        if asked.verb != "GET":
            kind = "/".join(part for part in (asked.resource.plural, asked.subresource) if part)
            self.writes.append(f"{self.user}: {asked.verb} {kind}")
        return super().answer(asked)

    def put_in(self, resource: Resource, value: Json) -> Json:
        """Create an object; a request for a certificate records its user."""
        if resource == SigningRequest.resource:
            spec: Json = value["spec"]
            # NodeRestriction lets a node ask for its own name; for a serving certificate, only the node itself asks.
            if spec["signerName"] == SERVING:
                assert self.user.startswith(NODE), "a serving certificate is requested by its node"
            value = {**value, "spec": {**spec, "username": self.user}}
            if self.denied:
                value["status"] = {"conditions": [{"type": "Denied", "status": "True", "reason": "No", "message": "n"}]}
        return super().put_in(resource, value)

    def patch(self, resource: Resource, key: str, patch: Json) -> Json:
        """Patch an object; an approved request is signed."""
        stored = super().patch(resource, key, patch)
        if resource == SigningRequest.resource and "certificate" not in stored.get("status", {}):
            self.sign(key)
        return stored

    def sign(self, key: str) -> None:
        """Sign a request, if it is approved."""
        found = self.get(SigningRequest.resource, key)
        approved = [each["type"] for each in found.get("status", {}).get("conditions", ())] == ["Approved"]
        if not approved or found["spec"]["signerName"] in self.unsigned:
            return
        signed = base64.b64encode(self._signed(found["spec"])).decode()
        super().patch(SigningRequest.resource, key, {"status": {"certificate": signed}})

    def _signed(self, spec: Json) -> bytes:
        asked = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        now = self._clock.now()
        builder = (
            x509.CertificateBuilder()
            .subject_name(asked.subject)
            .issuer_name(ISSUER)
            .public_key(asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + dt.timedelta(seconds=spec["expirationSeconds"]))
        )
        for each in asked.extensions:
            builder = builder.add_extension(each.value, critical=False)
        return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


class UserClient(WorldClient):
    """A client of a user.

    Args:
        world: It has the objects.
        user: The user.
    """

    def __init__(self, world: SigningWorld, user: str) -> None:
        super().__init__(world, lambda: "none")
        self._signing_world = world
        self._user = user

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        attempts: int = ATTEMPTS,
        seconds: float | None = None,
    ) -> bytes:
        """Answer a request; see `Client.request`."""
        self._signing_world.user = self._user
        return await super().request(
            method, path, query=query, body=body, content_type=content_type, attempts=attempts, seconds=seconds
        )


def common_name(certificate: bytes) -> str:
    """Return the user that a certificate names."""
    (found,) = x509.load_pem_x509_certificate(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found.value)


def names(world: World, kind: type[KubernetesObject]) -> list[str]:
    """Return the names of the objects of a kind."""
    return sorted(each["metadata"]["name"] for each in world.list(kind.resource))

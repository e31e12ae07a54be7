"""What is in the audit log of a hosted API server, and that clients without credentials cannot empty it."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.kubernetes import RBAC_GROUP, Namespace
from tenantry.api.model import Resource
from tenantry.hosting.serveroptions import ServerOptions
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local import hostedfolders
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, until
from testkit.hosted import running

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
REQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
)
REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
RESERVED = ("system:kube-controller-manager", "system:apiserver", "tenantry:operator")


async def events(tenancy: LocalCluster, uid: str, of: Resource, name: str = "") -> list[Json]:
    """Return the events of the audit log as soon as it has one of a kind, and of a name."""

    async def found() -> list[Json] | None:
        files = await asyncio.to_thread(hostedfolders.audit_files, tenancy.paths, uid)
        # The last line may be incomplete.
        lines = "".join(file.read_text() for file in files).split("\n")[:-1]
        parsed: list[Json] = [msgspec.json.decode(line) for line in lines]
        return parsed if any(is_of(each, of, name) for each in parsed) else None

    return await until(found, f"the audit log has an event of {of.plural} {name}")


def is_of(event: Json, of: Resource, name: str = "") -> bool:
    """Return whether an event is of a kind, and of a name."""
    found = event.get("objectRef", {})
    return found.get("resource") == of.plural and name in ("", found.get("name"))


async def certified(client: Client, user: str) -> tuple[bytes, bytes]:
    """Return a certificate and the key of a user that an administrator has approved, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    name = user.replace(":", "-")
    spec = {
        "request": base64.b64encode(asked.public_bytes(Encoding.PEM)).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    made = await Api(client).create(REQUESTS, {"metadata": {"name": name}, "spec": spec})
    approved = {"type": "Approved", "status": "True", "reason": "ByTest"}
    body = msgspec.json.encode({**made, "status": {"conditions": [approved]}})
    await client.request("PUT", f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/approval", body=body)

    async def signed() -> str:
        found = await Api(client).get(REQUESTS, name)
        return found.get("status", {}).get("certificate", "")

    certificate = base64.b64decode(await until(signed, "the certificate is signed"))
    return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


async def has_made(forger: Api, named: Json) -> bool:
    """Create a Namespace; return whether the authorizer knows the binding that allows it."""
    try:
        await forger.create(Namespace.resource, named)
    except Forbidden:
        return False
    return True


async def test_acts_under_a_name_of_kubernetes_are_recorded(tenancy: LocalCluster, name: str) -> None:
    """VCP-82: administrators inside may have certificates for such names; the controllers themselves fill no log."""
    async with running(tenancy, name) as (place, plane, _):
        logging = await place.start(replace(plane, options=ServerOptions(audit_level="Metadata")))
        async with Client(logging.connection.detached()) as client:
            for user in RESERVED:
                certificate, key = await certified(client, user)
                role = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": RBAC_GROUP}
                subjects = [{"kind": "User", "name": user, "apiGroup": RBAC_GROUP}]
                label = {"metadata": {"name": user.replace(":", "-")}}
                await Api(client).create(BINDINGS, {**label, "subjects": subjects, "roleRef": role})
                async with Client(replace(logging.connection.detached(), certificate=certificate, key=key)) as forger:
                    await until(partial(has_made, Api(forger), label), f"{user} has its rights")
        found: list[Json] = []
        for user in RESERVED:
            made = user.replace(":", "-")
            found = await events(tenancy, plane.uid, Namespace.resource, made)
            assert {each["user"]["username"] for each in found if is_of(each, Namespace.resource, made)} == {user}
        # The server itself and Tenantry have the same names, in a group that no certificate gives.
        assert not [each for each in found if "system:masters" in each["user"].get("groups", ())]


async def refusal(connection: Connection, path: str, token: str = "") -> int:
    """Return the status code with which a client without a certificate is refused."""
    async with Client(replace(connection.detached(), certificate=None, key=None, token=token)) as client:
        try:
            await client.request("GET", path)
        except ApiError as error:
            return error.status
    return 0


async def test_clients_without_credentials_write_nothing_into_the_audit_log(tenancy: LocalCluster, name: str) -> None:
    """VCP-81: they could push all other events out of the files."""
    async with running(tenancy, name) as (place, plane, _):
        logging = await place.start(replace(plane, options=ServerOptions(audit_level="Metadata")))
        connection = logging.connection
        assert await refusal(connection, f"/anonymous?{'a' * 900_000}") == 414
        assert await refusal(connection, "/anonymous") == 403
        assert await refusal(connection, "/anonymous", token="x") == 401
        # It is refused before authentication.
        assert await refusal(connection, "/anonymous?timeout=x") == 400
        async with Client(connection.detached()) as client:
            certificate, key = await certified(client, "ada")
        async with Client(replace(connection.detached(), certificate=certificate, key=key)) as ada:
            await Api(ada).create(REVIEWS, {"metadata": {}})
        found = await events(tenancy, plane.uid, REVIEWS)
        assert not [each for each in found if "anonymous" in msgspec.json.encode(each).decode()]

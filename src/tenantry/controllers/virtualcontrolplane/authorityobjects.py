"""The Secrets with the authorities of a control plane that nodes join, as Cluster API names them: pure.

    namespace tenantry-hosted-<16 hex>, in which no tenant has a role
      NAME-ca     of the API server, and of nodes           NAME-users   of users, and of certificates requested inside
      NAME-proxy  of the API server as a client             NAME-sa      the key of tokens of ServiceAccounts
      NAME-etcd   of an etcd of its own

They are copies: the place of the process has the originals, and gets a copy back when it has lost these.

Source: Cluster API, "Certificate Management" (`cluster.x-k8s.io/secret`, the label, `tls.crt` and `tls.key`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, Resource
from tenantry.api.ownnamespaces import HOSTED_PREFIX
from tenantry.api.virtualcontrolplane import PREFIX, VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import desired
from tenantry.engine.observed import Observed
from tenantry.hosting import authorities
from tenantry.hosting.certificates import IssuedCertificate
from tenantry.mirror.shapes import part

TYPE = "cluster.x-k8s.io/secret"
CLUSTER = "cluster.x-k8s.io/cluster-name"
SUFFIXES = {
    "ca": "ca",
    "users-ca": "users",
    "front-proxy-ca": "proxy",
    authorities.TOKENS: "sa",
    authorities.ETCD: "etcd",
}
"""What the names of Secrets end with, by the names of authorities."""

UID = f"{PREFIX}/of-uid"
"""The label of the namespace: the uid of the VirtualControlPlane."""

_ISSUED = "hosting.tenantry.dev/issued"
"""The annotation with the record of an authority, as JSON."""

_HEX = 16
_FILES = {**authorities.KINDS, authorities.ETCD: (f"{authorities.ETCD}.crt", f"{authorities.ETCD}.key")}


def place(uid: str) -> str:
    """Return the name of the namespace with the authorities of a control plane."""
    return f"{HOSTED_PREFIX}{hashlib.sha256(uid.encode()).hexdigest()[:_HEX]}"


def namespace(found: VirtualControlPlane, of: Observed) -> tuple[Resource, Json]:
    """Return this namespace.

    Args:
        found: The VirtualControlPlane.
        of: Its namespace, with which the garbage collector deletes this one, also while the operator is stopped.
    """
    labels = {
        **desired.labels(found),
        UID: found.metadata.uid,
        **{f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")},
    }
    owner: Json = {"apiVersion": "v1", "kind": "Namespace", "name": of.name, "uid": of.uid}
    return Namespace.resource, {
        "metadata": {"name": place(found.metadata.uid), "labels": labels, "ownerReferences": [owner]}
    }


def secrets(found: VirtualControlPlane, files: Mapping[str, bytes]) -> tuple[tuple[Resource, Json], ...]:
    """Return the Secrets.

    Args:
        found: The VirtualControlPlane.
        files: As `AuthorityFiles.read` returns them.
    """
    issued = authorities.record(files)
    return tuple(
        (desired.SECRETS, _secret(found, name, files, issued.get(name)))
        for name, pair in _FILES.items()
        if all(each in files for each in pair)
    )


def _secret(
    found: VirtualControlPlane, name: str, files: Mapping[str, bytes], issued: IssuedCertificate | None
) -> Json:
    certificate, key = _FILES[name]
    notes = {_ISSUED: msgspec.json.encode(issued).decode()} if issued is not None else {}
    return {
        "metadata": {
            "name": secret_name(found.metadata.name, name),
            "namespace": place(found.metadata.uid),
            "labels": {**desired.labels(found), CLUSTER: found.metadata.name},
            "annotations": notes,
        },
        "type": TYPE,
        "data": {
            "tls.crt": base64.b64encode(files[certificate]).decode(),
            "tls.key": base64.b64encode(files[key]).decode(),
        },
    }


def secret_name(called: str, name: str) -> str:
    """Return the name of the Secret of an authority.

    Args:
        called: The name of the control plane.
        name: Of the authority, a key of `SUFFIXES`.
    """
    return f"{called}-{SUFFIXES[name]}"


def files_of(found: Iterable[tuple[str, Json]]) -> dict[str, bytes]:
    """Return the files of the authorities in Secrets, as `authorities.of` does; {} if one is missing or unreadable.

    Args:
        found: The Secrets, each with the name of its authority.
    """
    files: dict[str, bytes] = {}
    issued: dict[str, IssuedCertificate] = {}
    for name, secret in found:
        data, text = part(secret, "data"), part(secret["metadata"], "annotations").get(_ISSUED, "")
        try:
            issued[name] = msgspec.json.decode(text, type=IssuedCertificate)
            for file, key in zip(_FILES[name], ("tls.crt", "tls.key"), strict=True):
                files[file] = base64.b64decode(data[key], validate=True)
        except (KeyError, binascii.Error, msgspec.MsgspecError):
            return {}
    return authorities.of(files | {authorities.INDEX: msgspec.json.encode(issued)})

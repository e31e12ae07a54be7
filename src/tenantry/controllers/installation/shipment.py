"""What a version of Tenantry ships, and whether an installation is one that it may repair: pure.

    version of the installation < own, or the same build ─► repair
    another build of the same version, or a newer one    ─► leave everything as it is
    another build, by Helm                               ─► leave everything as it is: a rollback is one, too

During a rolling upgrade, the operator of the older version still runs: it must not undo the newer installation.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from tenantry.api.marks import BUILD, INSTALLED_VERSION, MANAGER
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.versionorder import is_later
from tenantry.controllers.installation.release import PART_OF, release_of

SELECTED = f"{PART_OF}={MANAGER},{INSTALLED_VERSION}"
"""Selects the installed objects, and none that the operator makes."""

_canonical = msgspec.json.Encoder(order="sorted")
_json = msgspec.json.Decoder(Json)


class ShippedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is installed.

    Args:
        resource: Its kind; caches of it hold only installed objects.
        namespace: "" for a cluster-scoped object.
        name: Of the object.
        body: As JSON, with the defaults of the API server: a policy as Python objects takes ten times as much memory.
    """

    resource: Resource
    namespace: str
    name: str
    body: bytes

    @property
    def key(self) -> str:
        """Return the object's key in a cache."""
        return object_key(self.namespace, self.name)

    @property
    def reference(self) -> str:
        """Return the object's kind and key, for messages."""
        return f"{self.resource.kind} {self.key!r}"

    def value(self) -> Json:
        """Return the object."""
        return _json.decode(self.body)


class Shipment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a version that the operator repairs.

    Args:
        version: As in `tenantry version`.
        build: The digest of all shipped objects.
        switch: The name of the ClusterRoleBinding without which the operator repairs nothing.
        objects: The objects, that binding included.
    """

    version: str
    build: str
    switch: str
    objects: tuple[ShippedObject, ...]


def build_of(objects: object) -> str:
    """Return the digest that names a build."""
    return blake2b(_canonical.encode(objects), digest_size=8).hexdigest()


def foreign(shipment: Shipment, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return which other installation is there, for messages; "" if it is one that this version may repair.

    Args:
        shipment: What this version ships.
        labels: Those of Tenantry's namespace, which an installation writes first.
        annotations: Likewise.
    """
    version, build = labels.get(INSTALLED_VERSION, ""), annotations.get(BUILD, shipment.build)
    if is_later(version, shipment.version):
        return f"version {version} is installed, and this operator has version {shipment.version}"
    if version == shipment.version and build != shipment.build:
        return f"build {build} of version {version} is installed, and this operator has build {shipment.build}"
    release = release_of(labels, annotations)
    if release is not None and build != shipment.build:
        return f"{release} has build {build} of version {version}, and this operator has build {shipment.build}"
    return ""

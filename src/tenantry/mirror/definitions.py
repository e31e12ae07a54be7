"""Definitions of optional kinds, which the lower side has and the upper side gets. Pure.

The upper one has the one version that is mirrored, and no conversion: what users store inside is never sent to a
webhook of the lower side.

Source: Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions".
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from tenantry.api.model import Json, Resource
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part

MARK = "lower"
"""The mark of a definition that the mirror has made: a label."""

_APPROVED = "api-approved.kubernetes.io"
"""The annotation that Kubernetes demands of kinds in groups of its own."""

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


class LowerDefinition(msgspec.Struct, frozen=True, gc=False):
    """A CustomResourceDefinition of the lower side.

    Args:
        key: `plural.group`.
        version: The resourceVersion.
    """

    key: str
    version: int


class UpperDefinition(msgspec.Struct, frozen=True, gc=False):
    """A CustomResourceDefinition that the mirror has made.

    Args:
        key: `plural.group`.
        version: The resourceVersion.
        uid: Its uid.
        generation: Changes with its spec.
        digest: Of its spec.
        resource: The kind.
    """

    key: str
    version: int
    uid: str
    generation: int
    digest: str
    resource: Resource


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0


class _Definition(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_definition = msgspec.json.Decoder(_Definition)


def lower(data: msgspec.Raw) -> LowerDefinition:
    """Return a definition of the lower side as it is cached: some have a megabyte, and most are not mirrored."""
    meta = _definition.decode(data).metadata
    return LowerDefinition(meta.name, int(meta.resource_version))


def upper(data: msgspec.Raw) -> UpperDefinition:
    """Return a definition of the upper side as it is cached."""
    found = _definition.decode(data)
    meta = found.metadata
    spec = _json.decode(found.spec)
    names, versions = part(spec, "names"), [str(each.get("name")) for each in items(spec, "versions")]
    resource = Resource(
        str(spec.get("group")), versions[0] if versions else "", str(names.get("plural")), str(names.get("kind"))
    )
    return UpperDefinition(meta.name, int(meta.resource_version), meta.uid, meta.generation, digest_of(spec), resource)


def digest_of(spec: Json) -> str:
    """Return a digest of a spec."""
    return sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()


def wanted(found: Json, resource: Resource, profile: Profile) -> Json | None:
    """Return the upper definition of a kind; None if the lower side does not serve the version that is mirrored.

    Args:
        found: The lower one.
        resource: The kind.
        profile: The configuration.
    """
    spec = part(found, "spec")
    version = next((each for each in items(spec, "versions") if each.get("name") == resource.version), None)
    scope = "Namespaced" if resource.namespaced else "Cluster"
    if version is None or not version.get("served") or spec.get("scope") != scope:
        return None
    given: Mapping[str, str] = part(part(found, "metadata"), "annotations")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.full_name,
            "labels": {profile.mark(MARK): ""},
            "annotations": {
                key: given[key] for key in given if key == _APPROVED or key.startswith(f"{resource.group}/")
            },
        },
        "spec": {
            "group": spec["group"],
            "names": spec["names"],
            "scope": spec["scope"],
            "versions": [{**version, "storage": True}],
            "conversion": {"strategy": "None"},
        },
    }

"""The PersistentVolume that the upper side shows for a bound claim. Pure.

It has what users may know of the lower volume: its size, its modes and its class. The driver and the handle are those
of the mirror, and lead nowhere. Nothing of the lower volume's source, topology and mount options comes up.

    lower claim data-<16 hex>: Bound, 1Gi     upper volume pvc-<uid of the upper claim>: 1Gi, claimRef shop/data, Bound

Source: Kubernetes, "Persistent Volumes"; k8s.io/api/core/v1.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry.api.model import Json, Resource, object_key
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import fields, listed, mapped, number_or_text, part, text

RESOURCE = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)

MARK = "lower"
"""The mark of a volume that the mirror has made: a label."""

BY_CLAIM = "claim"
"""Upper volumes, by the key of the claim that they are bound to."""

BOUND = "Bound"
"""The phase of a volume that has a claim, and of a claim that has a volume."""

_LOWER = fields(
    {
        "spec": fields({"accessModes": listed(text), "storageClassName": text, "volumeMode": text}),
        "status": fields({"phase": text, "capacity": mapped(number_or_text)}),
    }
)


_MOST_KEY = 63 + 1 + 253
"""The bytes of the longest key of a claim: the API server accepts any text as that of a volume."""

_MOST_CAPACITY = 256
"""The bytes of the largest capacity that can be that of a claim."""


class _ClaimReference(msgspec.Struct, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    uid: str = ""
    resource_version: str = "0"
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    claim_ref: _ClaimReference | None = None
    capacity: msgspec.Raw = msgspec.Raw(b"{}")


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _Volume(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_volume = msgspec.json.Decoder(_Volume)
_capacity = msgspec.json.Decoder(Json)


class ShownVolume(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is cached of an upper volume; users choose how many there are, and what they contain.

    Args:
        key: Its name.
        version: The resourceVersion.
        uid: Its uid.
        claim: The key of its claim; "" for none.
        capacity: Its capacity; {} for one that no claim can have.
        is_bound: Whether its phase is Bound.
        is_deleting: Whether it has a deletionTimestamp.
    """

    key: str
    version: int
    uid: str
    claim: str
    capacity: Json
    is_bound: bool
    is_deleting: bool


def seen(data: msgspec.Raw) -> ShownVolume:
    """Return an upper volume as it is cached."""
    found = _volume.decode(data)
    meta, spec, claim = found.metadata, found.spec, found.spec.claim_ref
    key = object_key(claim.namespace, claim.name) if claim is not None and claim.namespace and claim.name else ""
    return ShownVolume(
        key=meta.name,
        version=int(meta.resource_version),
        uid=meta.uid,
        claim=key if len(key) <= _MOST_KEY else "",
        capacity=_capacity.decode(spec.capacity) if len(memoryview(spec.capacity)) <= _MOST_CAPACITY else {},
        is_bound=found.status.phase == BOUND,
        is_deleting=meta.deletion_timestamp is not None,
    )


def name(uid: str) -> str:
    """Return the name of the upper volume of the upper claim of a uid, which users cannot know before it exists."""
    return f"pvc-{uid}"


def is_bound(lower: Json) -> bool:
    """Return whether a lower claim has a volume."""
    return part(lower, "status").get("phase") == BOUND and bool(part(part(lower, "status"), "capacity"))


def wanted(upper: Json, lower: Json, profile: Profile) -> Json:
    """Return the upper volume of a claim.

    Args:
        upper: The upper claim.
        lower: The lower claim, which is bound.
        profile: The configuration.

    Raises:
        NotTranslated: The lower claim is malformed.
    """
    meta = part(upper, "metadata")
    found: Json = _LOWER(lower, "")
    return {
        "apiVersion": "v1",
        "kind": RESOURCE.kind,
        "metadata": {"name": name(meta["uid"]), "labels": {profile.mark(MARK): ""}},
        "spec": {
            **found.get("spec", {}),
            "capacity": found["status"]["capacity"],
            "csi": {"driver": profile.prefix, "volumeHandle": name(meta["uid"])},
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        },
    }


def difference(live: ShownVolume, found: Json) -> Json:
    """Return the merge patch of what changes of a volume: its size. {} if it is as it should be.

    Args:
        live: The upper volume.
        found: The spec that it should have.
    """
    return {"capacity": found["capacity"]} if live.capacity != found["capacity"] else {}


def claim_of(volume: ShownVolume) -> Iterable[str]:
    """Return the key of the claim that a volume is bound to."""
    return [volume.claim] if volume.claim else ()

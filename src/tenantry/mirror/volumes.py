"""The PersistentVolume that the upper side shows for a bound claim. Pure.

It has what users may know of the lower volume: its size, its modes and its class. The driver and the handle are those
of the mirror, and lead nowhere. Nothing of the lower volume's source, topology and mount options comes up.

    lower claim data-<16 hex>: Bound, 1Gi     upper volume pvc-<uid of the upper claim>: 1Gi, claimRef shop/data, Bound

Source: Kubernetes, "Persistent Volumes"; k8s.io/api/core/v1.
"""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api.model import Json, Resource, object_key
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import fields, listed, mapped, number_or_text, part, text
from tenantry.mirror.things import Thing

RESOURCE = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)

MARK = "lower"
"""The mark of a volume that the mirror has made: a label."""

BY_CLAIM = "claim"
"""Upper volumes, by the key of the claim that they are bound to."""

_LOWER = fields(
    {
        "spec": fields({"accessModes": listed(text), "storageClassName": text, "volumeMode": text}),
        "status": fields({"phase": text, "capacity": mapped(number_or_text)}),
    }
)


def name(uid: str) -> str:
    """Return the name of the upper volume of the upper claim of a uid, which users cannot know before it exists."""
    return f"pvc-{uid}"


def is_bound(lower: Json) -> bool:
    """Return whether a lower claim has a volume."""
    return part(lower, "status").get("phase") == "Bound" and bool(part(part(lower, "status"), "capacity"))


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


def difference(live: Json, found: Json) -> Json:
    """Return the merge patch of what changes of a volume: its size. {} if it is as it should be.

    Args:
        live: The spec of the upper volume.
        found: The spec that it should have.
    """
    return {"capacity": found["capacity"]} if live.get("capacity") != found["capacity"] else {}


def claim_of(volume: Thing) -> Iterable[str]:
    """Return the key of the claim that a volume is bound to."""
    found = part(volume.spec, "claimRef")
    return (
        [object_key(str(found["namespace"]), str(found["name"]))]
        if found.get("namespace") and found.get("name")
        else ()
    )

"""VolumeSnapshots. Pure.

The lower side takes the snapshot, of an own claim. The upper object shows whether it is ready and how large it is, but
neither the lower VolumeSnapshotContent nor the message of an error, which names volumes of the storage.

Source: Kubernetes, "Volume Snapshots"; external-snapshotter, apis/volumesnapshot/v1.
"""

from __future__ import annotations

from tenantry.api.model import Json, Resource
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.shapes import boolean, denied, fields, number_or_text, part, text

GROUP = "snapshot.storage.k8s.io"
RESOURCE = Resource(GROUP, "v1", "volumesnapshots", "VolumeSnapshot")

FAILED = "the host could not take the snapshot: its administrators find the cause there"
"""The message of an error inside."""

_SPEC = fields(
    {
        "source": fields(
            {
                "persistentVolumeClaimName": text,
                # A snapshot of the storage by its name would be one of any owner.
                "volumeSnapshotContentName": denied("name a PersistentVolumeClaim"),
            },
            one_of=("persistentVolumeClaimName",),
            otherwise="name a PersistentVolumeClaim",
        ),
        "volumeSnapshotClassName": text,
    }
)
_STATUS = fields(
    {"readyToUse": boolean, "restoreSize": number_or_text, "creationTime": text, "error": fields({"time": text})}
)


def translate(spec: Json, origin: Origin) -> None:
    """Have a snapshot be one of a lower claim.

    Args:
        spec: As the allow-list builds it; it is changed.
        origin: Where it comes from.
    """
    source = part(spec, "source")
    if source.get("persistentVolumeClaimName"):
        source["persistentVolumeClaimName"] = origin.profile.lower_name(
            "PersistentVolumeClaim", origin.namespace, source["persistentVolumeClaimName"]
        )
    # The lower side fills in its default, which never changes for one snapshot.
    if "volumeSnapshotClassName" in origin.lower:
        spec.setdefault("volumeSnapshotClassName", origin.lower["volumeSnapshotClassName"])


def status(lower: Json) -> Json:
    """Return the status of an upper snapshot."""
    found: Json = _STATUS(part(lower, "status"), "status")
    if "error" in found:
        found["error"]["message"] = FAILED
    return found


KIND = MirroredKind(resource=RESOURCE, spec=_SPEC, translate=translate, status=status, is_optional=True)

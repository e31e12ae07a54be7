"""PersistentVolumeClaims. Pure.

The lower side provides the volume. The upper claim gets the phase, the capacity and the access modes, and the name of
the volume that the mirror shows for it, but not the name of the lower volume.

Source: Kubernetes, "Persistent Volumes"; k8s.io/api/core/v1.
"""

from __future__ import annotations

from tenantry.api.model import Json, Resource
from tenantry.mirror import volumes
from tenantry.mirror.kinds import volumesnapshots
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.shapes import NotTranslated, denied, fields, listed, mapped, number_or_text, part, text

RESOURCE = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

_SOURCES = (("", RESOURCE.kind), (volumesnapshots.GROUP, volumesnapshots.RESOURCE.kind))

_amounts = mapped(number_or_text)
_source = fields({"apiGroup": text, "kind": text, "name": text, "namespace": text})
_SPEC = fields(
    {
        "accessModes": listed(text),
        "resources": fields({"requests": _amounts, "limits": _amounts}),
        "storageClassName": text,
        "volumeMode": text,
        "volumeAttributesClassName": text,
        # A volume of the lower side by its name or its labels would be one of any owner.
        "selector": denied("leave the choice of the volume to the storage class"),
        "volumeName": text,
        "dataSource": _source,
        "dataSourceRef": _source,
    }
)
_STATUS = fields({"phase": text, "accessModes": listed(text), "capacity": _amounts})


def translate(spec: Json, origin: Origin) -> None:
    """Have a claim ask for a lower volume.

    Args:
        spec: As the allow-list builds it; it is changed.
        origin: Where it comes from.

    Raises:
        NotTranslated: The claim names a volume, or a source that is not mirrored.
    """
    shown = spec.pop("volumeName", "")
    # The mirror itself names the volume that it shows; `volumes`.
    if shown and shown != volumes.name(str(part(origin.upper, "metadata").get("uid", ""))):
        raise NotTranslated("spec.volumeName may not be set: leave the choice of the volume to the storage class")
    for field in ("dataSource", "dataSourceRef"):
        source = spec.get(field)
        if source is None:
            continue
        if (source.get("apiGroup") or "", source.get("kind")) not in _SOURCES or source.get("namespace"):
            raise NotTranslated(
                f"spec.{field} must name a PersistentVolumeClaim or a VolumeSnapshot of the same namespace"
            )
        source["name"] = origin.profile.lower_name(source["kind"], origin.namespace, source.get("name", ""))
    for field in ("volumeName", "storageClassName"):
        if field in origin.lower:
            spec.setdefault(field, origin.lower[field])


def status(lower: Json) -> Json:
    """Return the status of an upper claim."""
    return _STATUS(part(lower, "status"), "status")


KIND = MirroredKind(resource=RESOURCE, spec=_SPEC, translate=translate, status=status)

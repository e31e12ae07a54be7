"""The metadata of a lower object: the upper labels and annotations, and the marks that name the upper object. Pure.

    upper  labels: {app: web}                 annotations: {note: first}
    lower  labels: {app: web, <prefix>/owner: …, <prefix>/namespace: shop}
           annotations: {note: first, <prefix>/name: web, <prefix>/namespace: shop, <prefix>/uid: …,
                         <prefix>/given-labels: app, <prefix>/given-annotations: note}

The marks "given-…" list what came from the upper object: the rest belongs to programs of the lower side, and stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tenantry.api.model import Json
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import NotTranslated, fields, mapped, part, text

GIVEN_LABELS = "given-labels"
GIVEN_ANNOTATIONS = "given-annotations"

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` keeps a whole manifest: nothing on the lower side reads it."""

METADATA = fields({"name": text, "namespace": text, "uid": text, "labels": mapped(text), "annotations": mapped(text)})


def metadata(kind: str, upper: Json, profile: Profile, given: Mapping[str, Collection[str]] | None = None) -> Json:
    """Return the metadata of the lower object of an upper one.

    Args:
        kind: The kind of both.
        upper: The upper object; without a uid while it is being created.
        profile: The configuration.
        given: Further marks "given-…", and what they list.

    Raises:
        NotTranslated: Its metadata have wrong types, or lack the name or the namespace.
    """
    meta = METADATA(part(upper, "metadata"), "metadata")
    for field in ("name", "namespace"):
        if not meta.get(field):
            raise NotTranslated(f"metadata.{field} must not be empty: create the object through the API server")
    namespace, name = meta["namespace"], meta["name"]
    labels, annotations = users(meta.get("labels"), profile), users(meta.get("annotations"), profile)
    annotations.pop(APPLIED, None)
    marks = {"name": name, "namespace": namespace}
    if meta.get("uid"):
        marks["uid"] = meta["uid"]
    every = {GIVEN_LABELS: labels, GIVEN_ANNOTATIONS: annotations, **(given or {})}
    marks |= {mark: ",".join(sorted(keys)) for mark, keys in every.items() if keys}
    found: Json = {
        "name": profile.lower_name(kind, namespace, name),
        "namespace": profile.lower_namespace(namespace),
        "labels": {**labels, **profile.labels(namespace)},
        "annotations": {**annotations, **{profile.mark(mark): value for mark, value in marks.items()}},
    }
    if profile.owner is not None:
        found["ownerReferences"] = [dict(profile.owner)]
    return found


def changed(live: Json, wanted: Json, profile: Profile, given: Collection[str] = ()) -> Json:
    """Return the merge patch of the metadata of a lower object; {} if they are as they should be.

    Args:
        live: Its metadata.
        wanted: As `metadata` returns them.
        profile: The configuration.
        given: Further marks "given-…".
    """
    patch: Json = {}
    annotations = part(live, "annotations")
    marks = [profile.mark(mark) for mark in (GIVEN_LABELS, GIVEN_ANNOTATIONS, *given)]
    for field, mark in (("labels", GIVEN_LABELS), ("annotations", GIVEN_ANNOTATIONS)):
        # Users of the lower side may have written any text there.
        past = [key for key in listed(annotations, mark, profile) if not profile.is_reserved(key)]
        differing = difference(part(live, field), wanted[field], [*past, *(marks if field == "annotations" else ())])
        if differing:
            patch[field] = differing
    return patch


def users(given: Mapping[str, str] | None, profile: Profile) -> dict[str, str]:
    """Return the labels or annotations that users may set on a lower object."""
    return {key: value for key, value in (given or {}).items() if not profile.is_reserved(key)}


def listed(annotations: Json, mark: str, profile: Profile) -> list[str]:
    """Return the keys that a mark "given-…" lists."""
    value = annotations.get(profile.mark(mark))
    return value.split(",") if isinstance(value, str) and value else []


def difference(live: Json, wanted: Mapping[str, str], past: Collection[str]) -> Json:
    """Return the merge patch of labels or annotations.

    Args:
        live: What the lower object has.
        wanted: What it must have.
        past: Keys that may be removed.
    """
    patch: Json = {key: value for key, value in wanted.items() if live.get(key) != value}
    return patch | {key: None for key in past if key in live and key not in wanted}

"""PersistentVolumeClaims: their class, their volume, and the node that the scheduler chooses for it."""

from __future__ import annotations

from tenantry.api.tenancyrules import Section
from tenantry.policy.check import RuleTarget
from tenantry.policy.request import Item, Json, Request, Review, is_new, part
from tenantry.policy.targets.objects import strings, whole
from tenantry.policy.users import CONTROL_PLANE, is_control_plane

NOUN = "claim"

OLD_NAME = "volume.beta.kubernetes.io/storage-class"
"""The annotation that named the class before the field did. Source: Kubernetes, "Persistent Volumes" (class)."""

CHOSEN_NODE = "volume.kubernetes.io/selected-node"
"""The annotation by which the scheduler says where a volume is provisioned, and so where its pod runs.

Source: Kubernetes, "Storage Classes" (volume binding mode).
"""


def _classes(of: str) -> str:
    """Return CEL: a list of the claim's class; empty if it names none."""
    return (
        f"(has({of}.metadata.annotations) && '{OLD_NAME}' in {of}.metadata.annotations"
        f" ? [{of}.metadata.annotations['{OLD_NAME}']]"
        f" : has({of}.spec.storageClassName) ? [{of}.spec.storageClassName] : [])"
    )


def classes_of(claim: Json) -> list[str]:
    """Return a list of the claim's class; empty if it names none."""
    old: str | None = part(claim, "metadata", "annotations").get(OLD_NAME)
    named: str | None = part(claim, "spec").get("storageClassName")
    return [each for each in (old if old is not None else named,) if each is not None]


def _changes(field: str) -> str:
    """Return CEL: whether a person gives the claim a value of a field, which Kubernetes itself may fill in later."""
    return (
        f"{field.format('object')} != '' && (request.operation == 'CREATE'"
        f" || {field.format('object')} != {field.format('oldObject')} && !{CONTROL_PLANE})"
    )


def _is_changed(request: Request, now: str, before: str) -> bool:
    by_kubernetes = request.operation == "UPDATE" and is_control_plane(request.user)
    return bool(now) and now != before and not by_kubernetes


_VOLUME = "{}.?spec.volumeName.orValue('')"
NAMES_VOLUME = _changes(_VOLUME)
NAMES_NODE = _changes(f"{{}}.?metadata.annotations[?'{CHOSEN_NODE}'].orValue('')")


def names_volume(request: Request) -> bool:
    """Return `NAMES_VOLUME` in Python."""
    now, before = (part(each, "spec").get("volumeName") or "" for each in (request.object, request.old_object))
    return _is_changed(request, now, before)


def names_node(request: Request) -> bool:
    """Return `NAMES_NODE` in Python."""
    both = (part(each, "metadata", "annotations") for each in (request.object, request.old_object))
    now, before = (each.get(CHOSEN_NODE) or "" for each in both)
    return _is_changed(request, now, before)


def drop_chosen_node(claim: Item, _: Section) -> None:
    """Remove the node from a claim."""
    part(claim, "metadata", "annotations").pop(CHOSEN_NODE, None)


CLASSES = _classes("object")
CONDITIONS = {
    # The class is set once: in the claim, or later by Kubernetes if there was no default at first. The volume is, too,
    # but people may also set it later.
    "class-or-volume-is-new": "request.operation == 'CREATE'"
    f" || {CLASSES} != {_classes('oldObject')} || {_VOLUME.format('object')} != {_VOLUME.format('oldObject')}"
}


def is_new_claim(request: Request) -> bool:
    """Return `CONDITIONS` in Python."""
    return is_new(request, "spec.volumeName") or classes_of(request.object) != classes_of(request.old_object)


CLAIMS = RuleTarget(
    name="claims",
    group="",
    resources=("persistentvolumeclaims",),
    conditions={name: f"{cel} || {NAMES_NODE}" for name, cel in CONDITIONS.items()},
    variables={"classes": CLASSES},
    concerns=lambda request: is_new_claim(request) or names_node(request),
)


def _classes_in(review: Review) -> list[str]:
    return classes_of(review.request.object)


_PLAIN: Json = {
    "metadata": {"name": "c"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
CLAIM = whole(CLAIMS, NOUN, _PLAIN)
CLASS = strings(CLAIM, "variables.classes", _classes_in)

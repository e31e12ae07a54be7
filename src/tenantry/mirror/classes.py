"""Classes of the lower side as the upper side shows them: allow-lists of fields. Pure.

    lower  provisioner: ebs.csi.aws.com        parameters: {…: secrets, endpoints}   reclaimPolicy: Delete
    upper  provisioner: <prefix>/mirrored      reclaimPolicy: Delete   labels: {<prefix>/lower: "true"}

The names of provisioners, controllers and handlers stay below, too. A controller that users run on the upper side under
the real name would serve these classes there.

A class of the upper side without the label is the users' own.

Sources: Kubernetes, "Storage Classes", "Ingress" (Ingress class), "Pod Priority and Preemption", "Runtime Class",
"Volume Snapshot Classes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import cast

import msgspec

from tenantry.api.model import Json, Resource
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items, part

MARK = "lower"
"""The label of the upper classes that the mirror has made."""

_TRUE = "true"
_NEUTRAL = "mirrored"
_BUILT_IN = "system-"
"""How the names of classes begin that each API server makes itself (Kubernetes reserves it)."""

_SERVER_FIELDS = ("apiVersion", "kind", "metadata")

_anything: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)
_canonical = msgspec.json.Encoder(order="sorted")


class LowerClass(msgspec.Struct, frozen=True, gc=False):
    """A class of the lower side, without what stays there.

    Args:
        key: Its name.
        version: The resourceVersion.
        content: Its fields that the allow-list has.
        is_default: Whether objects that name no class get it.
        driver: What makes the volumes or snapshots of the class; "" for other kinds. It stays below.
    """

    key: str
    version: int
    content: Json
    is_default: bool
    driver: str = ""


class UpperClass(msgspec.Struct, frozen=True, gc=False):
    """A class of the upper side. Users make any number, of any content: only what is read of them is kept.

    Args:
        key: Its name.
        version: The resourceVersion.
        uid: Its uid.
        is_marked: Whether it has the label of those that the mirror has made.
        is_default: Whether objects that name no class get it.
        is_held: Whether it has finalizers, which users have added.
        digest: Of all that users can change.
    """

    key: str
    version: int
    uid: str
    is_marked: bool
    is_default: bool
    is_held: bool
    digest: bytes


class MirroredClass(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of class.

    Args:
        resource: The kind.
        kept: The fields that come up: of one word or number each, because the mirror copies them as they are.
        neutral: The required field in which the upper class has a name that means nothing; "" for none.
        has_domain: Whether that name needs a domain.
        default_fields: The fields that make it the default.
        default_marks: The annotations that make it the default; the upper class gets the first.
        driver: The field with the driver; "" for none.
        is_optional: Whether a side need not have the kind, which is a custom one.
    """

    resource: Resource
    kept: tuple[str, ...] = ()
    neutral: str = ""
    has_domain: bool = True
    default_fields: tuple[str, ...] = ()
    default_marks: tuple[str, ...] = ()
    driver: str = ""
    is_optional: bool = False

    def lower(self, data: msgspec.Raw) -> LowerClass:
        """Return a class of the lower side as it is cached."""
        found = _anything.decode(data)
        meta = part(found, "metadata")
        content = {field: found[field] for field in self.kept if field in found}
        driver = str(found.get(self.driver) or "") if self.driver else ""
        return LowerClass(meta["name"], _version(meta), content, self._is_default(found), driver)

    def upper(self, data: msgspec.Raw, mark: str) -> UpperClass:
        """Return a class of the upper side as it is cached.

        Args:
            data: Its JSON.
            mark: The key of the label.
        """
        found = _anything.decode(data)
        meta = part(found, "metadata")
        is_marked = part(meta, "labels").get(mark) == _TRUE
        uid = str(meta.get("uid", ""))
        is_default, is_held = self._is_default(found), bool(meta.get("finalizers"))
        return UpperClass(meta["name"], _version(meta), uid, is_marked, is_default, is_held, digest(found))

    def is_built_in(self, name: str) -> bool:
        """Return whether each API server makes the class of this name itself."""
        return self.resource.kind == "PriorityClass" and name.startswith(_BUILT_IN)

    def shown(self, lower: LowerClass, profile: Profile, *, is_default: bool) -> Json:
        """Return the upper class of a lower one.

        Args:
            lower: The lower class.
            profile: The configuration.
            is_default: Whether upper objects that name no class get it.
        """
        meta: Json = {"name": lower.key, "labels": {profile.mark(MARK): _TRUE}}
        content: Json = dict(lower.content)
        if self.neutral:
            name = profile.mark(_NEUTRAL) if self.has_domain else _NEUTRAL
            above, _, field = self.neutral.rpartition(".")
            content |= {above: {field: name}} if above else {field: name}
        if is_default and self.default_marks:
            meta["annotations"] = {self.default_marks[0]: _TRUE}
        elif is_default:
            content |= dict.fromkeys(self.default_fields, True)
        return {**content, "metadata": meta}

    def _is_default(self, found: Json) -> bool:
        annotations = part(part(found, "metadata"), "annotations")
        is_marked = any(annotations.get(mark) == _TRUE for mark in self.default_marks)
        return is_marked or any(found.get(field) is True for field in self.default_fields)


def digest(found: Json) -> bytes:
    """Return the digest of all that users can change of a class, the same as it is written and as it is stored."""
    meta = part(found, "metadata")
    kept = {
        "labels": part(meta, "labels"),
        "annotations": part(meta, "annotations"),
        "owners": items(meta, "ownerReferences"),
        "finalizers": meta.get("finalizers"),
        "content": {key: value for key, value in found.items() if key not in _SERVER_FIELDS},
    }
    return blake2b(_canonical.encode(_filled(kept)), digest_size=16).digest()


def _filled(value: object) -> object:
    """Return a value without fields that are empty, which an API server may store or not."""
    if isinstance(value, Mapping):
        entries = {key: _filled(each) for key, each in cast("Mapping[str, object]", value).items()}
        return {key: each for key, each in entries.items() if each or (each == 0 and each is not False)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_filled(each) for each in cast("Sequence[object]", value)]
    return value


def _version(meta: Json) -> int:
    return int(meta.get("resourceVersion") or 0)


def _resource(group: str, plural: str, kind: str) -> Resource:
    return Resource(group, "v1", plural, kind, namespaced=False)


STORAGE = MirroredClass(
    resource=_resource("storage.k8s.io", "storageclasses", "StorageClass"),
    kept=("reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion"),
    neutral="provisioner",
    default_marks=(
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ),
    driver="provisioner",
)
INGRESS = MirroredClass(
    resource=_resource("networking.k8s.io", "ingressclasses", "IngressClass"),
    neutral="spec.controller",
    default_marks=("ingressclass.kubernetes.io/is-default-class",),
)
PRIORITY = MirroredClass(
    resource=_resource("scheduling.k8s.io", "priorityclasses", "PriorityClass"),
    kept=("value", "preemptionPolicy"),
    default_fields=("globalDefault",),
)
RUNTIME = MirroredClass(
    # Without its overhead and its nodes, which the lower API server adds to pods.
    resource=_resource("node.k8s.io", "runtimeclasses", "RuntimeClass"),
    neutral="handler",
    has_domain=False,
)

SNAPSHOT = MirroredClass(
    resource=_resource("snapshot.storage.k8s.io", "volumesnapshotclasses", "VolumeSnapshotClass"),
    kept=("deletionPolicy",),
    neutral="driver",
    default_marks=("snapshot.storage.kubernetes.io/is-default-class",),
    driver="driver",
    is_optional=True,
)

CLASSES = (STORAGE, INGRESS, PRIORITY, RUNTIME)
"""The kinds that each API server has, in the order in which their controllers are named."""

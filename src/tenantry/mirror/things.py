"""Objects of both sides as a mirror caches them: a Pod whole, of others only what decides whether a copy is current."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Protocol

import msgspec

from tenantry.api.model import Json, Resource, object_key
from tenantry.engine.cache import Cached, Change
from tenantry.mirror.cachedpods import Kept
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part

PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
COPIED = {
    "ConfigMap": Resource("", "v1", "configmaps", "ConfigMap"),
    "Secret": Resource("", "v1", "secrets", "Secret"),
}
"""The kinds of objects that go down because a pod names them."""

MOST_LABEL_BYTES = 16 * 1024
"""A namespace with more bytes of labels, as JSON, is selected by no selector."""

WRITTEN_MARK = "lower"
"""The label of an upper Secret that the mirror writes; the only one that is kept of ConfigMaps and Secrets."""

_anything = msgspec.json.Decoder(Json)


class Thing(msgspec.Struct, frozen=True, gc=False):
    """An object of one side. Every property decodes it anew: decoded objects take up to 24 times the memory.

    Args:
        key: `namespace/name`, or the name of a cluster-scoped object.
        version: The resourceVersion.
        text: The object as JSON, without managedFields.
        kept: How much of it is here.
    """

    key: str
    version: int
    text: bytes
    kept: Kept = Kept.WHOLE

    @property
    def object(self) -> Json:
        """Return the object."""
        return _anything.decode(self.text)

    @property
    def meta(self) -> Json:
        """Return its metadata."""
        return self.object["metadata"]

    @property
    def uid(self) -> str:
        """Return its uid."""
        return self.meta["uid"]

    @property
    def spec(self) -> Json:
        """Return its spec."""
        return self.object.get("spec") or {}

    @property
    def status(self) -> Json:
        """Return its status."""
        return self.object.get("status") or {}

    @property
    def is_deleting(self) -> bool:
        """Return whether it has a deletionTimestamp."""
        return bool(self.meta.get("deletionTimestamp"))

    def mark(self, profile: Profile, name: str) -> str:
        """Return the annotation of a mark; "" if it has none."""
        return str(part(self.meta, "annotations").get(profile.mark(name), ""))


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Headed(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata


class Copy(msgspec.Struct, frozen=True, gc=False):
    """A ConfigMap or a Secret without its content: the source of a copy, or a copy.

    Args:
        key: `namespace/name`.
        uid: Its uid.
        version: The resourceVersion.
        labels: Its labels; of a source only the one that `source` keeps.
        annotations: Its annotations; none of a source.
    """

    key: str
    uid: str
    version: int
    labels: dict[str, str]
    annotations: dict[str, str]


class LabelledNamespace(msgspec.Struct, frozen=True, gc=False):
    """A Namespace of which only the labels count; users of the upper side choose how many it has.

    Args:
        key: Its name.
        version: The resourceVersion.
        labels: As JSON, in a tenth of the memory of a dict; None for more than `MOST_LABEL_BYTES`.
    """

    key: str
    version: int
    labels: bytes | None


class _Labelled(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    resource_version: str = "0"
    labels: msgspec.Raw = msgspec.Raw(b"{}")


class _LabelledObject(msgspec.Struct, frozen=True, gc=False):
    metadata: _Labelled


_headed = msgspec.json.Decoder(_Headed)
_labelled = msgspec.json.Decoder(_LabelledObject)
_labels = msgspec.json.Decoder(dict[str, str] | None)


def whole(data: msgspec.Raw) -> Thing:
    """Return an object whole."""
    found = _anything.decode(data)
    meta = found["metadata"]
    key = object_key(meta.get("namespace", ""), meta["name"])
    meta.pop("managedFields", None)
    return thing(key, int(meta.get("resourceVersion") or 0), found)


def thing(key: str, version: int, value: Json, kept: Kept = Kept.WHOLE) -> Thing:
    """Return an object that is given decoded; see `Thing`."""
    return Thing(key, version, msgspec.json.encode(value), kept)


def head(data: msgspec.Raw, kept: Kept) -> Thing:
    """Return what identifies an object, of which nothing else is kept.

    Args:
        data: The object.
        kept: Why.
    """
    meta = _headed.decode(data).metadata
    key = object_key(meta.namespace, meta.name)
    own: Json = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    return thing(key, int(meta.resource_version or 0), {"metadata": own}, kept)


def headed(data: msgspec.Raw) -> Copy:
    """Return what decides whether a copy is current."""
    meta = _headed.decode(data).metadata
    key = object_key(meta.namespace, meta.name)
    return Copy(key, meta.uid, int(meta.resource_version or 0), meta.labels or {}, meta.annotations or {})


@cache
def source(mark: str) -> Callable[[msgspec.Raw], Copy]:
    """Return the function that decodes an upper ConfigMap or Secret, of which only one label is kept.

    Users of the upper side choose the labels and annotations, which take ten times their size in memory. The same
    function each time, as listeners of one kind must name it.

    Args:
        mark: The key of the label.
    """

    def decoded(data: msgspec.Raw) -> Copy:
        found = headed(data)
        labels = {mark: found.labels[mark]} if mark in found.labels else {}
        return Copy(found.key, found.uid, found.version, labels, {})

    return decoded


def labelled(data: msgspec.Raw) -> LabelledNamespace:
    """Return a Namespace of which only the labels count."""
    meta = _labelled.decode(data).metadata
    raw = bytes(meta.labels)
    labels = msgspec.json.encode(_labels.decode(raw) or {}) if len(raw) <= MOST_LABEL_BYTES else None
    return LabelledNamespace(meta.name, int(meta.resource_version or 0), labels)


def selector(prefix: str) -> dict[str, str]:
    """Return the selectors of the lower objects of all mirrors with marks of one domain."""
    return {"labelSelector": f"{prefix}/owner"}


def upper_key(profile: Profile, annotations: dict[str, str] | None) -> str:
    """Return the key of the upper object that a lower one names in its annotations; "" if it names none."""
    found = annotations or {}
    name = found.get(profile.mark("name"), "")
    return object_key(found.get(profile.mark("namespace"), ""), name) if name else ""


def key_above(profile: Profile, key: str, annotations: dict[str, str] | None) -> str:
    """Return the key of the upper object of a lower one; "" if it has none.

    Names and namespaces that are the lower object's own count more than its marks, which users of the lower side may
    have written.

    Args:
        profile: The configuration.
        key: The key of the lower object.
        annotations: Its annotations.
    """
    marked = upper_key(profile, annotations)
    if profile.pairs is None and profile.computed:
        return marked
    namespace, _, name = marked.partition("/")
    below, _, own = key.partition("/")
    if profile.pairs is not None:
        namespace = profile.pairs.upper(below)
    if not profile.computed:
        name = own
    return object_key(namespace, name) if namespace and name else ""


def is_of(profile: Profile, key: str, labels: dict[str, Any] | None) -> bool:
    """Return whether a key and labels are those of a lower object of this mirror.

    Users of another namespace may have the rights of its mirror, and write any mark there.
    """
    return profile.is_place(key) and (labels or {}).get(profile.mark("owner")) == profile.owner_uid


def is_own(profile: Profile, key: str, labels: dict[str, Any] | None) -> bool:
    """Return whether the object that has the key of a lower one is it: others may have a name that is not computed."""
    return profile.computed or is_of(profile, key, labels)


class _MarkedObject(Cached, Protocol):
    @property
    def meta(self) -> Json: ...


def keys_of_lower(profile: Profile) -> Callable[[Change[Any]], Iterable[str]]:
    """Return the function from a change of a lower object to the key of the upper one, if it is of this mirror."""

    def keys(change: Change[_MarkedObject]) -> Iterable[str]:
        found = change.after or change.before
        # Before anything is decoded: every mirror sees the changes of all namespaces.
        if found is None or not profile.is_place(found.key):
            return ()
        meta = found.meta
        if not is_of(profile, found.key, meta.get("labels")):
            return ()
        key = key_above(profile, found.key, meta.get("annotations"))
        return [key] if key else ()

    return keys


def own_key(change: Change[Any]) -> Iterable[str]:
    """Return the key of the object that a change concerns."""
    found: Cached | None = change.after or change.before
    return [found.key] if found is not None else ()

"""Which ConfigMaps, Secrets and PersistentVolumeClaims a pod names: pure.

One function finds the places. `references` reads them and `pods.down` replaces the names in them, so that a lower pod
cannot name an object that is not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from tenantry.api.model import Json
from tenantry.mirror.marking import METADATA
from tenantry.mirror.podfields import ADDED, SPEC
from tenantry.mirror.shapes import NotTranslated, fields, part

CONFIG_MAP = "ConfigMap"
SECRET = "Secret"  # noqa: S105 - a kind
CLAIM = "PersistentVolumeClaim"

MOST_REFERENCES = 500
"""How many different objects a pod may name: each is kept in an index, and copied before the pod starts."""

_POD = fields({"metadata": METADATA, "spec": SPEC})


class PodReference(msgspec.Struct, frozen=True, kw_only=True):
    """An upper object that a pod needs before it can start.

    Args:
        kind: ConfigMap or Secret.
        namespace: The pod's.
        name: Its upper name.
        optional: The pod starts without it.
    """

    kind: str
    namespace: str
    name: str
    optional: bool = False


class NamePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the spec of a pod that has the name of another object.

    Args:
        kind: The kind of the other object.
        holder: The object around the name.
        key: The field of the holder.
        path: The JSON path of the name.
    """

    kind: str
    holder: Json
    key: str
    path: str

    @property
    def name(self) -> str:
        """Return the name; "" if there is none."""
        return self.holder.get(self.key) or ""


def references(pod: Json) -> frozenset[PodReference]:
    """Return the ConfigMaps and Secrets that a pod refers to.

    None for a pod that `pods.down` refuses, because it is malformed or names too many objects. Those of ephemeral
    containers do not count if `pods.down` leaves these out.
    """
    try:
        upper = _POD(pod, "")
        spec = upper.get("spec", {})
        check(spec)
    except NotTranslated:
        return frozenset()
    return needed(pod, upper.get("metadata", {}).get("namespace", ""), spec)


def needed(pod: Json, namespace: str, spec: Json) -> frozenset[PodReference]:
    """Return the same as `references`, of a pod whose spec is built already.

    Args:
        pod: The pod.
        namespace: Its namespace.
        spec: As `podfields.SPEC` builds its spec, checked, and before any name is replaced.
    """
    found: dict[tuple[str, str], bool] = {}
    for place in chain(places(spec), places(_added(pod, spec))):
        if place.kind != CLAIM and place.name:
            key = (place.kind, place.name)
            found[key] = found.get(key, True) and place.holder.get("optional") is True
    return frozenset(
        PodReference(kind=kind, namespace=namespace, name=name, optional=optional)
        for (kind, name), optional in found.items()
    )


def is_translated(pod: Json) -> bool:
    """Return whether a pod is not refused for its metadata, or its spec, being malformed."""
    try:
        _POD(pod, "")
    except NotTranslated:
        return False
    return True


def _added(pod: Json, spec: Json) -> Json:
    try:
        added = ADDED(part(pod, "spec"), "spec")
        if added:
            check(spec, added)
    except NotTranslated:
        return {}  # They are not mirrored; the rest of the pod is.
    return added


def check(*specs: Json) -> None:
    """Refuse a pod that names too many different objects.

    Args:
        specs: As `podfields.SPEC` and `podfields.ADDED` build them, before any name is replaced.

    Raises:
        NotTranslated: It names more than `MOST_REFERENCES`.
    """
    named = set[tuple[str, str]]()
    for place in chain.from_iterable(map(places, specs)):
        named.add((place.kind, place.name))
        if len(named) > MOST_REFERENCES:
            raise NotTranslated(
                f"{place.path} must not name one more object: a pod may name at most {MOST_REFERENCES} different"
                " ConfigMaps, Secrets and PersistentVolumeClaims; put what it needs into fewer objects"
            )


def places(spec: Json) -> Iterator[NamePlace]:
    """Yield all names of other objects in a spec.

    Args:
        spec: As `podfields.SPEC` or `podfields.ADDED` builds it.
    """
    for index, volume in enumerate(spec.get("volumes", ())):
        yield from _in_volume(volume, f"spec.volumes[{index}]")
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field, ())):
            yield from _in_container(container, f"spec.{field}[{index}]")
    for index, entry in enumerate(spec.get("imagePullSecrets", ())):
        # The API server accepts an entry without a name, which has no effect.
        if entry.get("name"):
            yield NamePlace(kind=SECRET, holder=entry, key="name", path=f"spec.imagePullSecrets[{index}].name")


def _in_volume(volume: Json, path: str) -> Iterator[NamePlace]:
    for source, kind, key in (
        ("configMap", CONFIG_MAP, "name"),
        ("secret", SECRET, "secretName"),
        ("persistentVolumeClaim", CLAIM, "claimName"),
    ):
        if source in volume:
            yield NamePlace(kind=kind, holder=volume[source], key=key, path=f"{path}.{source}.{key}")
    for index, projection in enumerate(volume.get("projected", {}).get("sources", ())):
        for source, kind in (("configMap", CONFIG_MAP), ("secret", SECRET)):
            if source in projection:
                inside = f"{path}.projected.sources[{index}].{source}.name"
                yield NamePlace(kind=kind, holder=projection[source], key="name", path=inside)


def _in_container(container: Json, path: str) -> Iterator[NamePlace]:
    for index, variable in enumerate(container.get("env", ())):
        for source, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
            if source in variable.get("valueFrom", ()):
                inside = f"{path}.env[{index}].valueFrom.{source}.name"
                yield NamePlace(kind=kind, holder=variable["valueFrom"][source], key="name", path=inside)
    for index, entry in enumerate(container.get("envFrom", ())):
        for source, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
            if source in entry:
                inside = f"{path}.envFrom[{index}].{source}.name"
                yield NamePlace(kind=kind, holder=entry[source], key="name", path=inside)

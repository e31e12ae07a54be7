"""Kinds that administrators of the lower side offer, as data. Pure.

Of an object, the spec goes down. The lower API server leaves out fields that its own schema does not have. The places
that are listed become names of the lower side, selectors of own objects, or stay on the upper side. The status comes
up, except for the places that are listed to be left out.

    places  {"spec.secretName": Secret, "spec.selector": LabelSelector, "spec.namespaceSelector": Omitted}

The name of a Secret that a program of the lower side writes becomes one that no copied Secret has. `writtensecrets`
brings this Secret up.

Source: Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from functools import partial
from typing import Any, cast

import msgspec

from tenantry.api.model import Json, Resource
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.kinds.networkpolicies import confined
from tenantry.mirror.podfields import SELECTOR
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import NotTranslated, part
from tenantry.mirror.things import Thing

MOST_NAMES = 100
"""How many names of Secrets and ConfigMaps an object may have: each is looked up, and copied."""

MOST_WRITTEN = 4
"""How many Secrets that a program of the lower side writes for one object come up: each is looked for."""

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""The name of a Secret (Kubernetes: "Object Names and IDs", DNS subdomain names); no object has another one."""


class PlaceUse(StrEnum):
    """What a place in an object has."""

    SECRET = "Secret"  # noqa: S105 - a kind
    CONFIG_MAP = "ConfigMap"
    SERVICE = "Service"
    CLAIM = "PersistentVolumeClaim"
    SELECTOR = "LabelSelector"
    WRITTEN = "WrittenSecret"
    OMITTED = "Omitted"


class OfferedPlace(msgspec.Struct, frozen=True):
    """A place in an object.

    Args:
        path: The fields from the object on, with dots between them; "[]" after a field means each item of a list.
        use: What is there.
    """

    path: str
    use: PlaceUse


class Offered(msgspec.Struct, frozen=True):
    """A kind that is offered.

    Args:
        resource: The kind.
        places: In the order in which they are changed.
    """

    resource: Resource
    places: tuple[OfferedPlace, ...] = ()


def kind_of(offered: Offered, profile: Profile) -> MirroredKind:
    """Return how a kind is mirrored.

    Args:
        offered: The kind.
        profile: The configuration.
    """
    return MirroredKind(
        resource=offered.resource,
        spec=_anything,
        translate=partial(_translate, offered),
        status=partial(_status, offered, profile),
        is_optional=True,
    )


def copied(offered: Offered) -> Callable[[Thing], list[str]]:
    """Return the function that returns `KIND/NAMESPACE/NAME` of the Secrets and ConfigMaps that an object names."""
    uses = {PlaceUse.SECRET, PlaceUse.CONFIG_MAP}

    def found(upper: Thing) -> list[str]:
        namespace, whole = upper.key.partition("/")[0], upper.object
        names = {f"{use}/{namespace}/{value}" for use, value in _named(offered, whole, uses)}
        return sorted(names)[:MOST_NAMES]

    return found


def written(offered: Offered) -> Callable[[Thing], list[str]]:
    """Return the function that returns `NAMESPACE/NAME` of the Secrets that are written for an object."""

    def found(upper: Thing) -> list[str]:
        namespace, whole = upper.key.partition("/")[0], upper.object
        values = (value for _, value in _named(offered, whole, {PlaceUse.WRITTEN}))
        names = {f"{namespace}/{value}" for value in values if _OBJECT_NAME.fullmatch(value)}
        return sorted(names)[:MOST_WRITTEN]

    return found


def _named(offered: Offered, whole: Json, uses: Collection[PlaceUse]) -> Iterator[tuple[PlaceUse, str]]:
    """Yield the names at the places of some uses."""
    for place in offered.places:
        if place.use in uses:
            for holder, key in _at(whole, place.path):
                value = holder.get(key)
                if isinstance(value, str) and value:
                    yield place.use, value


def _anything(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise NotTranslated(f"{path} must be an object")
    return cast("Json", _without_nulls(cast("object", value)))


def _without_nulls(value: object) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        given = cast("dict[str, object]", value)
        return {key: _without_nulls(each) for key, each in given.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in cast("list[object]", value)]
    return value


def _translate(offered: Offered, spec: Json, origin: Origin) -> None:
    whole: Json = {"spec": spec}
    for place in offered.places:
        for holder, key in _at(whole, place.path):
            if key in holder:
                _change(place, holder, key, origin)


def _change(place: OfferedPlace, holder: Json, key: str, origin: Origin) -> None:
    value = holder[key]
    if place.use is PlaceUse.OMITTED:
        del holder[key]
    elif place.use is PlaceUse.SELECTOR:
        holder[key] = confined(SELECTOR(value, place.path), [origin.namespace], origin.profile)
    elif not isinstance(value, str):
        raise NotTranslated(f"{place.path} must be a string")
    elif place.use is PlaceUse.WRITTEN and value and not _OBJECT_NAME.fullmatch(value):
        # A program would write this Secret, and it could never come up.
        raise NotTranslated(f"{place.path} must be the name of a Secret")
    elif value:
        holder[key] = origin.profile.lower_name(place.use, origin.namespace, value)


def _at(whole: Json, path: str) -> Iterator[tuple[Json, str]]:
    """Yield each object that a path leads to, and the field of it that the path ends with."""
    first, _, rest = path.partition(".")
    field = first.removesuffix("[]")
    if not rest:
        yield whole, field
        return
    value: object = whole.get(field)
    for each in cast("list[object]", value) if first.endswith("[]") and isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield from _at(cast("Json", each), rest)


def _status(offered: Offered, profile: Profile, lower: Json) -> Json:
    found: Json = {"status": _without_nulls(part(lower, "status"))}
    for place in offered.places:
        if place.use is PlaceUse.OMITTED:
            for holder, key in _at(found, place.path):
                holder.pop(key, None)
    meta = part(lower, "metadata")
    marks = part(meta, "annotations")
    # In conditions, too: generations of the lower object say nothing about those of the upper one.
    return _worded(
        found["status"], str(meta.get("name") or ""), str(marks.get(profile.mark("name")) or ""), profile.namespace
    )


def _worded(value: object, lower: str, upper: str, namespace: str) -> Any:  # noqa: ANN401 - JSON
    """Return a status with the name of the upper object in place of the lower one's."""
    if isinstance(value, dict):
        given = cast("dict[str, object]", value)
        return {
            key: _worded(each, lower, upper, namespace) for key, each in given.items() if key != "observedGeneration"
        }
    if isinstance(value, list):
        return [_worded(each, lower, upper, namespace) for each in cast("list[object]", value)]
    return (
        value.replace(f"{namespace}/{lower}", upper).replace(lower, upper)
        if isinstance(value, str) and lower
        else value
    )

"""Allow-lists of fields, as functions that build a new value from an untrusted one: pure.

A shape takes a value and its JSON path. It returns a new value that has only known fields of the right types, or raises
`NotTranslated`. It never returns a part of its input, so its result can be changed.

    shape = fields({"name": text, "ports": listed(integer)})
    shape({"name": "web", "ports": [80], "other": 1}, "spec")  ->  {"name": "web", "ports": [80]}
    shape({"name": 7}, "spec")                                 ->  NotTranslated: spec.name must be a string
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from tenantry.api.model import Json
from tenantry.api.wording import shortened

Shape = Callable[[object, str], Any]
"""Builds a value; None leaves the field out."""

_INTEGERS = range(-(2**63), 2**63)
_LISTED = 20
_SHOWN = 63


class NotTranslated(Exception):
    """An object that is not mirrored: the text names the field and what to do."""


def text(value: object, path: str) -> str:
    """Build a string."""
    if not isinstance(value, str):
        raise NotTranslated(f"{path} must be a string")
    return value


def integer(value: object, path: str) -> int:
    """Build an integer of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INTEGERS:
        raise NotTranslated(f"{path} must be an integer")
    return value


def boolean(value: object, path: str) -> bool:
    """Build a boolean."""
    if not isinstance(value, bool):
        raise NotTranslated(f"{path} must be true or false")
    return value


def number_or_text(value: object, path: str) -> int | str:
    """Build a quantity, or the number or name of a port."""
    return value if isinstance(value, str) else integer(value, path)


def listed(item: Shape, *, most: int = 0) -> Shape:
    """Return the shape of a list.

    Args:
        item: The shape of its items.
        most: How many items it may have; 0 for any number.
    """

    def build(value: object, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise NotTranslated(f"{path} must be a list")
        found = cast("list[object]", value)
        if most and len(found) > most:
            raise NotTranslated(f"{path} must have at most {most} items: divide the object")
        return [item(each, f"{path}[{index}]") for index, each in enumerate(found)]

    return build


def mapped(item: Shape) -> Shape:
    """Return the shape of an object whose keys are data, not fields."""

    def build(value: object, path: str) -> Json:
        return {key: item(each, f"{path}[{key[:_SHOWN]!r}]") for key, each in _object(value, path).items()}

    return build


def fields(shapes: Mapping[str, Shape], *, one_of: tuple[str, ...] = (), otherwise: str = "") -> Shape:
    """Return the shape of an object with an allow-list of fields; other fields and nulls are left out.

    Args:
        shapes: The shape of each field.
        one_of: Fields of which exactly one must be present.
        otherwise: What a user can do without one of them.
    """

    def build(value: object, path: str) -> Json:
        given = _object(value, path)
        found: Json = {}
        # Not over the shapes: objects have few of the fields that they may have.
        for key, each in given.items():
            shape = shapes.get(key)
            if shape is None or each is None:
                continue
            built = shape(each, f"{path}.{key}" if path else key)
            if built is not None:
                found[key] = built
        if one_of and sum(key in found for key in one_of) != 1:
            advice = f": {otherwise}" if otherwise else ""
            raise NotTranslated(f"{path} must have exactly one of {shortened(one_of, most=_LISTED)}{advice}")
        return found

    return build


def denied(advice: str) -> Shape:
    """Return the shape of a field that may not be set.

    Args:
        advice: What a user can do instead.
    """

    def build(value: object, path: str) -> None:
        if value:
            raise NotTranslated(f"{path} may not be set: {advice}")

    return build


def part(whole: object, field: str) -> Json:
    """Return an object inside another, as it is; {} if it is missing or of another type."""
    value = cast("Json", whole).get(field) if isinstance(whole, dict) else None
    return cast("Json", value) if isinstance(value, dict) else {}


def items(whole: Json, field: str) -> list[Json]:
    """Return the objects of a list inside an object, as they are; [] if it is missing or of another type."""
    value = whole.get(field)
    found = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Json", each) for each in found if isinstance(each, dict)]


def _object(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise NotTranslated(f"{path or 'the pod'} must be an object")
    return cast("Json", value)

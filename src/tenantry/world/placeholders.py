"""Replaces the values of a document whose shape is wrong, so that the rest can be checked, too: pure.

The API server evaluates no validation rules on an object that violates its schema, so a user learns of problems in
two steps. With placeholders in the wrong fields, both kinds of problems are reported at once:

    owners: [{kind: Robot, name: x}], quota: {hard: {cpu: many}}     the kind is wrong, so no typed object exists
    owners: [{kind: User, name: x}], quota: {hard: {cpu: many}}      its rules find the quantity
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar, cast

import msgspec
from msgspec import inspect

from tenantry.api.model import KubernetesObject
from tenantry.world.structure import without_nulls
from tenantry.world.validation import Problem

K = TypeVar("K", bound=KubernetesObject)

_MODE = re.compile(r"spec[.](mode|inheritance)\b")
_DEPENDS_ON_MODE = re.compile(r"spec[.](owners|inheritance.*)")


def replaced(document: object, kind: type[K]) -> K | None:
    """Return the object of a document with placeholders for wrong values; None if it is not an object of the kind.

    Also None if a field has a pattern that no placeholder matches.
    """
    given = without_nulls(document)
    if not isinstance(given, dict) or cast("dict[object, object]", given).get("kind") != kind.resource.kind:
        return None
    values = cast("dict[str, object]", given)
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind} is not a struct")
    metadata = values.get("metadata")
    named = cast("dict[str, object]", metadata) if isinstance(metadata, dict) else {}
    names = {key: named[key] for key in ("name", "namespace") if isinstance(named.get(key), str)}
    body = _struct({key: inner for key, inner in values.items() if key != "metadata"}, info, skip="metadata")
    try:
        return msgspec.convert({**body, "metadata": {"name": "", **names}}, kind)
    except msgspec.ValidationError:
        return None  # a pattern that no placeholder matches: the problems of the shape are reported alone


def beside(found: Sequence[Problem], wrong: Sequence[Problem]) -> list[Problem]:
    """Return the problems of rules that do not depend on fields with a placeholder.

    Args:
        found: The problems of the object with placeholders.
        wrong: The problems of its shape.
    """
    paths = [problem.path for problem in wrong]
    # What an owner must be depends on its kind.
    paths += [path.removesuffix(".kind") for path in paths if path.endswith("].kind")]
    by_mode = any(_MODE.match(path) for path in paths)
    return [
        problem
        for problem in found
        if not any(_overlap(problem.path, path) for path in paths)
        and not (by_mode and _DEPENDS_ON_MODE.fullmatch(problem.path))
    ]


def _overlap(first: str, second: str) -> bool:
    """Return whether one path is the other or is below it."""
    short, long = sorted((first, second), key=len)
    return long == short or (long.startswith(short) and long[len(short)] in ".[")


def _struct(value: object, info: inspect.StructType, skip: str = "") -> dict[str, object]:
    given = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    fields = {field.encode_name: field for field in info.fields if field.encode_name != skip}
    return {
        name: _value(given.get(name), field.type) for name, field in fields.items() if name in given or field.required
    }


def _value(value: object, info: inspect.Type) -> object:  # noqa: PLR0911 - a case for each type
    match info:
        case inspect.Metadata():
            return _value(value, info.type)
        case inspect.StructType():
            return _struct(value, info)
        case inspect.VarTupleType() | inspect.ListType():
            items = cast("list[object]", value)[: info.max_length] if isinstance(value, list) else []
            items += [None] * ((info.min_length or 0) - len(items))
            return [_value(item, info.item_type) for item in items]
        case inspect.DictType():
            entries = cast("dict[object, object]", value) if isinstance(value, dict) else {}
            kept = list(entries.items())[: info.max_length]
            return {str(key): _value(inner, info.value_type) for key, inner in kept}
        case inspect.EnumType():
            members = [str(member.value) for member in info.cls]
            return value if value in members else members[0]
        case inspect.UnionType():
            return value if isinstance(value, int | str) and not isinstance(value, bool) else 0
        case _:
            return _scalar(value, info)


def _scalar(value: object, info: inspect.Type) -> object:
    match info:
        case inspect.BoolType():
            placeholder: object = False
        case inspect.IntType():
            placeholder = info.ge or 0
        case inspect.StrType():
            placeholder = "x" * (info.min_length or 0)
        case _:
            raise TypeError(f"no placeholder for {info}")
    return value if _fits(value, info) else placeholder


def _fits(value: object, info: inspect.Type) -> bool:
    match info:
        case inspect.IntType():
            if not isinstance(value, int) or isinstance(value, bool):
                return False
            return (info.ge is None or value >= info.ge) and (info.le is None or value <= info.le)
        case inspect.StrType():
            if not isinstance(value, str) or len(value) < (info.min_length or 0):
                return False
            short = info.max_length is None or len(value) <= info.max_length
            return short and (info.pattern is None or re.search(info.pattern, value) is not None)
        case _:
            return isinstance(value, bool)

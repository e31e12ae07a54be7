"""Checks a document against the shape of a Tenantry kind, and reports every problem at once: pure.

The types, required fields and bounds are those of the API server's structural schema. In addition, an unknown field is
an error here; the server would drop it silently. Null counts as not set, as in the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

import msgspec
from msgspec import inspect

from tenantry.api.errors import InputError
from tenantry.api.model import KubernetesObject
from tenantry.api.ruledeclarations import PLAIN
from tenantry.api.wording import suggestion
from tenantry.world.validation import Problem

K = TypeVar("K", bound=KubernetesObject)

_METADATA = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "selfLink": str,
    "uid": str,
    "resourceVersion": str,
    "generation": int,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "labels": dict,
    "annotations": dict,
    "ownerReferences": list,
    "finalizers": list,
    "managedFields": list,
}
"""The fields of ObjectMeta (Kubernetes API reference, "ObjectMeta")."""

_WORDS = {str: "a string", int: "a whole number", dict: "a map", list: "a list", bool: "true or false"}


def read(document: object, kind: type[K]) -> tuple[K | None, list[Problem]]:
    """Return the object that a document contains, or the problems of its shape.

    Args:
        document: Maps, lists, strings, numbers, booleans and nulls, as YAML or JSON gives them.
        kind: The expected kind.
    """
    value = without_nulls(document)
    problems = list(_object(value, kind))
    if problems:
        return None, problems
    try:
        return msgspec.convert(value, kind), []
    except msgspec.ValidationError as error:
        # Only metadata is not checked field by field above.
        return None, [Problem("metadata", f"must be the metadata of an object: {error}")]


def without_nulls(value: object) -> object:
    """Return a value without its null fields, which count as not set in the API server."""
    if isinstance(value, dict):
        given = cast("dict[object, object]", value)
        return {key: without_nulls(inner) for key, inner in given.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in cast("list[object]", value)]
    return value


def _object(value: object, kind: type[KubernetesObject]) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem("", f"must be a map with apiVersion, kind, metadata and spec, not {_described(value)}")
        return
    document = cast("dict[object, object]", value)
    resource = kind.resource
    for field, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        given = document.get(field)
        if given is None:
            yield Problem(field, f"must be given, as {wanted}")
        elif given != wanted:
            yield Problem(field, f"is {_described(given)}; it must be {wanted!r}")
    if document.get("kind") != resource.kind:
        return  # what else differs would be noise
    yield from _metadata(document.get("metadata"))
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind} is not a struct")
    rest = {key: inner for key, inner in document.items() if key not in {"apiVersion", "kind", "metadata"}}
    yield from _struct(rest, info, "", skip=("metadata",))


def _metadata(value: object) -> Iterator[Problem]:
    if value is None:
        yield Problem("metadata.name", "must be given")
        return
    if not isinstance(value, dict):
        yield Problem("metadata", f"must be a map, not {_described(value)}")
        return
    metadata = cast("dict[object, object]", value)
    if "name" not in metadata:
        yield Problem("metadata.name", "must be given")
    for key, inner in metadata.items():
        path = _below("metadata", key)
        wanted = _METADATA.get(str(key))
        if wanted is None:
            yield Problem(path, _unknown(key, _METADATA))
        elif not isinstance(inner, wanted) or isinstance(inner, bool):
            yield Problem(path, f"must be {_WORDS[wanted]}, not {_described(inner)}")
        elif key in {"labels", "annotations"}:
            marks = cast("dict[object, object]", inner)
            yield from (problem for mark, text in marks.items() for problem in _text(text, f"{path}[{mark}]"))


def _struct(value: object, info: inspect.StructType, path: str, skip: Sequence[str] = ()) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, f"must be a map, not {_described(value)}")
        return
    given = cast("dict[object, object]", value)
    fields = {field.encode_name: field for field in info.fields if field.name not in skip}
    for key, inner in given.items():
        field = fields.get(str(key))
        if field is None:
            yield Problem(_below(path, key), _unknown(key, fields))
        else:
            yield from _value(inner, field.type, _below(path, key))
    for name, field in fields.items():
        if field.required and name not in given:
            yield Problem(_below(path, name), "must be given")


def _value(value: object, info: inspect.Type, path: str) -> Iterator[Problem]:  # noqa: PLR0911 - a case for each type
    match info:
        case inspect.Metadata():
            return _value(value, info.type, path)
        case inspect.StructType():
            return _struct(value, info, path)
        case inspect.VarTupleType() | inspect.ListType():
            return _list(value, info, path)
        case inspect.DictType():
            return _map(value, info, path)
        case inspect.EnumType():
            return _choice(value, [str(member.value) for member in info.cls], path)
        case inspect.StrType():
            return _text(value, path, least=info.min_length or 0, most=info.max_length, pattern=info.pattern)
        case inspect.IntType():
            return _number(value, info, path)
        case inspect.BoolType():
            return _simple(value, bool, path)
        case inspect.UnionType():
            return _number_or_text(value, path)
        case _:
            raise TypeError(f"no check for {info}")


def _list(value: object, info: inspect.VarTupleType | inspect.ListType, path: str) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield Problem(path, f"must be a list, not {_described(value)}")
        return
    items = cast("list[object]", value)
    if len(items) < (info.min_length or 0):
        yield Problem(path, f"must have at least {info.min_length} item{'' if info.min_length == 1 else 's'}")
    if info.max_length is not None and len(items) > info.max_length:
        yield Problem(path, f"has {len(items)} items; it may have at most {info.max_length}")
        return
    for index, item in enumerate(items):
        yield from _value(item, info.item_type, f"{path}[{index}]")


def _map(value: object, info: inspect.DictType, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(path, f"must be a map, not {_described(value)}")
        return
    given = cast("dict[object, object]", value)
    if info.max_length is not None and len(given) > info.max_length:
        yield Problem(path, f"has {len(given)} keys; it may have at most {info.max_length}")
        return
    for key, inner in given.items():
        yield from _value(inner, info.value_type, f"{path}[{key}]")


def _choice(value: object, choices: Sequence[str], path: str) -> Iterator[Problem]:
    if value not in choices:
        close = suggestion(value, choices)
        yield Problem(path, f"is {_described(value)}; it must be one of {', '.join(choices)}{close}")


def _text(
    value: object, path: str, least: int = 0, most: int | None = None, pattern: str | None = None
) -> Iterator[Problem]:
    if not isinstance(value, str):
        quotes = "; put it in quotes" if isinstance(value, int | float) else ""
        yield Problem(path, f"must be a string, not {_described(value)}{quotes}")
    elif len(value) < least:
        yield Problem(path, "must not be empty")
    elif most is not None and len(value) > most:
        yield Problem(path, f"must be at most {most} characters long, not {len(value)}")
    elif pattern is not None and not re.search(pattern, value, re.ASCII):
        must = "not have control characters" if pattern == PLAIN else f"match {pattern}"
        yield Problem(path, f"is {_described(value)}; it must {must}")


def _number(value: object, info: inspect.IntType, path: str) -> Iterator[Problem]:
    if not isinstance(value, int) or isinstance(value, bool):
        yield from _simple(value, int, path)
    elif info.ge is not None and value < info.ge:
        yield Problem(path, f"is {value}; it must be at least {info.ge}")
    elif info.le is not None and value > info.le:
        yield Problem(path, f"is {value}; it must be at most {info.le}")


def _simple(value: object, wanted: type[int | bool], path: str) -> Iterator[Problem]:
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        yield Problem(path, f"must be {_WORDS[wanted]}, not {_described(value)}")


def _number_or_text(value: object, path: str) -> Iterator[Problem]:
    if isinstance(value, bool) or not isinstance(value, int | str):
        quotes = "; put it in quotes" if isinstance(value, float) else ""
        yield Problem(path, f"must be a whole number or a string, not {_described(value)}{quotes}")


def _below(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _unknown(key: object, known: Mapping[str, object]) -> str:
    close = suggestion(key, list(known))
    return f"must not be set: the field is unknown{close or '; fields are ' + ', '.join(known)}"


def _described(value: object) -> str:
    match value:
        case dict():
            return "a map"
        case list():
            return "a list"
        case bool():
            return str(value).lower()
        case _:
            text = repr(value)
            return text if len(text) <= 67 else f"{text[:64]}…"  # noqa: PLR2004 - a line stays a line


def each_object(documents: Iterable[tuple[str, object]]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the objects of documents, those of lists one by one, without their null fields.

    Raises:
        InputError: A document is not an object.
    """
    for where, value in documents:
        if not isinstance(value, dict) or not isinstance(cast("dict[str, object]", value).get("kind"), str):
            raise InputError(f"{where}: must be a Kubernetes object, with apiVersion, kind and metadata")
        document = cast("dict[str, object]", without_nulls(cast("object", value)))
        items = document.get("items")
        if str(document["kind"]).endswith("List") and isinstance(items, list):
            inner = enumerate(cast("list[object]", items))
            yield from each_object((f"{where}, items[{index}]", item) for index, item in inner)
        else:
            yield where, document

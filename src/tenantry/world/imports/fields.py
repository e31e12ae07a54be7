"""Reads an object of another tool field by field, and reports each field that no reader took: pure.

A reader takes the fields that it maps. `Fields.report` then names the fields that are left, each with the reason that
the reader knows for its path, or with a general one. So a field that a newer release of the tool adds is reported, and
never dropped in silence.

    fields = Fields.of({"owners": […], "nodeSelector": {"a": "b"}}, "Capsule Tenant 'oil'", "spec")
    fields.parts("owners")                        # taken: mapped
    fields.report(findings, {"spec.nodeSelector": "…"})   # lost: Capsule Tenant 'oil': spec.nodeSelector: …
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

from tenantry.api.errors import InputError
from tenantry.api.wording import visible
from tenantry.world.imports.findings import FindingWeight, ImportFindings

T = TypeVar("T")

UNKNOWN = "not carried over: this import does not know the field; set what it means in the Tenant yourself"
_EMPTY: tuple[object, ...] = (None, "", [], {}, False)
_INDEX = re.compile(r"\[[0-9]+\]")


class Fields:
    """The fields of one map of an object.

    Args:
        value: The map.
        told: The object in words, for messages.
        path: The JSON path of the map in the object, "" for the object itself.
    """

    def __init__(self, value: Mapping[str, object], told: str, path: str) -> None:
        self.told = told
        self.path = path
        self._value = value
        self._taken: set[str] = set()
        self._inside: list[Fields] = []
        self._parts: dict[str, Fields] = {}

    @classmethod
    def of(cls, value: object, told: str, path: str) -> Fields:
        """Return the fields of a value.

        Raises:
            InputError: The value is not a map with strings as keys.
        """
        if value is None:
            return cls({}, told, path)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in cast("dict[object, object]", value)):
            raise InputError(f"{told}: {path or 'the object'} must be a map")
        return cls(cast("dict[str, object]", value), told, path)

    def __bool__(self) -> bool:
        """Return whether the map has fields."""
        return bool(self._value)

    def names(self) -> list[str]:
        """Return the names of all fields, sorted."""
        return sorted(self._value)

    def has(self, key: str) -> bool:
        """Return whether the field is there, and is not null."""
        return self._value.get(key) is not None

    def peek(self, key: str) -> object:
        """Return a field without taking it; None if it is absent."""
        return self._value.get(key)

    def any(self, key: str) -> object:
        """Take a field whatever it is; None if it is absent."""
        self._taken.add(key)
        return self._value.get(key)

    def settle(self, key: str) -> None:
        """Take a field with everything inside."""
        self._taken.add(key)
        if key in self._parts:
            self._inside.remove(self._parts[key])

    def text(self, key: str) -> str:
        """Take a string; "" if it is absent.

        Raises:
            InputError: The field is no string.
        """
        return self._typed(key, str, "", "a string")

    def number(self, key: str) -> int:
        """Take a whole number; 0 if it is absent.

        Raises:
            InputError: The field is no whole number, or is negative.
        """
        found = self._typed(key, int, 0, "a whole number")
        if isinstance(found, bool) or found < 0:
            raise InputError(f"{self._at(key)} must be a whole number that is not negative")
        return found

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Take a boolean.

        Raises:
            InputError: The field is no boolean.
        """
        return self._typed(key, bool, default, "true or false")

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a list of strings; () if it is absent.

        Raises:
            InputError: The field is no list of strings.
        """
        found = self._list(key)
        if not all(isinstance(each, str) for each in found):
            raise InputError(f"{self._at(key)} must be a list of strings")
        return tuple(cast("list[str]", found))

    def amounts(self, key: str) -> dict[str, str]:
        """Take a map of strings or numbers, as strings; {} if it is absent.

        Raises:
            InputError: The field is no such map.
        """
        inner = self.part(key)
        found: dict[str, str] = {}
        for name in inner.names():
            value = inner.any(name)
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise InputError(f"{self._at(key)}.{visible(name)} must be a string or a number")
            found[name] = str(value)
        return found

    def part(self, key: str) -> Fields:
        """Take a map; its own fields are still to be taken. A second call returns the same part.

        Raises:
            InputError: The field is no map.
        """
        if key not in self._parts:
            self._parts[key] = Fields.of(self.any(key), self.told, self._path(key))
            self._inside.append(self._parts[key])
        return self._parts[key]

    def parts(self, key: str) -> list[Fields]:
        """Take a list of maps; their own fields are still to be taken.

        Raises:
            InputError: The field is no list of maps.
        """
        found = [
            Fields.of(value, self.told, f"{self._path(key)}[{index}]") for index, value in enumerate(self._list(key))
        ]
        self._inside += found
        return found

    def left(self) -> Iterator[str]:
        """Yield the JSON paths of the fields that were not taken and say something, here and inside."""
        for key in self.names():
            if key not in self._taken and self._value[key] not in _EMPTY:
                yield self._path(key)
        for inner in self._inside:
            yield from inner.left()

    def report(self, findings: ImportFindings, known: Mapping[str, str]) -> None:
        """Report each field that was not taken.

        Args:
            findings: Gets the reports.
            known: JSON path without indices to why the field is lost, and what to do.
        """
        for path in self.left():
            plain = _INDEX.sub("", path)
            # A path below a known one has its reason.
            why = next((text for above, text in known.items() if f"{plain}.".startswith(f"{above}.")), UNKNOWN)
            findings.add(FindingWeight.LOST, self.told, f"{visible(path)}: {why}")

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _at(self, key: str) -> str:
        return f"{self.told}: {visible(self._path(key))}"

    def _typed(self, key: str, kind: type[T], default: T, words: str) -> T:
        found = self.any(key)
        if found is None:
            return default
        if not isinstance(found, kind):
            raise InputError(f"{self._at(key)} must be {words}")
        return found

    def _list(self, key: str) -> list[object]:
        found = self.any(key)
        if found is None:
            return []
        if not isinstance(found, list):
            raise InputError(f"{self._at(key)} must be a list")
        return cast("list[object]", found)

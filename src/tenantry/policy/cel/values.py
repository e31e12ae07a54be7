"""The values of CEL and what compares and converts them. Pure.

    CEL        int  double  string  bool  null  list  map    optional  quantity
    here       int  float   str     bool  None  list  dict   Optional  Quantity

Source: github.com/google/cel-spec, doc/langdef.md, "Values"; k8s.io/apiserver, pkg/cel/library; k8s.io/apimachinery,
pkg/api/resource.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, cast

import msgspec

from tenantry.api.errors import InputError, TenantryError
from tenantry.world import quantity


class EvaluationError(TenantryError):
    """An expression of CEL has no value for this input."""


class Optional(msgspec.Struct, frozen=True):
    """A value that may be missing."""

    value: Any = None
    has_value: bool = False


NONE = Optional()


def some(value: object) -> Optional:
    """Return the optional that has a value."""
    return Optional(value, True)


_PARTS = re.compile(r"([+-]?)0*(\d*)(?:\.(\d*))?(.*)", re.ASCII | re.DOTALL)
_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class Quantity(msgspec.Struct, frozen=True):
    """A quantity of Kubernetes: how it was written, and its exact value."""

    text: str
    exact: Fraction

    @property
    def approximate(self) -> float:
        """Return the number that `asApproximateFloat` returns: the digits times a power of ten, both rounded."""
        sign, whole, fraction, suffix = cast("re.Match[str]", _PARTS.fullmatch(self.text)).groups(default="")
        if suffix in _EXPONENTS:
            exponent = _EXPONENTS[suffix]
        elif suffix[:1] in {"e", "E"}:
            exponent = int(suffix[1:])
        else:
            return float(self.exact)
        base = float(int(f"{sign}{whole}{fraction}" if whole or fraction else "0"))
        scale = exponent - len(fraction)
        return base * float(f"1e{scale}") if scale else base


def quantity_of(text: object) -> Quantity:
    """Return a quantity.

    Raises:
        EvaluationError: The text is none.
    """
    if not isinstance(text, str):
        raise EvaluationError("quantity() must have a string")
    try:
        return Quantity(text, quantity.parse(text))
    except InputError as error:
        raise EvaluationError(str(error)) from error


def is_quantity(text: object) -> bool:
    """Return whether a text is a quantity."""
    try:
        quantity_of(text)
    except EvaluationError:
        return False
    return True


def is_same(one: object, other: object) -> bool:
    """Return whether two values are equal: numbers of both kinds by value, and a bool equals no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        first, second = cast("list[object]", one), cast("list[object]", other)
        return len(first) == len(second) and all(map(is_same, first, second))
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[str, object]", one), cast("dict[str, object]", other)
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(one, Quantity) and isinstance(other, Quantity):
        return one.exact == other.exact
    if isinstance(one, Optional) and isinstance(other, Optional):
        return one.has_value == other.has_value and is_same(one.value, other.value)
    return one == other


def select(value: object, field: str) -> object:
    """Return a field of an object; of an optional, an optional.

    Raises:
        EvaluationError: There is none.
    """
    if isinstance(value, dict):
        try:
            return cast("dict[str, object]", value)[field]
        except KeyError:
            raise EvaluationError(f"no such key: {field[:64]}") from None
    if isinstance(value, Optional):
        return find(value, field)
    raise EvaluationError(f"no such key: {field[:64]}")


def find(value: object, key: object) -> Optional:
    """Return an entry of a map or of a list as an optional, which has none if anything on the way is missing."""
    if isinstance(value, Optional):
        return find(value.value, key) if value.has_value else NONE
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return some(entries[key]) if key in entries else NONE
    if isinstance(value, list) and isinstance(key, int) and not isinstance(key, bool):
        items = cast("list[object]", value)
        return some(items[key]) if 0 <= key < len(items) else NONE
    return NONE


def entry(value: object, key: object) -> object:
    """Return an entry of a map or of a list; of an optional, an optional.

    Raises:
        EvaluationError: There is none.
    """
    if isinstance(value, Optional):
        return find(value, key)
    found = find(value, key)
    if not found.has_value:
        raise EvaluationError(f"no such key: {str(key)[:64]}")
    return found.value


def is_in(value: object, among: object) -> bool:
    """Return whether a list has a value, or a map a key.

    Raises:
        EvaluationError: It is neither.
    """
    if isinstance(among, dict):
        return value in cast("dict[object, object]", among)
    if isinstance(among, list):
        return any(is_same(value, each) for each in cast("list[object]", among))
    raise EvaluationError("the right side of `in` must be a list or a map")

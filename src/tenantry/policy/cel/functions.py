"""The functions and operators of CEL that policies of Tenantry call. Pure.

Source: github.com/google/cel-spec, doc/langdef.md, "Functions"; Kubernetes, "Common Expression Language in Kubernetes".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from tenantry.policy.cel.values import (
    EvaluationError,
    Optional,
    Quantity,
    is_quantity,
    is_same,
    quantity_of,
)

_LEAST, _MOST = -(2**63), 2**63 - 1

Function = Callable[..., Any]


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise EvaluationError("no such overload: a number is needed")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise EvaluationError("no such overload: a string is needed")
    return value


def _bounded(value: float) -> int | float:
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        raise EvaluationError("integer overflow")
    return value


def _plus(one: object, other: object) -> object:
    if isinstance(one, str) and isinstance(other, str):
        return one + other
    if isinstance(one, list):
        if not isinstance(other, list):
            raise EvaluationError("no such overload: a list is needed")
        return cast("list[object]", one) + cast("list[object]", other)
    # A list of no numbers has the sum 0 here, whatever the type of its items: so both kinds of numbers may be mixed.
    return _bounded(_number(one) + _number(other))


def _divided(one: object, other: object) -> int | float:
    dividend, divisor = _number(one), _number(other)
    if isinstance(dividend, int) and isinstance(divisor, int):
        if divisor == 0:
            raise EvaluationError("division by zero")
        quotient = abs(dividend) // abs(divisor)
        return _bounded(quotient if (dividend < 0) == (divisor < 0) else -quotient)
    if divisor == 0:
        return math.nan if dividend == 0 or math.isnan(dividend) else math.copysign(math.inf, dividend)
    return dividend / divisor


def _remainder(one: object, other: object) -> int:
    dividend, divisor = _number(one), _number(other)
    if not isinstance(dividend, int) or not isinstance(divisor, int) or divisor == 0:
        raise EvaluationError("modulus by zero, or of a number that is no integer")
    rest = abs(dividend) % abs(divisor)
    return rest if dividend >= 0 else -rest


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    def compare(one: object, other: object) -> bool:
        if isinstance(one, str) and isinstance(other, str):
            return test(one, other)
        return test(_number(one), _number(other))

    return compare


def _integer(value: object) -> int:
    if isinstance(value, str):
        try:
            return int(_bounded(int(value)))
        except ValueError:
            raise EvaluationError(f"{value[:64]!r} is no integer") from None
    number = _number(value)
    if isinstance(number, float) and not math.isfinite(number):
        raise EvaluationError("integer overflow")
    return int(_bounded(int(number)))


def _string(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    raise EvaluationError("no such overload: string() of this value")


def _size(value: object) -> int:
    if isinstance(value, (str, list, dict)):
        return len(cast("str | list[object] | dict[str, object]", value))
    raise EvaluationError("no such overload: size() of this value")


def _sum(value: object) -> object:
    if not isinstance(value, list):
        raise EvaluationError("no such overload: sum() of this value")
    total: object = 0
    for each in cast("list[object]", value):
        total = _plus(total, each)
    return total


def _index_of(value: object, sought: object) -> int:
    if isinstance(value, str):
        return value.find(_text(sought))
    if not isinstance(value, list):
        raise EvaluationError("no such overload: indexOf() of this value")
    items = cast("list[object]", value)
    return next((place for place, each in enumerate(items) if is_same(each, sought)), -1)


def _split(value: object, by: object) -> list[str]:
    text, separator = _text(value), _text(by)
    return text.split(separator) if separator else [*text]


def _optional(value: object) -> Optional:
    if not isinstance(value, Optional):
        raise EvaluationError("no such overload: an optional is needed")
    return value


def _value(value: object) -> object:
    found = _optional(value)
    if not found.has_value:
        raise EvaluationError("optional.none() has no value")
    return found.value


def _or_value(value: object, instead: object) -> object:
    found = _optional(value)
    return found.value if found.has_value else instead


def _quantity(value: object) -> Quantity:
    if not isinstance(value, Quantity):
        raise EvaluationError("no such overload: a quantity is needed")
    return value


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "==": is_same,
    "!=": lambda one, other: not is_same(one, other),
    "<": _compared(lambda one, other: one < other),
    "<=": _compared(lambda one, other: one <= other),
    ">": _compared(lambda one, other: one > other),
    ">=": _compared(lambda one, other: one >= other),
    "+": _plus,
    "-": lambda one, other: _bounded(_number(one) - _number(other)),
    "*": lambda one, other: _bounded(_number(one) * _number(other)),
    "/": _divided,
    "%": _remainder,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "negated": lambda one: _bounded(-_number(one)),
    "bool": lambda value: {"true": True, "false": False}[_string(value)],
    "double": lambda value: float(_number(value)),
    "dyn": lambda value: value,
    "int": _integer,
    "isQuantity": is_quantity,
    "quantity": quantity_of,
    "size": _size,
    "string": _string,
}
_OF_TARGET: dict[str, Callable[[Any], Any]] = {
    "asApproximateFloat": lambda value: _quantity(value).approximate,
    "hasValue": lambda value: _optional(value).has_value,
    "size": _size,
    "sum": _sum,
    "value": _value,
}
_WITH_ONE: dict[str, Callable[[Any, Any], Any]] = {
    "contains": lambda value, part: _text(part) in _text(value),
    "endsWith": lambda value, end: _text(value).endswith(_text(end)),
    "indexOf": _index_of,
    "isGreaterThan": lambda one, other: _quantity(one).exact > _quantity(other).exact,
    "isLessThan": lambda one, other: _quantity(one).exact < _quantity(other).exact,
    "or": lambda one, other: one if _optional(one).has_value else other,
    "orValue": _or_value,
    "split": _split,
    "startsWith": lambda value, begin: _text(value).startswith(_text(begin)),
}
_WITH_TWO: dict[str, Callable[[Any, Any, Any], Any]] = {
    "replace": lambda value, old, new: _text(value).replace(_text(old), _text(new)),
}


def _by_number(*tables: Mapping[str, Function]) -> dict[tuple[str, int], Function]:
    """Return functions by name and number of values; the first table has those of one value."""
    return {(name, number): made for number, table in enumerate(tables, 1) for name, made in table.items()}


FUNCTIONS = _by_number(_UNARY, _BINARY)
"""Operators and functions without a target, by name and number of arguments."""

METHODS = _by_number(_OF_TARGET, _WITH_ONE, _WITH_TWO)
"""Functions of a target, by name and number of values, the target included."""


def _escaped(key: object) -> str:
    return _text(key).replace("~", "~0").replace("/", "~1")


PACKAGES: dict[tuple[str, str], Callable[[Any], Any]] = {("jsonpatch", "escapeKey"): _escaped}
"""Functions of a package with one argument, by its name and their name."""

r"""kubectl's JSONPath templates, for `-o jsonpath`, `-o custom-columns` and `--sort-by`. Pure.

    {.items[*].metadata.name}                          all names, with spaces between them
    {range .items[*]}{.metadata.name}{"\n"}{end}       a line for each
    {.status.conditions[?(@.type=="Ready")].status}    a filter

Source: Kubernetes, "JSONPath Support". Regular expressions and `[start:end:step]` with a negative step are rejected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from tenantry.api.errors import InputError

Value = Any
"""A JSON value."""

Selector = Callable[[Value, Value], Iterator[Value]]
"""Yields what a step selects of a value; the second argument is the whole object."""


class Union(NamedTuple):
    """A step with several choices: as kubectl does, what the first one selects of all values comes first."""

    choices: tuple[Selector, ...]


Step = Selector | Union

_UNION = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,]+""")
_NAME = re.compile(r"(?:[\w$/-]|\\.)+")
_FILTER = re.compile(r"\?\(\s*(?P<left>@[^=!<>]*?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<right>.+?))?\s*\)")
_SLICE = re.compile(r"(-?\d+)?:(-?\d+)?(?::(\d+))?")
_LONGEST = 10_000
"""Characters of a template that are read."""

_COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


class TemplatePart(NamedTuple):
    """A part of a template.

    Args:
        kind: "text", "path", "range" or "end".
        text: The literal text.
        steps: What a path selects, one step after the other.
        inner: The parts of a range.
    """

    kind: str
    text: str = ""
    steps: tuple[Step, ...] = ()
    inner: tuple[TemplatePart, ...] = ()


def template(text: str) -> tuple[TemplatePart, ...]:
    """Return the parts of a template; a path needs no braces if it is all of it.

    Raises:
        InputError: It is none.
    """
    if len(text) > _LONGEST:
        raise InputError(f"the JSONPath template has {len(text)} characters: at most {_LONGEST} are read")
    if text and "{" not in text:
        text = f"{{{text if text.startswith(('.', '[', '$', '@')) else f'.{text}'}}}"
    stack: list[list[TemplatePart]] = [[]]
    ranges: list[tuple[Step, ...]] = []
    for kind, inside in _pieces(text):
        if kind == "text":
            stack[-1].append(TemplatePart("text", inside))
        elif inside.startswith("range ") or inside == "range":
            ranges.append(path(inside.removeprefix("range").strip(), text))
            stack.append([])
        elif inside == "end":
            if not ranges:
                raise _wrong(text, "{end} has no {range}")
            stack[-2].append(TemplatePart("range", steps=ranges.pop(), inner=tuple(stack.pop())))
        elif inside[:1] in {'"', "'"}:
            stack[-1].append(TemplatePart("text", _quoted(inside, text)))
        else:
            stack[-1].append(TemplatePart("path", steps=path(inside, text)))
    if ranges:
        raise _wrong(text, "{range} has no {end}")
    return tuple(stack[0])


def render(parts: Sequence[TemplatePart], value: Value) -> str:
    """Return what a template makes of an object; a path that selects nothing adds nothing."""
    return "".join(_render(parts, value, value))


def _render(parts: Sequence[TemplatePart], value: Value, root: Value) -> Iterator[str]:
    for part in parts:
        if part.kind == "text":
            yield part.text
        elif part.kind == "path":
            yield " ".join(shown(each) for each in found(part.steps, value, root))
        else:
            for each in found(part.steps, value, root):
                yield from _render(part.inner, each, root)


def found(steps: Sequence[Step], value: Value, root: Value) -> list[Value]:
    """Return the values that steps select."""
    values = [value]
    for step in steps:
        choices = step.choices if isinstance(step, Union) else (step,)
        values = [one for choice in choices for each in values for one in choice(each, root)]
    return values


def shown(value: Value) -> str:
    """Return a value as kubectl prints it: text without quotes, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def path(text: str, whole: str = "") -> tuple[Step, ...]:
    """Return the steps of a path, as in `.metadata.labels['a.b/c']`.

    Args:
        text: The path.
        whole: The template around it, for messages.

    Raises:
        InputError: It is none.
    """
    whole = whole or text
    steps: list[Step] = []
    rest = text
    if rest.startswith("$"):
        steps.append(lambda _value, root: iter([root]))
    rest = rest[1:] if rest[:1] in {"$", "@"} else rest
    while rest:
        if rest.startswith("["):
            inside, rest = _bracket(rest)
            steps.append(_selector(inside, whole))
            continue
        deep = rest.startswith("..")
        name = rest[2 if deep else 1 :]
        if not rest.startswith("."):
            raise _wrong(whole, f"{rest[:20]!r} must begin with . or [")
        steps += [_descend] if deep else []
        if name.startswith("*"):
            steps.append(_all)
            rest = name[1:]
            continue
        match = _NAME.match(name)
        if match is None:
            # "." alone is the object, as in {range .items[*]}{.}{end}; before a bracket, the bracket says what.
            if name and not name.startswith("["):
                raise _wrong(whole, f"{name[:20]!r} is no name of a field")
            rest = name
            continue
        steps.append(_field(re.sub(r"\\(.)", r"\1", match[0])))
        rest = name[match.end() :]
    return tuple(steps)


# -- reading a template ---------------------------------------------------------------------------


def _wrong(text: str, why: str) -> InputError:
    shortened = text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - one line
    return InputError(f"the JSONPath {shortened!r} is wrong: {why}")


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield texts, and the insides of braces, which may have quoted braces."""
    at = 0
    while at < len(text):
        start = text.find("{", at)
        if start < 0:
            yield "text", text[at:]
            return
        if start > at:
            yield "text", text[at:start]
        end = _closing(text, start, "{", "}")
        yield "path", text[start + 1 : end].strip()
        at = end + 1


def _closing(text: str, start: int, opens: str, closes: str) -> int:
    """Return where a bracket ends, without regard to brackets in quotes.

    Raises:
        InputError: It does not end.
    """
    quote, depth, at = "", 0, start
    while at < len(text):
        character = text[at]
        if quote:
            at += character == "\\"
            quote = "" if character == quote else quote
        elif character in {'"', "'"}:
            quote = character
        elif character == opens:
            depth += 1
        elif character == closes:
            depth -= 1
            if not depth:
                return at
        at += 1
    raise _wrong(text, f"{opens} has no {closes}")


def _quoted(text: str, whole: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:  # noqa: PLR2004 - two quotes
        raise _wrong(whole, f"{text[:20]!r} does not end with its quote")
    inside = text[1:-1]
    if text[0] == "'":
        inside = inside.replace("\\'", "'").replace('"', '\\"')
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError as error:
        raise _wrong(whole, f"{text[:20]!r} has an unknown escape") from error


def _bracket(text: str) -> tuple[str, str]:
    end = _closing(text, 0, "[", "]")
    return text[1:end].strip(), text[end + 1 :]


def _selector(inside: str, whole: str) -> Step:
    if inside == "*":
        return _all
    if inside.startswith("?"):
        return _filter(inside, whole)
    one_slice = _SLICE.fullmatch(inside)
    if one_slice is not None:
        return _sliced(*(int(each) if each else None for each in one_slice.groups()))
    return Union(tuple(_item(each.strip(), whole) for each in _UNION.findall(inside)))


def _item(text: str, whole: str) -> Selector:
    if text[:1] in {"'", '"'}:
        return _named(text, whole)
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise _wrong(whole, f"[{text}] must be a number, a name in quotes, *, a slice or a filter")
    index = int(text)

    def select(value: Value, _root: Value) -> Iterator[Value]:
        values = cast("list[Value]", value) if isinstance(value, list) else []
        if -len(values) <= index < len(values):
            yield values[index]

    return select


def _named(text: str, whole: str) -> Selector:
    """Return the field of a name in quotes; a name that is no field is a path, as in ['metadata.name']."""
    if len(text) < 2 or text[-1] != text[0]:  # noqa: PLR2004 - two quotes
        raise _wrong(whole, f"{text[:20]!r} does not end with its quote")
    inside = text[1:-1]
    name = re.sub(r"\\(.)", r"\1", inside)
    try:
        steps = path(f".{inside}", whole)
    except InputError:
        steps = ()

    def select(value: Value, root: Value) -> Iterator[Value]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        elif steps:
            yield from found(steps, value, root)

    return select


def _filter(inside: str, whole: str) -> Selector:
    match = _FILTER.fullmatch(inside)
    if match is None:
        raise _wrong(whole, f'[{inside[:40]}] must be a filter as in [?(@.type=="Ready")]')
    left = path(match["left"], whole)
    sign = match["sign"]
    compare = _COMPARE[sign] if sign else None
    right = _literal(match["right"], whole) if sign else None

    def select(value: Value, root: Value) -> Iterator[Value]:
        for each in _all(value, root):
            values = found(left, each, root)
            if (compare is None and values) or (
                compare is not None and any(_holds(compare, one, right) for one in values)
            ):
                yield each

    return select


def _holds(compare: Callable[[Value, Value], bool], one: Value, other: Value) -> bool:
    try:
        return compare(one, other)
    except TypeError:
        return False  # values of different types have no order


def _literal(text: str, whole: str) -> Value:
    if text[:1] in {"'", '"'}:
        return _quoted(text, whole)
    try:
        return json.loads(text)
    except ValueError as error:
        raise _wrong(whole, f"{text[:20]!r} must be a number, true, false, or text in quotes") from error


# -- steps ----------------------------------------------------------------------------------------


def _field(name: str) -> Selector:
    def select(value: Value, _root: Value) -> Iterator[Value]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return select


def _all(value: Value, _root: Value) -> Iterator[Value]:
    yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _descend(value: Value, root: Value) -> Iterator[Value]:
    yield value
    for each in _all(value, root):
        yield from _descend(each, root)


def _sliced(start: int | None, end: int | None, step: int | None) -> Selector:
    def select(value: Value, _root: Value) -> Iterator[Value]:
        if isinstance(value, list):
            yield from value[start : end : step or 1]

    return select

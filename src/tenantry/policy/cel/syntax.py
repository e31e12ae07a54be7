"""The syntax of CEL: text ─► tokens ─► tree. Pure.

    object.?spec.replicas.orValue(1) > 0
        Call(">", [Call("orValue", target=Select(Select(object, spec, optional), replicas), [1]), 0])

Literals of bytes, unsigned numbers and triple quotes are not read: no policy of Tenantry has them.

Source: github.com/google/cel-spec, doc/langdef.md, "Syntax"; Kubernetes, "Common Expression Language in Kubernetes".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from tenantry.api.errors import TenantryError


class UnsupportedExpression(TenantryError):
    """A CEL expression has a form that this package does not evaluate."""


class SyntaxNode(msgspec.Struct, frozen=True):
    """A part of an expression."""


class Literal(SyntaxNode, frozen=True):
    """A number, a string, true, false or null."""

    value: str | int | float | bool | None


class Identifier(SyntaxNode, frozen=True):
    """A variable."""

    name: str


class Select(SyntaxNode, frozen=True):
    """A field of an object; optional after `.?`."""

    operand: SyntaxNode
    field: str
    is_optional: bool = False


class Subscript(SyntaxNode, frozen=True):
    """An entry of a list or a map; optional after `[?`."""

    operand: SyntaxNode
    index: SyntaxNode
    is_optional: bool = False


class Call(SyntaxNode, frozen=True):
    """An operator or a function; a function of a value has a target."""

    function: str
    arguments: tuple[SyntaxNode, ...]
    target: SyntaxNode | None = None


class ListNode(SyntaxNode, frozen=True):
    """A list in brackets."""

    items: tuple[SyntaxNode, ...]


class MapNode(SyntaxNode, frozen=True):
    """A map in braces."""

    entries: tuple[tuple[SyntaxNode, SyntaxNode], ...]


class MessageNode(SyntaxNode, frozen=True):
    """A typed object, as in `JSONPatch{op: 'add'}`."""

    name: str
    fields: tuple[tuple[str, SyntaxNode], ...]


_Item = TypeVar("_Item")

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|\d+)"
    r"""|(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}]))"
)
_LITERALS = {"true": True, "false": False, "null": None}
_LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
"""Operators of two operands, those that bind the least first."""

MOST_LEVELS = 50
"""The depth of nested parts that is read: a deeper one would exceed the stack of Python."""


def parse(text: str) -> SyntaxNode:
    """Return the tree of an expression.

    Raises:
        UnsupportedExpression: The text is not an expression that this package reads.
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._place = 0
        self._depth = 0

    def whole(self) -> SyntaxNode:
        found = self._expression()
        if self._kind != "end":
            raise self._error("an operator or the end")
        return found

    # -- tokens -----------------------------------------------------------------------------------

    @property
    def _kind(self) -> str:
        return self._tokens[self._place][0]

    @property
    def _value(self) -> str:
        return self._tokens[self._place][1]

    def _take(self) -> str:
        value = self._value
        self._place += 1
        return value

    def _is(self, *marks: str) -> bool:
        return self._kind in {"mark", "name"} and self._value in marks

    def _accept(self, mark: str) -> bool:
        if self._is(mark):
            self._place += 1
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._error(repr(mark))

    def _name(self) -> str:
        if self._kind != "name":
            raise self._error("a name")
        return self._take()

    def _error(self, wanted: str) -> UnsupportedExpression:
        found = self._value or "the end"
        return UnsupportedExpression(f"expression {self._text[:80]!r}: must have {wanted} before {found[:40]!r}")

    # -- expressions ------------------------------------------------------------------------------

    def _expression(self) -> SyntaxNode:
        self._depth += 1
        if self._depth > MOST_LEVELS:
            raise UnsupportedExpression(f"expression {self._text[:80]!r} must have at most {MOST_LEVELS} levels")
        found = self._operation(0)
        if self._accept("?"):
            yes = self._operation(0)
            self._expect(":")
            found = Call("?:", (found, yes, self._expression()))
        self._depth -= 1
        return found

    def _operation(self, level: int) -> SyntaxNode:
        if level == len(_LEVELS):
            return self._unary()
        found = self._operation(level + 1)
        while self._is(*_LEVELS[level]):
            found = Call(self._take(), (found, self._operation(level + 1)))
        return found

    def _unary(self) -> SyntaxNode:
        if self._accept("!"):
            return Call("!", (self._unary(),))
        if self._accept("-"):
            return Call("negated", (self._unary(),))
        return self._member(self._primary())

    def _member(self, found: SyntaxNode) -> SyntaxNode:
        while True:
            if self._accept("."):
                is_optional = self._accept("?")
                name = self._name()
                if self._accept("("):
                    found = Call(name, self._list(")", self._expression), found)
                else:
                    found = Select(found, name, is_optional)
            elif self._accept("["):
                is_optional = self._accept("?")
                found = Subscript(found, self._expression(), is_optional)
                self._expect("]")
            elif self._is("{") and (name := _qualified(found)):
                self._take()
                found = MessageNode(name, self._list("}", self._field))
            else:
                return found

    def _primary(self) -> SyntaxNode:
        match self._kind:
            case "number":
                text = self._take()
                return Literal(float(text) if "." in text else int(text))
            case "string":
                return Literal(_unquoted(self._take()))
            case "name":
                return self._named()
            case _:
                return self._enclosed()

    def _named(self) -> SyntaxNode:
        name = self._take()
        if name in _LITERALS:
            return Literal(_LITERALS[name])
        if self._accept("("):
            return Call(name, self._list(")", self._expression))
        return Identifier(name)

    def _enclosed(self) -> SyntaxNode:
        if self._accept("("):
            found = self._expression()
            self._expect(")")
            return found
        if self._accept("["):
            return ListNode(self._list("]", self._expression))
        if self._accept("{"):
            return MapNode(self._list("}", self._entry))
        raise self._error("a value")

    def _list(self, end: str, item: Callable[[], _Item]) -> tuple[_Item, ...]:
        found: list[_Item] = []
        while not self._accept(end):
            found.append(item())
            if not self._is(end):
                self._expect(",")
        return tuple(found)

    def _entry(self) -> tuple[SyntaxNode, SyntaxNode]:
        key = self._expression()
        self._expect(":")
        return key, self._expression()

    def _field(self) -> tuple[str, SyntaxNode]:
        name = self._name()
        self._expect(":")
        return name, self._expression()


def _tokens(text: str) -> Sequence[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        token = _TOKEN.match(text, place)
        if token is None or token.lastgroup is None:
            raise UnsupportedExpression(f"expression {text[:80]!r}: {text[place : place + 20]!r} is not read")
        found.append((token.lastgroup, token[token.lastgroup]))
        place = token.end()
    return [*found, ("end", "")]


def _unquoted(text: str) -> str:
    # Strings without other escapes than these mean the same in Python.
    if re.search(r"\\[^\\'\"nrt]", text):
        raise UnsupportedExpression(
            f"string {text[:40]} must have no escapes but those of quotes, backslash, n, r and t"
        )
    return str(ast.literal_eval(text))


def _qualified(node: SyntaxNode) -> str:
    """Return the name of a type, as in `Object.spec.requester`; "" if a node is none."""
    match node:
        case Identifier(name):
            return name
        case Select(operand, field, False):
            above = _qualified(operand)
            return f"{above}.{field}" if above else ""
        case _:
            return ""

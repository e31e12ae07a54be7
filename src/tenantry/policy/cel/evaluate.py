"""Evaluates CEL: an expression becomes a function of its variables, once. Pure.

    compiled("object.spec.replicas > 1")({"object": {"spec": {"replicas": 2}}})  ─►  True

As in the API server, `&&`, `||`, `all` and `exists` have a result in spite of an error of one part if another part
decides.

Source: github.com/google/cel-spec, doc/langdef.md, "Logical Operators" and "Macros"; github.com/google/cel-go,
ext/comprehensions.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from tenantry.policy.cel.functions import FUNCTIONS, METHODS, PACKAGES
from tenantry.policy.cel.syntax import (
    Call,
    Identifier,
    ListNode,
    Literal,
    MapNode,
    MessageNode,
    Select,
    Subscript,
    SyntaxNode,
    UnsupportedExpression,
    parse,
)
from tenantry.policy.cel.values import EvaluationError, entry, find, is_in, select

Scope = dict[str, Any]
"""Variables by name."""

Expression = Callable[[Scope], Any]

BUDGET = "/budget"
"""The name of an evaluation's `Budget` in its scope, which no expression can read; without it, nothing is bounded."""


class Budget:
    """How many items the macros of an evaluation may still visit.

    Args:
        items: The limit.
    """

    def __init__(self, items: int) -> None:
        self._left = items

    def spend(self, items: int) -> None:
        """Count items that are going to be visited.

        Raises:
            EvaluationError: They are more than are left.
        """
        self._left -= items
        if self._left < 0:
            raise EvaluationError("the lists and maps of the object are too long to be evaluated")


def compiled(text: str) -> Expression:
    """Return an expression as a function of its variables, which raises EvaluationError if it has no value.

    Raises:
        UnsupportedExpression: It has a part that this package does not evaluate.
    """
    return _compile(parse(text))


def _compile(node: SyntaxNode) -> Expression:  # noqa: PLR0911 - one for each kind of node
    match node:
        case Literal(value):
            return lambda _: value
        case Identifier(name):
            return _variable(name)
        case Select(operand, field, is_optional):
            of = _compile(operand)
            return (lambda scope: find(of(scope), field)) if is_optional else (lambda scope: select(of(scope), field))
        case Subscript(operand, index, is_optional):
            of, at = _compile(operand), _compile(index)
            get = find if is_optional else entry
            return lambda scope: get(of(scope), at(scope))
        case ListNode(items):
            parts = [_compile(each) for each in items]
            return lambda scope: [each(scope) for each in parts]
        case MapNode(entries):
            pairs = [(_compile(key), _compile(value)) for key, value in entries]
            return lambda scope: {key(scope): value(scope) for key, value in pairs}
        case MessageNode(_, fields):
            made = [(name, _compile(value)) for name, value in fields]
            return lambda scope: {name: value(scope) for name, value in made}
        case Call():
            return _call(node)
        case _:
            raise UnsupportedExpression(f"{type(node).__name__} is not evaluated")


def _variable(name: str) -> Expression:
    def read(scope: Scope) -> object:
        try:
            return scope[name]
        except KeyError:
            raise EvaluationError(f"undeclared reference to {name[:64]}") from None

    return read


def _call(node: Call) -> Expression:
    name, arguments, target = node.function, node.arguments, node.target
    if target is None:
        special = _SPECIAL.get((name, len(arguments)))
        if special is not None:
            return special(*arguments)
        return _applied(FUNCTIONS.get((name, len(arguments))), node)
    macro = _MACROS.get((name, len(arguments)))
    if macro is not None:
        return macro(target, *arguments)
    if isinstance(target, Identifier) and (target.name, name) in PACKAGES and len(arguments) == 1:
        return _applied(PACKAGES[target.name, name], node)
    return _applied(METHODS.get((name, len(arguments) + 1)), node, (target,))


def _applied(function: Callable[..., object] | None, node: Call, before: tuple[SyntaxNode, ...] = ()) -> Expression:
    """Return the call of a function with values."""
    if function is None:
        raise UnsupportedExpression(f"{node.function}() with {len(node.arguments)} arguments is not evaluated")
    parts = [_compile(each) for each in (*before, *node.arguments)]
    match parts:
        case [one]:
            return lambda scope: function(one(scope))
        case [one, other]:
            return lambda scope: function(one(scope), other(scope))
        case _:
            return lambda scope: function(*(each(scope) for each in parts))


# -- logic ----------------------------------------------------------------------------------------


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError("no such overload: true or false is needed")
    return value


def _decides(deciding: bool, found: Iterator[Expression], scope: Scope) -> bool:  # noqa: FBT001 - a value of CEL
    """Return `deciding` if one part has this value, else the other one.

    Raises:
        EvaluationError: A part has no value, and no other one decides.
    """
    failed: EvaluationError | None = None
    for each in found:
        try:
            if _truth(each(scope)) is deciding:
                return deciding
        except EvaluationError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return not deciding


def _logical(deciding: bool) -> Callable[[SyntaxNode, SyntaxNode], Expression]:  # noqa: FBT001 - a value of CEL
    def make(one: SyntaxNode, other: SyntaxNode) -> Expression:
        parts = (_compile(one), _compile(other))
        return lambda scope: _decides(deciding, iter(parts), scope)

    return make


def _negation(one: SyntaxNode) -> Expression:
    of = _compile(one)
    return lambda scope: not _truth(of(scope))


def _choice(condition: SyntaxNode, yes: SyntaxNode, no: SyntaxNode) -> Expression:
    asked, first, second = _compile(condition), _compile(yes), _compile(no)
    return lambda scope: first(scope) if _truth(asked(scope)) else second(scope)


def _membership(one: SyntaxNode, other: SyntaxNode) -> Expression:
    value, among = _compile(one), _compile(other)
    return lambda scope: is_in(value(scope), among(scope))


def _presence(node: SyntaxNode) -> Expression:
    if not isinstance(node, Select):
        raise UnsupportedExpression("has() must have a field of an object")
    of, field = _compile(node.operand), node.field
    return lambda scope: find(of(scope), field).has_value


_SPECIAL: dict[tuple[str, int], Callable[..., Expression]] = {
    ("&&", 2): _logical(False),
    ("||", 2): _logical(True),
    ("!", 1): _negation,
    ("?:", 3): _choice,
    ("in", 2): _membership,
    ("has", 1): _presence,
}


# -- macros ---------------------------------------------------------------------------------------


def _visitable(value: object, scope: Scope) -> list[object] | dict[object, object]:
    """Return a list or a map of which a macro visits all items.

    Raises:
        EvaluationError: The value is neither, or the budget has ended.
    """
    if not isinstance(value, (list, dict)):
        raise EvaluationError("a list or a map is needed")
    found = cast("list[object] | dict[object, object]", value)
    budget: Budget | None = scope.get(BUDGET)
    if budget is not None:
        budget.spend(len(found))
    return found


def _items(value: object, scope: Scope) -> list[object]:
    """Return what a macro with one variable visits: the items of a list, or the keys of a map."""
    return [*_visitable(value, scope)]


def _pairs(value: object, scope: Scope) -> Iterable[tuple[object, object]]:
    """Return the pairs that a macro with two variables visits: places and items of a list, keys and values of a map."""
    found = _visitable(value, scope)
    return found.items() if isinstance(found, dict) else enumerate(found)


def _named(node: SyntaxNode) -> str:
    if not isinstance(node, Identifier):
        raise UnsupportedExpression("the variable of a macro must be a name")
    return node.name


def _quantified(deciding: bool) -> Callable[[SyntaxNode, SyntaxNode, SyntaxNode], Expression]:  # noqa: FBT001 - a value of CEL
    def make(target: SyntaxNode, variable: SyntaxNode, test: SyntaxNode) -> Expression:
        of, name, holds = _compile(target), _named(variable), _compile(test)

        def bind(item: object) -> Expression:
            return lambda scope: holds({**scope, name: item})

        return lambda scope: _decides(deciding, map(bind, _items(of(scope), scope)), scope)

    return make


def _filtered(target: SyntaxNode, variable: SyntaxNode, test: SyntaxNode) -> Expression:
    of, name, holds = _compile(target), _named(variable), _compile(test)
    return lambda scope: [item for item in _items(of(scope), scope) if _truth(holds({**scope, name: item}))]


def _mapped(target: SyntaxNode, variable: SyntaxNode, *steps: SyntaxNode) -> Expression:
    of, name = _compile(target), _named(variable)
    *tests, result = map(_compile, steps)

    def run(scope: Scope) -> list[object]:
        inner = ({**scope, name: item} for item in _items(of(scope), scope))
        return [result(each) for each in inner if all(_truth(test(each)) for test in tests)]

    return run


def _visited(
    target: SyntaxNode, first: SyntaxNode, second: SyntaxNode, steps: tuple[SyntaxNode, ...]
) -> Callable[[Scope], Iterator[Any]]:
    """Return what gives (key, result) for each pair that passes the tests; the last step is the result."""
    of, key_name, value_name = _compile(target), _named(first), _named(second)
    *tests, result = map(_compile, steps)

    def run(scope: Scope) -> Iterator[tuple[Any, Any]]:
        for key, value in _pairs(of(scope), scope):
            inner = {**scope, key_name: key, value_name: value}
            if all(_truth(test(inner)) for test in tests):
                yield key, result(inner)

    return run


def _transformed_list(target: SyntaxNode, first: SyntaxNode, second: SyntaxNode, *steps: SyntaxNode) -> Expression:
    visit = _visited(target, first, second, steps)
    return lambda scope: [result for _, result in visit(scope)]


def _transformed_map(target: SyntaxNode, first: SyntaxNode, second: SyntaxNode, *steps: SyntaxNode) -> Expression:
    visit = _visited(target, first, second, steps)
    return lambda scope: dict(visit(scope))


def _transformed_entries(target: SyntaxNode, first: SyntaxNode, second: SyntaxNode, *steps: SyntaxNode) -> Expression:
    visit = _visited(target, first, second, steps)

    def run(scope: Scope) -> dict[object, object]:
        found: dict[object, object] = {}
        for _, made in visit(scope):
            if found.keys() & made.keys():
                raise EvaluationError("insert failed: the key exists already")
            found |= made
        return found

    return run


_MACROS: dict[tuple[str, int], Callable[..., Expression]] = {
    ("all", 2): _quantified(False),
    ("exists", 2): _quantified(True),
    ("filter", 2): _filtered,
    ("map", 2): _mapped,
    ("map", 3): _mapped,
    ("transformList", 3): _transformed_list,
    ("transformList", 4): _transformed_list,
    ("transformMap", 3): _transformed_map,
    ("transformMap", 4): _transformed_map,
    ("transformMapEntry", 3): _transformed_entries,
    ("transformMapEntry", 4): _transformed_entries,
}

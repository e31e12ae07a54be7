"""Policies with fewer expressions and the same decisions: for the API server, an expression costs more than its text.

For each expression of a policy, the API server keeps a table of every function of CEL: 65 KiB, however short the
expression is, and three times as much while garbage waits for its collection. The 450 expressions of Tenantry's
policies were the largest part of the memory that Tenantry added to an idle API server. For each variable it also makes
an object with every evaluation of the policy, whether the variable is used or not. Pure.

    matchConditions  a, b          ─►  a && b
    variables        was, is       ─►  written where they are used, if that is as cheap

Conditions: an error in one is ignored if another one is false, as in CEL's `&&`. Variables: the API server evaluates
each of them at most once, so one with a loop, or one that is used in a loop, stays.

Source: github.com/google/cel-go, cel/program.go, `newProgram`; k8s.io/apiserver, pkg/admission/plugin/cel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tenantry.api.model import Json

LONGEST_NAME = 63
"""Of a condition, in characters."""

MOST_REPEATED = 400
"""How many characters more a policy may have for a variable that is written where it is used."""

LONGEST = 2500
"""The longest expression, in characters, that variables are written into: compiling takes quadratic time."""

LOOPS = (
    *("all", "exists", "exists_one", "existsOne", "filter", "map", "sortBy"),
    *("transformList", "transformMap", "transformMapEntry"),
)
"""The macros that evaluate an argument for each element.

Source: cel-go, parser/macro.go, ext/comprehensions.go and ext/lists.go.
"""

_LOOP = re.compile(rf"\.(?:{'|'.join(LOOPS)})\(")
_COSTLY = re.compile(rf"\.(?:{'|'.join((*LOOPS, 'format'))})\(")  # `format` writes the whole object as text
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"")


def condensed(made: Sequence[Json]) -> list[Json]:
    """Return what is installed, with policies that have fewer expressions; other objects stay as they are."""
    return [_condensed(each) if each["kind"].endswith("AdmissionPolicy") else each for each in made]


def _condensed(policy: Json) -> Json:
    spec: Json = {**policy["spec"]}
    conditions = spec.get("matchConditions", [])
    if len(conditions) > 1:
        spec["matchConditions"] = [_joined(conditions)]
    if "variables" in spec:
        spec = _without_variables(spec)
    return {**policy, "spec": spec}


def _joined(conditions: Sequence[Json]) -> Json:
    name = "-and-".join(str(each["name"]) for each in conditions)
    return {
        "name": name if len(name) <= LONGEST_NAME else conditions[0]["name"],
        "expression": " && ".join(f"({each['expression']})" for each in conditions),
    }


def _without_variables(spec: Json) -> Json:
    """Return the spec of a policy without the variables that can be written where they are used."""
    variables = {each["name"]: str(each["expression"]) for each in spec["variables"]}
    # From the last to the first: a variable only uses those before it.
    for name in reversed(list(variables)):
        users = [cel for cel in (*variables.values(), *_others(spec)) if _uses(name, cel)]
        once = _is_used_once(name, variables, spec)
        if _is_cheap(name, variables[name], users, once=once):
            inner = f"({variables.pop(name)})"
            variables = {other: _written(name, inner, cel) for other, cel in variables.items()}
            spec = _rewritten(spec, name, inner)
    kept = [{"name": name, "expression": cel} for name, cel in variables.items()]
    return {key: value for key, value in spec.items() if key != "variables"} | ({"variables": kept} if kept else {})


def _is_used_once(name: str, variables: Mapping[str, str], spec: Json) -> bool:
    """Return whether the validations together use a variable at most once, and so do the messages, and no variable."""
    validations = spec.get("validations", ())
    parts = ([each.get(key, "") for each in validations] for key in ("expression", "messageExpression"))
    return not any(_uses(name, cel) for cel in variables.values()) and all(
        sum(len(_uses(name, cel)) for cel in part) <= 1 for part in parts
    )


def _is_cheap(name: str, cel: str, users: Sequence[str], *, once: bool) -> bool:
    """Return whether a variable costs as little where it is used.

    Args:
        name: Its name.
        cel: Its expression.
        users: The expressions that use it.
        once: Whether it would still be evaluated once.
    """
    uses = sum(len(_uses(name, user)) for user in users)
    return (
        (once or not _COSTLY.search(cel))
        and len(cel) * (uses - 1) <= MOST_REPEATED
        and all(len(user) + len(cel) <= LONGEST for user in users)
        and not any(start < use < end for user in users for start, end in loops(user) for use in _uses(name, user))
    )


def _uses(name: str, cel: str) -> list[int]:
    """Return where an expression uses a variable."""
    return [found.start() for found in re.finditer(rf"\bvariables\.{name}\b", cel)]


def _written(name: str, inner: str, cel: str) -> str:
    return re.sub(rf"\bvariables\.{name}\b", lambda _: inner, cel)


def loops(cel: str) -> list[tuple[int, int]]:
    """Return the arguments of each macro that repeats an expression: the first character, and the one after the last.

    Args:
        cel: A valid expression.
    """
    # Parentheses in texts are none; blanks keep the places of the rest.
    plain = _QUOTED.sub(lambda found: " " * len(found[0]), cel)
    return [(found.end(), _closing(plain, found.end())) for found in _LOOP.finditer(plain)]


def _closing(cel: str, start: int) -> int:
    depth = 1
    for place in range(start, len(cel)):
        depth += {"(": 1, ")": -1}.get(cel[place], 0)
        if not depth:
            return place
    return len(cel)


def _others(spec: Json) -> Iterable[str]:
    """Return the expressions of a policy that may use variables, apart from variables."""
    for each in spec.get("validations", ()):
        yield each["expression"]
        yield each.get("messageExpression", "")
    for each in spec.get("mutations", ()):
        yield each["jsonPatch"]["expression"]


def _rewritten(spec: Json, name: str, inner: str) -> Json:
    """Return the spec with a variable written into every expression that is none of a variable."""

    def in_all(value: Json) -> Json:
        keys = ("expression", "messageExpression")
        return {**value, **{key: _written(name, inner, value[key]) for key in keys if key in value}}

    found = {**spec}
    if "validations" in spec:
        found["validations"] = [in_all(each) for each in spec["validations"]]
    if "mutations" in spec:
        found["mutations"] = [{**each, "jsonPatch": in_all(each["jsonPatch"])} for each in spec["mutations"]]
    return found

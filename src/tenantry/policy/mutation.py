"""Evaluates mutating policies as the API server does, for API servers that have none. Pure.

    MutatingAdmissionPolicy ─► compiled(): once ─► patched(): JSON patch operations for one request

The patches of a policy are applied one after the other: each expression sees what the ones before have changed, and its
variables are computed anew. The API server fills in defaults after each of them, and here only at the end: no
expression of Tenantry reads a default that an earlier one of its policy has caused. The conditions of a policy and its
selectors are not evaluated here: a webhook has the same ones, and the API server evaluates these.

Source: Kubernetes, "Mutating Admission Policy"; k8s.io/apiserver, pkg/admission/plugin/policy/mutating; RFC 6902.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from tenantry.policy.cel.evaluate import BUDGET, Budget, Expression, compiled
from tenantry.policy.cel.syntax import UnsupportedExpression
from tenantry.policy.cel.values import EvaluationError
from tenantry.policy.request import Item, Json

_ADD, _REPLACE = "add", "replace"

MOST_ITEMS = 20_000
"""How many items of lists and maps the macros of a policy visit for one request.

A tenant chooses how long the lists of an object are, and a validating policy bounds its size only later. The API server
has a limit for the same purpose (CEL cost).
"""

MOST_OPERATIONS = 500
"""How many operations a policy answers. The API server needs 0.15 ms of CPU for each [measured], and bounds the size of
the object only later."""


class MutatingPolicy(msgspec.Struct, frozen=True):
    """A mutating policy whose expressions are compiled.

    Args:
        name: Of the policy.
        variables: By name.
        patches: Each gives a list of operations.
    """

    name: str
    variables: Mapping[str, Expression]
    patches: tuple[Expression, ...]


class MutationFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the expressions of a policy see.

    Args:
        object: The new object, as the API server has it.
        old_object: The stored object; None for a creation.
        request: The field `request` of the AdmissionReview.
        namespace: The namespace of the object; None for a cluster-scoped one.
        params: The parameters; None for a policy without.
    """

    object: Json
    old_object: Json | None
    request: Json
    namespace: Json | None = None
    params: Json | None = None


def policy(manifest: Json) -> MutatingPolicy:
    """Compile a MutatingAdmissionPolicy.

    Raises:
        UnsupportedExpression: It has an expression, or a type of patch, that is not evaluated here.
    """
    spec: Json = manifest["spec"]
    name: str = manifest["metadata"]["name"]
    mutations: list[Json] = spec["mutations"]
    if any(each["patchType"] != "JSONPatch" for each in mutations):
        raise UnsupportedExpression(f"MutatingAdmissionPolicy {name!r} must have patches of type JSONPatch only")
    return MutatingPolicy(
        name,
        {each["name"]: compiled(each["expression"]) for each in spec.get("variables", ())},
        tuple(compiled(each["jsonPatch"]["expression"]) for each in mutations),
    )


class _Variables(dict[str, Any]):
    """Computes a variable when an expression first reads it."""

    def __init__(self, expressions: Mapping[str, Expression], scope: Item) -> None:
        super().__init__()
        self._expressions = expressions
        self._scope = scope

    def __missing__(self, name: str) -> object:
        self[name] = value = self._expressions[name](self._scope)
        return value


def patched(mutating: MutatingPolicy, facts: MutationFacts) -> list[Item]:
    """Return the operations of JSON Patch by which a policy changes an object; [] if it changes nothing.

    Raises:
        EvaluationError: An expression has no value, or a patch does not fit the object, or has too many operations.
    """
    found: list[Item] = []
    value = facts.object
    budget = Budget(MOST_ITEMS)
    for patch in mutating.patches:
        operations: list[Item] = patch(_scope(facts, value, mutating, budget))
        if operations:
            found += operations
            if len(found) > MOST_OPERATIONS:
                raise EvaluationError(f"it needs {len(found)} changes, and at most {MOST_OPERATIONS} are made")
            value = applied(value, operations)
    return found


def _scope(facts: MutationFacts, value: Json, mutating: MutatingPolicy, budget: Budget) -> Item:
    scope: Item = {
        "object": value,
        "oldObject": facts.old_object,
        "request": facts.request,
        "namespaceObject": facts.namespace,
        "params": facts.params,
        BUDGET: budget,
    }
    scope["variables"] = _Variables(mutating.variables, scope)
    return scope


# -- JSON Patch -----------------------------------------------------------------------------------


class _Copied:
    """The containers of an object that were copied: only those on the paths of a patch are.

    Args:
        value: The object, which stays as it is.
    """

    def __init__(self, value: Json) -> None:
        self.root: Item = dict(value)
        # By id; they are kept here, so that no other one gets the id of one that a patch has replaced.
        self._own: dict[int, object] = {id(self.root): self.root}

    def holder(self, path: str, above: Sequence[str]) -> object:
        """Return the container at some steps of a path, which may be changed.

        Raises:
            EvaluationError: The path does not exist.
        """
        found: object = self.root
        for step in above:
            under = _under(found, step, path)
            if isinstance(under, (dict, list)) and id(cast("object", under)) not in self._own:
                under = cast("Item | list[object]", under).copy()
                self._own[id(under)] = under
                _set(found, step, under)
            found = cast("object", under)
        return found


def _set(holder: object, step: str, value: object) -> None:
    if isinstance(holder, list):
        cast("list[object]", holder)[int(step)] = value
    else:
        cast("Item", holder)[step] = value


def applied(value: Json, operations: Sequence[Json]) -> Item:
    """Return an object with operations `add` and `replace` applied; it shares what is not on their paths.

    Raises:
        EvaluationError: An operation does not fit the object.
    """
    out = _Copied(value)
    for each in operations:
        *above, last = _steps(each["path"])
        _put(out.holder(each["path"], above), last, each["value"], each)
    return out.root


def _steps(path: str) -> list[str]:
    first, *steps = path.split("/")
    if first or not steps:
        raise EvaluationError(f"path {path[:80]!r} of a patch must begin with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _under(holder: object, step: str, path: str) -> object:
    if isinstance(holder, dict) and step in holder:
        return cast("Item", holder)[step]
    if isinstance(holder, list) and step.isdecimal() and int(step) < len(cast("list[object]", holder)):
        return cast("list[object]", holder)[int(step)]
    raise EvaluationError(f"path {path[:80]!r} of a patch does not exist")


def _put(holder: object, last: str, value: object, operation: Json) -> None:
    path, kind = operation["path"], operation["op"]
    if kind not in {_ADD, _REPLACE}:
        raise EvaluationError(f"operation {kind!r} of a patch must be {_ADD} or {_REPLACE}")
    if kind == _REPLACE:
        _under(holder, last, path)
    if isinstance(holder, dict):
        cast("Item", holder)[last] = value
    elif isinstance(holder, list):
        _put_item(cast("list[object]", holder), last, value, path, is_new=kind == _ADD)
    else:
        raise EvaluationError(f"path {path[:80]!r} of a patch does not exist")


def _put_item(items: list[object], last: str, value: object, path: str, *, is_new: bool) -> None:
    if not is_new:
        items[int(last)] = value
    elif last == "-":
        items.append(value)
    elif last.isdecimal() and int(last) <= len(items):
        items.insert(int(last), value)
    else:
        raise EvaluationError(f"path {path[:80]!r} of a patch does not exist")

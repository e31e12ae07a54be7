"""The condition of a policy on a kind of which there are many objects: a quick look at the whole object. Pure.

    checks of the object ──► what only one needs, bound there ────┐
    checks of its values ──► entries of the rules, bound once ────┴─► suspects ─► what is left, bound around it

If the conditions of a policy hold, the API server converts the object for CEL three times more, for validations,
messages and audit annotations, whether there are any or not. For an honest object this condition saves that, and half
of the evaluation.

A condition sees parameters, but no variables, and it does not see the labels of the namespace. Labels only excuse: if
one could, the policy itself decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from tenantry.policy import text
from tenantry.policy.check import FORMS, RuleCheck, quoted

_VARIABLE = re.compile(r"\bvariables\.(\w+)")
_EXCUSE = re.compile(
    r"'[^']*' in namespaceObject\.metadata\.labels"
    r"|[\w.\[\]'/]+ == namespaceObject\.metadata\.labels\[\?'[^']*'\]\.orValue\(''\)"
)
_KEYED = "refused", "allowed", "patterns", "chosen"
"""The forms whose keys are paths of rules, which expressions write out. An honest object needs few of their entries."""
_IS_SET = re.compile(rf"'([\w.]+)' in variables\.({'|'.join(_KEYED)})\b")
_ENTRY = re.compile(
    r"variables\.(?:(allowed)\['([\w.]+)'\]\.values|(chosen)\['([\w.]+)'\]\.value|(patterns)\['([\w.]+)'\])(?!\w)"
)
_MOST = re.compile(r"(variables\.maxima\[[^\[\]]+\])\.value\b")


def suspects(checks: Sequence[RuleCheck], cel_of: Callable[[RuleCheck], str] = lambda check: check.suspects) -> str:
    """Return CEL: whether anything is wrong; it goes over the containers once for all checks.

    Args:
        checks: All checks of a kind of object.
        cel_of: Returns CEL: whether one of them refuses the object, or its value `c`.
    """
    alone = [f"({cel_of(check)})" for check in checks if not check.scope.among]
    items: dict[str, list[str]] = {}
    for check in checks:
        if check.scope.among:
            items.setdefault(check.scope.among, []).append(f"({cel_of(check)})")
    return " || ".join([*alone, *(f"{among}.exists(c, {' || '.join(parts)})" for among, parts in items.items())])


def glance(checks: Sequence[RuleCheck], own: Mapping[str, str]) -> str:
    """Return CEL for a condition: whether anything may be wrong with an object.

    Args:
        checks: All checks of a kind of object.
        own: The variables of the kind and of its checks, name to CEL, in the order in which they are used.
    """
    own = {name: _from_text(cel) for name, cel in own.items()}
    entries: dict[str, str] = {}

    def cel_of(check: RuleCheck) -> str:
        return _of_items(check, entries) if check.scope.among else _of_object(check, checks, own)

    cel = _from_text(suspects(checks, cel_of))
    texts = {f"{form}Text": text.lines(form) for form in _KEYED}
    maps = {**{form: text.decoded(form) for form in FORMS}, "maxima": text.decoded("maxima", "f[2]")}
    cel = _layered(cel, {**texts, **maps, **entries, **own})
    return _EXCUSE.sub("false", _VARIABLE.sub(r"_\1", cel))


def _of_items(check: RuleCheck, entries: dict[str, str]) -> str:
    """Return CEL for one of many values; what it needs for each is read once, and entered in `entries`."""
    cel = _ENTRY.sub(lambda match: _named(match, entries), check.suspects)
    return _IS_SET.sub(lambda match: _known(match, entries), cel) if check.usual else cel


def _of_object(check: RuleCheck, checks: Sequence[RuleCheck], own: Mapping[str, str]) -> str:
    """Return CEL for the whole object; what only this check needs is read or computed where it is needed."""
    entries: dict[str, str] = {}
    bad = _ENTRY.sub(lambda match: _named(match, entries), check.bad)
    others = " ".join([*(each.suspects for each in checks if each is not check), *own.values()])
    elsewhere = frozenset(_VARIABLE.findall(others))
    only = {name: cel for name, cel in own.items() if name not in elsewhere}
    return msgspec.structs.replace(check, bad=_bound(bad, {**entries, **only})).suspects


def _bound(cel: str, available: Mapping[str, str]) -> str:
    """Return CEL in which the variables that it uses are bound, one inside the other."""
    for name, value in reversed([*available.items()]):
        if name in _VARIABLE.findall(cel):
            inner = re.sub(rf"\bvariables\.{name}\b", f"_{name}", cel)
            cel = f"[{value}].exists(_{name}, {inner})"
    return cel


def _layered(cel: str, available: Mapping[str, str]) -> str:
    """Return CEL in which the variables that it uses are bound, as many at once as do not use each other.

    For the cost of each step of an expression, the API server walks through all bindings around it: three dozen of
    them, one inside the other, take longer than the expression. Source: cel-go, interpreter/runtimecost.go.
    """
    depths: dict[str, int] = {}
    for name, value in available.items():
        depths[name] = max((depths[each] + 1 for each in _VARIABLE.findall(value) if each in depths), default=0)
    for depth in range(max(depths.values(), default=0), -1, -1):
        found = frozenset(_VARIABLE.findall(cel))
        used = [name for name, at in depths.items() if at == depth and name in found]
        if used:
            inner = re.sub(rf"\bvariables\.({'|'.join(used)})\b", rf"_{depth}.\1", cel)
            entries = ", ".join(f"{quoted(name)}: dyn({available[name]})" for name in used)
            cel = f"[{{{entries}}}].exists(_{depth}, {inner})"
    return cel


def _from_text(cel: str) -> str:
    """Return CEL that reads entries where it needs them, instead of parsing the maps first."""
    entries: dict[str, str] = {}
    found = _IS_SET.sub(lambda match: _known(match, entries), _ENTRY.sub(lambda match: _named(match, entries), cel))
    for name, value in entries.items():
        found = found.replace(f"variables.{name}", f"({value})")
    return _MOST.sub(r"\1", found)


def _named(match: re.Match[str], entries: dict[str, str]) -> str:
    """Return the variable with an entry of the rules, and enter it."""
    form, key = (each for each in match.groups() if each is not None)
    name = f"{form}_{key.replace('.', '_')}"
    entries[name] = text.entry(f"variables.{form}Text", form, key)
    return f"variables.{name}"


def _known(match: re.Match[str], entries: dict[str, str]) -> str:
    """Return the variable that says whether a rule is set, and enter it."""
    key, form = match.groups()
    name = f"has_{form}_{key.replace('.', '_')}"
    entries[name] = text.has_entry(f"variables.{form}Text", key)
    return f"variables.{name}"

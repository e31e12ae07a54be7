"""The condition of a policy on a kind of which there are many objects: a quick look at the whole object. Pure.

    checks ─► suspects, once over the containers ─► variables that one check uses, bound there
           ─► entries of the rules, read from their text ─► variables that are left, bound around it

If the conditions of a policy hold, the API server converts the object for CEL three times more, for validations,
messages and audit annotations, whether there are any or not. For an honest object this condition saves that, and half
of the evaluation.

A condition sees parameters, but no variables, and it does not see the labels of the namespace. Labels only excuse: if
one could, the policy itself decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from tenantry.policy import text
from tenantry.policy.check import FORMS, RuleCheck

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
_BOUND = re.compile(r"(variables\.maxima\[[^\[\]]+\])\.value\b")


def suspects(checks: Sequence[RuleCheck]) -> str:
    """Return CEL: whether anything is wrong; it goes over the containers once for all checks."""
    alone = [f"({check.suspects})" for check in checks if not check.scope.among]
    items: dict[str, list[str]] = {}
    for check in checks:
        if check.scope.among:
            items.setdefault(check.scope.among, []).append(f"({check.suspects})")
    return " || ".join([*alone, *(f"{among}.exists(c, {' || '.join(parts)})" for among, parts in items.items())])


def glance(checks: Sequence[RuleCheck], own: Mapping[str, str]) -> str:
    """Return CEL for a condition: whether anything may be wrong with an object.

    Args:
        checks: All checks of a kind of object.
        own: The variables of the kind and of its checks, name to CEL, in the order in which they are used.
    """
    own = {name: _from_text(cel) for name, cel in own.items()}
    cel = _from_text(suspects([_lazy(check, checks, own) for check in checks]))
    texts = {f"{form}Text": text.lines(form) for form in _KEYED}
    maps = {**{form: text.decoded(form) for form in FORMS}, "maxima": text.decoded("maxima", "f[2]")}
    for name, value in reversed({**texts, **maps, **own}.items()):
        if name in _VARIABLE.findall(cel):
            cel = f"[{value}].exists(_{name}, {cel})"
    return _EXCUSE.sub("false", _VARIABLE.sub(r"_\1", cel))


def _from_text(cel: str) -> str:
    """Return CEL that reads entries where it needs them, instead of parsing the maps first."""
    found = _ENTRY.sub(_read, cel)
    found = _IS_SET.sub(lambda match: text.has_entry(f"variables.{match[2]}Text", match[1]), found)
    return _BOUND.sub(r"\1", found)


def _read(match: re.Match[str]) -> str:
    form, key = (each for each in match.groups() if each is not None)
    return text.entry(f"variables.{form}Text", form, key)


def _lazy(check: RuleCheck, checks: Sequence[RuleCheck], own: Mapping[str, str]) -> RuleCheck:
    """Return a check of the whole object that binds the variables which only it uses, where it uses them."""
    if check.scope.among:
        return check
    others = " ".join([*(each.suspects for each in checks if each is not check), *own.values()])
    bad, elsewhere = check.bad, frozenset(_VARIABLE.findall(others))
    for name in reversed([name for name in own if name not in elsewhere]):
        inner = re.sub(rf"\bvariables\.{name}\b", f"_{name}", bad)
        bad = f"[{own[name]}].exists(_{name}, {inner})" if inner != bad else bad
    return msgspec.structs.replace(check, bad=bad)

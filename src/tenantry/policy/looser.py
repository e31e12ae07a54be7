"""What is looser in one level's rules than what is in force above it: CEL by which the API server refuses it (E15).

Patterns cannot be compared: each level's are a list of its own, and a value must match one of each. What comes in
behind admission's back does no harm: merging never loosens.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect

from tenantry.api.rules import Level, Permission, Rules, Seccomp
from tenantry.policy.check import one_of, quoted

LEVEL = "podSecurity.level"
DEFAULT = "storageClasses.default"
_ORDER = f"[{', '.join(quoted(level.value) for level in Level)}]"
_RULES = "object.spec.rules"


def problem(ignored: str = "") -> str:
    """Return CEL for what is looser in `object.spec.rules` than in the variables of a section, '' for nothing.

    Args:
        ignored: The source whose rules may be replaced; "" for none.
    """
    text = "''"
    for offends, source, path, fix in reversed(list(_comparisons())):
        counts = f" && {source} != {quoted(ignored)}" if ignored else ""
        told = f"'spec.rules.{path} must not be looser than what ' + {source} + ' says: ' + {fix}"
        text = f"{offends}{counts} ? {told} : {text}"
    return text


Comparison = tuple[str, str, str, str]
"""CEL of whether it is looser, CEL of who is above, the path of the rule, and CEL of what would do."""


def _comparisons() -> Iterator[Comparison]:
    for prefix, fields in _fields(Rules):
        for name, info in fields:
            if name == "action":
                continue
            path, value = f"{prefix}.{name}", f"{_RULES}.{prefix}.{name}"
            # What is only warned of, or noted, loosens nothing.
            given = f"has({_RULES}.{prefix}) && {_RULES}.{prefix}.action == 'Enforce' && has({value})"
            for offends, source, fix in _comparison(path, value, info):
                yield f"{given} && {offends}", source, path, fix


def _fields(model: type) -> list[tuple[str, list[tuple[str, inspect.Type]]]]:
    """Return the names of the rules and of their fields, as they are written, with the fields' types."""
    whole = inspect.type_info(model)
    found: list[tuple[str, list[tuple[str, inspect.Type]]]] = []
    for field in whole.fields if isinstance(whole, inspect.StructType) else ():
        inner = _bare(field.type)
        fields = inner.fields if isinstance(inner, inspect.StructType) else ()
        found.append((field.encode_name, [(each.encode_name, _bare(each.type)) for each in fields]))
    return found


def _bare(info: inspect.Type) -> inspect.Type:
    while isinstance(info, inspect.Metadata):
        info = info.type
    return info


def _comparison(path: str, value: str, info: inspect.Type) -> list[tuple[str, str, str]]:
    match info:
        case inspect.EnumType(cls) if cls is Permission:
            return [(f"{value} == 'Allow' && {_refused(path)}", _refuser(path), "'must be Refuse'")]
        case inspect.EnumType(cls) if cls is Level:
            above = f"variables.chosen[{quoted(path)}]"
            is_below = f"{_ORDER}.indexOf({value}) < {_ORDER}.indexOf({above}.value)"
            offends = f"{quoted(path)} in variables.chosen && {is_below}"
            return [(offends, f"{above}.source", f"'must be ' + {above}.value + ' or tighter'")]
        case inspect.EnumType(cls) if cls is Seccomp:
            unset, unconfined = "podSecurity.seccompUnset", "podSecurity.seccompUnconfined"
            return [
                (f"{value} != 'Required' && {_refused(unset)}", _refuser(unset), "'must be Required'"),
                (f"{value} == 'Any' && {_refused(unconfined)}", _refuser(unconfined), "'must be Confined or Required'"),
            ]
        case inspect.VarTupleType():
            return _of_list(path, value)
        case inspect.DictType():
            larger = f"r in variables.maxima && quantity(string({value}[r])).isGreaterThan(quantity("
            larger += "variables.maxima[r].value))"
            # Go's maps have no order.
            above = f"variables.maxima[{value}.filter(r, {larger}).min()]"
            told = f"'must be at most ' + {above}.value"
            return [(f"{value}.exists(r, {larger})", f"{above}.source", told)]
        case _:
            return _of_text(path, value)


def _refused(path: str) -> str:
    return f"{quoted(path)} in variables.refused"


def _refuser(path: str) -> str:
    return f"variables.refused[{quoted(path)}]"


def _of_list(path: str, value: str) -> list[tuple[str, str, str]]:
    if path in {"images.allowed", "hostnames.allowed", "containers.requiredLimits"}:
        return []
    above = f"variables.allowed[{quoted(path)}]"
    covered = (
        f"v in {above}.values || v.contains('=') && v.split('=')[0] in {above}.values"
        f" || isCIDR(v) && {above}.values.exists(a, isCIDR(a) && cidr(a).containsCIDR(v))"
    )
    offends = f"{quoted(path)} in variables.allowed && {value}.exists(v, !({covered}))"
    return [(offends, f"{above}.source", f"'each ' + {one_of(f'{above}.values')}")]


def _of_text(path: str, value: str) -> list[tuple[str, str, str]]:
    if path == DEFAULT:
        above = "variables.allowed['storageClasses.allowed']"
        offends = f"'storageClasses.allowed' in variables.allowed && !({value} in {above}.values)"
        return [(offends, f"{above}.source", one_of(f"{above}.values"))]
    above = f"variables.chosen[{quoted(path)}]"
    offends = f"{quoted(path)} in variables.chosen && {value} != {above}.value"
    return [(offends, f"{above}.source", f"'must be ' + {above}.value")]

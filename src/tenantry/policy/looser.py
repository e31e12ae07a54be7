"""CEL that finds rules of a level that are looser than the rules above it (E15). Pure.

Patterns cannot be compared: each level adds a list, and a value must match a pattern of each. A looser rule that got
past admission does no harm: merging never loosens.

The expression iterates over the paths of rules, as `podSecurity.privileged`, which are also the keys of the maps that
they are compared with. So its length depends on the ways to compare, and not on the number of rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenantry.api.rules import PodSecurityLevel, Standard
from tenantry.policy.check import listed, one_of, quoted
from tenantry.world.rules import MAXIMA, SINGLE_MAXIMA

LEVEL = "podSecurity.level"
STANDARD = "standard"
SECCOMP = "podSecurity.seccomp"
UNSET, UNCONFINED = "podSecurity.seccompUnset", "podSecurity.seccompUnconfined"
CLASSES, DEFAULT = "storageClasses.allowed", "storageClasses.default"
_ORDERS = {LEVEL: listed(tuple(PodSecurityLevel)), STANDARD: listed(tuple(Standard))}
"""Path to CEL: its values, from the loosest to the tightest."""

_GIVEN = "variables.given"


def variables(ignored: str) -> dict[str, str]:
    """Return the variables that `problem` uses beside the maps of a section: name to CEL.

    Args:
        ignored: CEL: the start of the sources whose rules may be loosened; the empty string for none.
    """
    return {
        # Rules that only warn or audit loosen nothing.
        "given": (
            f"dyn(object.spec.rules).transformMapEntry(s, rules, s == {quoted(STANDARD)} ? {{s: rules}}"
            " : rules.action == 'Enforce' ? rules.transformMapEntry(f, v, {s + '.' + f: v}) : {})"
        ),
        "ignored": ignored,
    }


def problem() -> str:
    """Return CEL: the message about a looser rule in `object.spec.rules`, '' for none."""
    found = " + ".join((*_ordered(), _permissions(), *_seccomp(), _lists(), _largest(), _default_class(), _texts()))
    return f"({found} + [''])[0]"


def _each(of: str, bad: str, fix: str) -> str:
    """Return CEL: the messages for all paths `p` of a map for which a condition holds."""
    source = f"variables.{of}[p]" if of == "refused" else f"variables.{of}[p].source"
    offends = f"p in variables.{of} && !{_ignores(source)} && ({bad})"
    # Go's maps have no order.
    return f"{_GIVEN}.map(p, {offends}, string(p)).sort().map(p, {_message('p', source, fix)})"


def _one(path: str, key: str, of: str, bad: str, fix: str) -> str:
    """Return CEL: the message for one path that is compared with another key of a map."""
    above = f"variables.{of}[{quoted(key)}]"
    source = above if of == "refused" else f"{above}.source"
    offends = f"{quoted(path)} in {_GIVEN} && {quoted(key)} in variables.{of}"
    return f"({offends} && !{_ignores(source)} && ({bad}) ? [{_message(quoted(path), source, fix)}] : [])"


def _message(path: str, source: str, fix: str) -> str:
    return f"'spec.rules.' + {path} + ' must not be looser than what ' + {source} + ' says: ' + {fix}"


def _ignores(source: str) -> str:
    return f"(variables.ignored != '' && {source}.startsWith(variables.ignored))"


def _permissions() -> str:
    return _each("refused", f"{_GIVEN}[p] == 'Allow'", "'must be Refuse'")


def _ordered() -> Iterator[str]:
    for path, order in _ORDERS.items():
        above = f"variables.chosen[{quoted(path)}].value"
        bad = f"{order}.indexOf({_GIVEN}[{quoted(path)}]) < {order}.indexOf({above})"
        yield _one(path, path, "chosen", bad, f"'must be ' + {above} + ' or tighter'")


def _seccomp() -> tuple[str, str]:
    value = f"{_GIVEN}[{quoted(SECCOMP)}]"
    return (
        _one(SECCOMP, UNSET, "refused", f"{value} != 'Required'", "'must be Required'"),
        _one(SECCOMP, UNCONFINED, "refused", f"{value} == 'Any'", "'must be Confined or Required'"),
    )


def _lists() -> str:
    above = "variables.allowed[p].values"
    covered = (
        f"v in {above} || v.contains('=') && v.split('=')[0] in {above}"
        f" || isCIDR(v) && {above}.exists(a, isCIDR(a) && cidr(a).containsCIDR(v))"
    )
    return _each("allowed", f"{_GIVEN}[p].exists(v, !({covered}))", f"'each ' + {one_of(above)}")


def _largest() -> str:
    return " + ".join(_larger(path, before) for path, before in MAXIMA.items())


def _larger(path: str, before: str) -> str:
    """Return CEL: the messages for resources of which a level allows more than the level above."""
    value = f"{_GIVEN}[{quoted(path)}]"
    if path in SINGLE_MAXIMA:
        value = f"{{{quoted(SINGLE_MAXIMA[path])}: {value}}}"
    key = f"({quoted(before)} + r)" if before else "r"
    above = f"variables.maxima[{key}]"
    larger = f"{value}.map(r, {key} in variables.maxima && !{_ignores(f'{above}.source')}"
    larger += f" && quantity(string({value}[r])).isGreaterThan(quantity({above}.value)), string(r)).sort()"
    told = _message(quoted(path), f"{above}.source", f"'must be at most ' + {above}.value")
    return f"({quoted(path)} in {_GIVEN} ? {larger}.map(r, {told}) : [])"


def _default_class() -> str:
    above = f"variables.allowed[{quoted(CLASSES)}].values"
    outside = _one(DEFAULT, CLASSES, "allowed", f"!({_GIVEN}[{quoted(DEFAULT)}] in {above})", one_of(above))
    # Claims without a class would get a refused one.
    default = f"variables.chosen[{quoted(DEFAULT)}]"
    inherits = f"!({quoted(DEFAULT)} in {_GIVEN}) && {quoted(DEFAULT)} in variables.chosen"
    left_out = f"{quoted(CLASSES)} in {_GIVEN} && {inherits} && !({default}.value in {_GIVEN}[{quoted(CLASSES)}])"
    told = (
        f"'spec.rules.{CLASSES} must have \\'' + {default}.value + '\\', which is {DEFAULT} of ' + {default}.source"
        f" + ', or spec.rules.{DEFAULT} must be one of it'"
    )
    return f"{outside} + ({left_out} ? [{told}] : [])"


def _texts() -> str:
    bad = f"!(p in {listed((*_ORDERS, DEFAULT))}) && {_GIVEN}[p] != variables.chosen[p].value"
    return _each("chosen", bad, "'must be ' + variables.chosen[p].value")

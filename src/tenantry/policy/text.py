"""The maps of a section as text for parameters of policies, and the CEL that parses it. Pure.

Each form is one text with a line for each entry: its key, a tab, and its value.

    refused, required         KEY tab SOURCE
    maxima, chosen            KEY tab SOURCE tab VALUE
    allowed                   KEY tab SOURCE tab VALUE unit VALUE …
    patterns                  KEY tab SOURCE unit PATTERN unit PATTERN … record SOURCE unit PATTERN …

`unit` and `record` are the separators of ASCII. The schema of rules refuses control characters; in what is stored
from before it did, they are replaced: a value must not end its line and begin another rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from tenantry.api.policyparameters import PREFIX
from tenantry.api.tenancyrules import Bound, Listed, Section

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
LINE, FIELD, UNIT, RECORD = "\n", "\t", "\x1f", "\x1e"


def encoded(section: Section) -> dict[str, str]:
    """Return a section as text, form to lines; an empty form is left out."""
    forms = {
        "refused": _lines(section.refused, _plain),
        "allowed": _lines(section.allowed, _listed),
        "patterns": _lines(section.patterns, lambda lists: RECORD.join(map(_list, lists))),
        "maxima": _lines(section.maxima, _bound),
        "required": _lines(section.required, _plain),
        "chosen": _lines(section.chosen, _bound),
    }
    return {form: text for form, text in forms.items() if text}


def _lines(entries: Mapping[str, T], text: Callable[[T], str]) -> str:
    return LINE.join(f"{_plain(key)}{FIELD}{text(entries[key])}" for key in sorted(entries))


def _plain(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _bound(bound: Bound) -> str:
    return FIELD.join((_plain(bound.source), _plain(bound.value)))


def _listed(listed: Listed) -> str:
    return FIELD.join((_plain(listed.source), UNIT.join(map(_plain, listed.values))))


def _list(listed: Listed) -> str:
    return UNIT.join(map(_plain, (listed.source, *listed.values)))


# -- CEL ------------------------------------------------------------------------------------------

_VALUES = "f[2] == '' ? [] : f[2].split('\\x1f')"
_READ = {
    "refused": "f[1]",
    "required": "f[1]",
    "maxima": "{'source': dyn(f[1]), 'value': dyn(f[2])}",
    "chosen": "{'source': dyn(f[1]), 'value': dyn(f[2])}",
    "allowed": f"{{'source': dyn(f[1]), 'values': dyn({_VALUES})}}",
    "patterns": (
        "f[1].split('\\x1e').map(l, [l.split('\\x1f')].map(u,"
        " {'source': dyn(u[0]), 'values': dyn(u.slice(1, size(u)))})[0])"
    ),
}


def decoded(form: str, value: str = "") -> str:
    """Return CEL: the map of a form, parsed from the policy's parameters; empty if the form is missing.

    Args:
        form: The name of the map.
        value: CEL: the value of an entry from its fields `f`; "" for all of it.
    """
    entry = f"{{f[0]: {value or _READ[form]}}}"
    fields = f"{parameter(form)}.split('\\n').map(l, l.split('\\t'))"
    return f"{has_parameter(form)} ? {fields}.transformMapEntry(i, f, {entry}) : {{}}"


def lines(form: str) -> str:
    """Return CEL: the text of a form from the policy's parameters, each line after a line feed; '' without entries."""
    return f"{has_parameter(form)} ? '\\n' + {parameter(form)} : ''"


def has_entry(text: str, key: str) -> str:
    """Return CEL: whether `lines` have a key."""
    return f"{text}.contains('\\n{key}\\t')"


def entry(text: str, form: str, key: str) -> str:
    """Return CEL: what `lines` have for a key, without its source; empty if they do not have it.

    Args:
        text: CEL: the lines.
        form: `allowed` for a list of values, `chosen` for a value, `patterns` for lists of patterns.
        key: The key.
    """
    line = f"{text}.split('\\n{key}\\t')[1].split('\\n')[0]"
    second = f"{line}.split('\\t')[1]"
    found, missing = {
        "allowed": (f"[{second}].map(v, v == '' ? [] : v.split('\\x1f'))[0]", "[]"),
        "chosen": (second, "''"),
        "patterns": (f"[['', {line}]].map(f, {_READ['patterns']})[0]", "[]"),
    }[form]
    return f"{has_entry(text, key)} ? {found} : {missing}"


def has_parameter(name: str) -> str:
    """Return CEL: whether the policy's parameters have a text."""
    return f"has(params.metadata.annotations) && '{PREFIX}{name}' in params.metadata.annotations"


def parameter(name: str) -> str:
    """Return CEL: a text of the policy's parameters; an error if they do not have it."""
    return f"params.metadata.annotations['{PREFIX}{name}']"

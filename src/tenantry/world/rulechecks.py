"""Predicts which values below `spec.rules` and `spec.isolation` the API server rejects: pure.

The schema of a field has the CEL of its rules. `CHECKS` has the same conditions in Python, by the CEL, so each field
that uses a rule is checked without being listed here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, cast

import re2 as untyped_re2
from msgspec import UNSET, inspect

from tenantry.api import quota, ruledeclarations
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.errors import InputError
from tenantry.api.model import Json, Model
from tenantry.api.rules import Rules
from tenantry.api.slice import SelectorOperator
from tenantry.api.tenant import NODES_OF_CLUSTER, SLICE_WITHOUT_NODES, Isolation, NodesChoice
from tenantry.api.wording import shortened
from tenantry.world import quantity

# google-re2 has no types.
_re2 = cast("Any", untyped_re2)

_CIDR = re.compile(r"([0-9a-fA-F.:]+)/(0|[1-9][0-9]{0,2})", re.ASCII)
_OBJECTS = ("configmaps", "helmReleases", "others", "secrets")


def wrong_rules(rules: Rules, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the message of each wrong value of rules."""
    yield from _struct(rules, path)
    classes = rules.storage_classes
    if not isinstance(classes, Model) or not isinstance(classes.default, str) or not isinstance(classes.allowed, tuple):
        return
    if classes.default not in classes.allowed:
        yield f"{path}.storageClasses.default", f"is {classes.default!r}; it must be one of storageClasses.allowed"


def wrong_isolation(isolation: Isolation, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the message of each wrong value of an isolation."""
    yield from _listed(f"{path}.allowedCidrs", isolation.allowed_cidrs, is_cidr, "a CIDR, as in 203.0.113.0/24")
    if isolation.control_plane is ControlPlaneChoice.DEDICATED and isolation.nodes is not NodesChoice.SHARED:
        yield f"{path}.nodes", NODES_OF_CLUSTER
    nodes = isolation.slice
    if nodes is UNSET:
        return
    if isolation.nodes is not NodesChoice.SLICE:
        yield f"{path}.slice", SLICE_WITHOUT_NODES
    yield from _struct(nodes, f"{path}.slice")
    for index, each in enumerate(nodes.selector.match_expressions):
        has_values = each.operator in {SelectorOperator.IN, SelectorOperator.NOT_IN}
        if has_values is not bool(each.values):
            where = f"{path}.slice.selector.matchExpressions[{index}].values"
            yield where, "must be set for In and NotIn, and must not be set otherwise"


def is_cidr(text: str) -> bool:
    """Return whether CEL's isCIDR accepts a text: no zone, no IPv4 in IPv6, no leading zeros, any bits of the host.

    Source: k8s.io/apiserver/pkg/cel/library/cidr.go.
    """
    found = _CIDR.fullmatch(text)
    if found is None:
        return False
    try:
        address = ipaddress.ip_address(found[1])
    except ValueError:
        return False
    mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    return not mapped and int(found[2]) <= address.max_prefixlen


def is_pattern(text: str) -> bool:
    """Return whether a text is a regular expression of RE2, also as a part of one that matches whole values."""
    options = _re2.Options()
    options.log_errors = False
    try:
        _re2.compile(text, options)
        _re2.compile(f"^(?:{text})$", options)
    except _re2.error:
        return False
    return True


# -- the checks -----------------------------------------------------------------------------------


def _listed(path: str, value: object, is_good: Callable[[str], bool], what: str) -> Iterator[tuple[str, str]]:
    for index, text in enumerate(cast("tuple[str, ...]", value)):
        if not is_good(text):
            yield f"{path}[{index}]", f"is {text[:64]!r}; it must be {what}"


def _patterns(path: str, value: object) -> Iterator[tuple[str, str]]:
    what = "a regular expression in the syntax of RE2, as in registry[.]example[.]com/.*"
    return _listed(path, value, is_pattern, what)


def _cidrs(path: str, value: object) -> Iterator[tuple[str, str]]:
    return _listed(path, value, is_cidr, "a CIDR, as in 203.0.113.0/24")


def _quantity(path: str, value: object) -> Iterator[tuple[str, str]]:
    try:
        if quantity.parse(cast("int | str", value)) < 0:
            yield path, f"is {value!r}; it must not be negative"
    except InputError as error:
        yield path, f"must be a quantity: {error}"


def _keys(pattern: str, what: str) -> Callable[[str, object], Iterator[tuple[str, str]]]:
    form = re.compile(pattern, re.ASCII)

    def check(path: str, value: object) -> Iterator[tuple[str, str]]:
        wrong = [key for key in cast("Mapping[str, object]", value) if len(key) > 253 or not form.search(key)]  # noqa: PLR2004 - as in the CEL
        if wrong:
            yield path, f"has {shortened(map(repr, wrong))}; it must have only {what}"

    return check


def _cel(annotated: object) -> str:
    """Return the CEL of the outermost rule of an annotated type."""
    info = inspect.type_info(annotated)
    return rules_of(info)[0] if isinstance(info, inspect.Metadata) else ""


def rules_of(info: inspect.Metadata) -> list[str]:
    """Return the CEL of the validations that a type declares itself."""
    schema = cast("Json", info.extra_json_schema or {})
    given = cast("list[Json]", schema.get("x-kubernetes-validations", []))
    return [cast("str", rule["rule"]) for rule in given]


CHECKS: dict[str, Callable[[str, object], Iterator[tuple[str, str]]]] = {
    _cel(ruledeclarations.PatternList): _patterns,
    ruledeclarations.ARE_CIDRS.rule: _cidrs,
    _cel(quota.Quantity): _quantity,
    _cel(quota.ContainerResources): _keys(
        quota.CONTAINER_RESOURCE,
        "resources of containers, as in cpu, memory, ephemeral-storage or example.com/gpu",
    ),
    _cel(quota.ObjectSizes): _keys(
        f"^({'|'.join(_OBJECTS)})$", "configmaps, secrets, helmReleases and others, as in configmaps: 128Ki"
    ),
}
"""By the CEL of a validation: the check that yields the path and the message of each wrong value."""


# -- the walk -------------------------------------------------------------------------------------


def _struct(value: Model, path: str) -> Iterator[tuple[str, str]]:
    for field in _fields(type(value)):
        inner = getattr(value, field.name)
        if inner is not UNSET:
            yield from _value(inner, field.type, f"{path}.{field.encode_name}")


@cache
def _fields(kind: type[Model]) -> tuple[inspect.Field, ...]:
    """Return the fields of a model; msgspec takes milliseconds to describe one."""
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{kind} is not a struct")
    return info.fields


def _value(value: object, info: inspect.Type, path: str) -> Iterator[tuple[str, str]]:
    match info:
        case inspect.Metadata():
            for rule in rules_of(info):
                yield from CHECKS[rule](path, value)
            yield from _value(value, info.type, path)
        case inspect.DictType():
            for key, inner in cast("Mapping[str, object]", value).items():
                yield from _value(inner, info.value_type, f"{path}[{key}]")
        case inspect.StructType():
            if isinstance(value, Model):
                yield from _struct(value, path)
        case _:
            return

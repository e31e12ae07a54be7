"""The rules as the fields of api/rules.py declare them: path, documentation, standard and levels. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
from msgspec import inspect

from tenantry.api.model import Json
from tenantry.api.ruledeclarations import (
    DECLARED_LEVELS,
    DECLARED_PATTERNS,
    DECLARED_STANDARDS,
    DECLARED_WARNED,
    PodSecurityLevel,
    Standard,
)
from tenantry.api.rules import Rules


class RuleField(msgspec.Struct, frozen=True, kw_only=True):
    """One rule.

    Args:
        path: As in images.allowed.
        family: The field of `Rules`.
        name: The field of the family.
        description: As in the CRD.
        standards: Standard to the value of the rule while no administrator sets it; a standard that limits nothing is
            missing.
        warned: The value that the standard Baseline only warns about; None if it does not warn.
        levels: PodSecurityLevel of the Pod Security Standards to the value of the rule from that level on.
        has_patterns: Whether its values are regular expressions.
    """

    path: str
    family: str
    name: str
    description: str
    standards: Mapping[Standard, object]
    warned: object
    levels: Mapping[PodSecurityLevel, object]
    has_patterns: bool


def fields() -> Iterator[RuleField]:
    """Yield every rule, in the order of the API."""
    for family in _fields(inspect.type_info(Rules)):
        if family.name == "standard":
            continue
        for each in _fields(family.type):
            if each.name == "action":
                continue
            info = each.type if isinstance(each.type, inspect.Metadata) else inspect.Metadata(type=each.type)
            declared, schema = cast("Json", info.extra or {}), cast("Json", info.extra_json_schema)
            yield RuleField(
                path=f"{family.encode_name}.{each.encode_name}",
                family=family.name,
                name=each.name,
                description=(schema or {}).get("description", ""),
                standards=declared.get(DECLARED_STANDARDS, {}),
                warned=declared.get(DECLARED_WARNED),
                levels=declared.get(DECLARED_LEVELS, {}),
                has_patterns=declared.get(DECLARED_PATTERNS, False),
            )


def _fields(info: inspect.Type) -> tuple[inspect.Field, ...]:
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{info} is not a struct")
    return info.fields

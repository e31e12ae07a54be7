"""The values of rules that the API server would reject are found before it is asked."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect

from tenantry.api.rules import Rules
from tenantry.world import rulechecks


def test_every_validation_of_a_rules_field_is_checked_here_too() -> None:
    """Otherwise `tenantry render` would fail with a KeyError for a field that was added later."""
    declared = set(_declared(inspect.type_info(Rules)))
    assert declared
    assert declared <= rulechecks.CHECKS.keys()


def _declared(info: inspect.Type) -> Iterator[str]:
    """Yield the CEL of each validation below a type."""
    match info:
        case inspect.Metadata():
            yield from rulechecks.rules_of(info)
            yield from _declared(info.type)
        case inspect.StructType():
            for field in info.fields:
                yield from _declared(field.type)
        case inspect.UnionType():
            for each in info.types:
                yield from _declared(each)
        case inspect.DictType():
            yield from _declared(info.value_type)
        case inspect.VarTupleType():
            yield from _declared(info.item_type)
        case _:
            return

"""The page of `tenantry describe` for kinds that have none of their own: their fields, conditions and events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from tenantry.api.model import Condition, KubernetesObject
from tenantry.cli import output
from tenantry.cli.describe.sections import conditions, events, head, map_text, section

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.views.objects import ReportedEvent

_SHOWN_ELSEWHERE = frozenset({"apiVersion", "kind", "metadata"})
_OF_CONDITIONS = frozenset({"conditions", "observedGeneration"})


def page(value: KubernetesObject, found: Sequence[ReportedEvent] | None, now: datetime) -> list[Part]:
    """Return the page.

    Args:
        value: The object.
        found: Its events; None if they may not be read.
        now: The time.
    """
    meta = value.metadata
    fields: dict[str, Any] = {k: v for k, v in msgspec.to_builtins(value).items() if k not in _SHOWN_ELSEWHERE}
    status: dict[str, Any] = fields.pop("status", {})
    given = _conditions(value)
    own = {name: each for name, each in status.items() if given is None or name not in _OF_CONDITIONS}
    observed: int = status.get("observedGeneration", 0)
    return [
        *head(meta, [("Labels", map_text(meta.labels))], now, place="Namespace"),
        *(line for name, each in fields.items() for line in _section(name, each)),
        *(_section("status", own) if own else []),
        *(conditions(meta, observed, given, now) if given is not None else []),
        *events(found, now),
    ]


def _conditions(value: KubernetesObject) -> Sequence[Condition] | None:
    """Return the conditions of an object; None for a kind without them, or with those of another shape."""
    given: Sequence[object] | None = getattr(getattr(value, "status", None), "conditions", None)
    found = [each for each in given or () if isinstance(each, Condition)]
    return found if given is not None and len(found) == len(given) else None


def _section(name: str, value: object) -> list[Part]:
    """Return a field with everything in it, as YAML."""
    title = name[:1].upper() + name[1:]
    return section(title, output.to_yaml([value]).splitlines() if value else [])

"""The sections that several pages of `tenantry describe` have. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tenantry.api.model import Condition, ObjectMeta
from tenantry.api.owner import Owner
from tenantry.cli import durations, output

if TYPE_CHECKING:
    from tenantry.cli.output import Part
    from tenantry.views.objects import ReportedEvent

UNREADABLE = "you may not read this"


def head(meta: ObjectMeta, pairs: Iterable[tuple[str, str]], now: datetime, *, place: str = "Parent") -> list[Part]:
    """Return lines of names and values, the object's own ones first.

    Args:
        meta: Of the object.
        pairs: The other lines.
        now: The time.
        place: The name of the line with its namespace.
    """
    own = [
        ("Name", meta.name),
        *([(place, meta.namespace)] if meta.namespace else []),
        ("Age", durations.age(meta.creation_timestamp, now)),
        *([("Being deleted", f"for {durations.age(meta.deletion_timestamp, now)}")] if meta.deletion_timestamp else []),
        ("Uid", meta.uid),
    ]
    return [output.pairs([*own, *pairs])]


def section(title: str, body: Iterable[Part]) -> list[Part]:
    """Return a title and the indented parts below it."""
    return [f"{title}:", *(output.indented(part) for part in list(body) or [output.NONE])]


def rows(headers: Sequence[str], found: Sequence[Sequence[str]] | None, empty: str = output.NONE) -> list[Part]:
    """Return a table.

    Args:
        headers: The first line.
        found: The other lines; None if the user may not read them.
        empty: The text instead of a table without lines.
    """
    if found is None:
        return [UNREADABLE]
    return [output.table(headers, found)] if found else [empty]


def map_text(values: Mapping[str, str]) -> str:
    """Return labels or annotations in one line."""
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items())) or output.NONE


def owners(given: Sequence[Owner]) -> list[Part]:
    """Return the section of owners."""
    found = [(owner.kind.value, owner.name, output.cell(owner.namespace)) for owner in given]
    return section("Owners", rows(("KIND", "NAME", "NAMESPACE"), found))


def conditions(meta: ObjectMeta, observed: int, given: Sequence[Condition], now: datetime) -> list[Part]:
    """Return the section of conditions.

    Args:
        meta: Of the object.
        observed: The generation that the conditions are about.
        given: The conditions.
        now: The time.
    """
    found = [
        (each.type, each.status.value, durations.age(each.last_transition_time, now), each.reason, each.message)
        for each in given
    ]
    # The generation changes with each change of the spec.
    stale = bool(found) and observed < meta.generation
    note = ["these are about an older spec: the operator has not processed the newest yet"] if stale else []
    none = "none yet: the operator has not processed it; is the operator running?"
    headers = ("TYPE", "STATUS", "AGE", "REASON", "MESSAGE")
    return section("Conditions", [*rows(headers, found, none), *note])


def events(given: Sequence[ReportedEvent] | None, now: datetime) -> list[Part]:
    """Return the section of the latest events; None if the user may not read them."""
    found = (
        None
        if given is None
        else [
            (durations.age(each.last, now), each.type, each.reason, str(each.count), output.cell(each.note))
            for each in given
        ]
    )
    return section("Events", rows(("LAST", "TYPE", "REASON", "COUNT", "MESSAGE"), found))

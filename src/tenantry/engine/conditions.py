"""Conditions that do not flap: pure, the time is an argument.

Source: Kubernetes, "API conventions", typical status properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api.model import Condition, ConditionStatus


class Wanted(msgspec.Struct, frozen=True):
    """A condition without its times.

    Args:
        type: Its type.
        holds: Whether it is true.
        reason: Of its status.
        message: Of its status.
        only_true: Leave it out while it is not true.
        unknown: It cannot be determined now; `holds` is false then.
    """

    type: str
    holds: bool
    reason: str
    message: str
    only_true: bool = False
    unknown: bool = False


MOST_MESSAGE = 32_768
"""The longest message that the API server takes: a longer one, of another server, would keep the status as it was."""


def merge(before: Sequence[Condition], wanted: Iterable[Wanted], *, generation: int, now: str) -> tuple[Condition, ...]:
    """Return the conditions to write, sorted by type.

    Args:
        before: Those on the object.
        wanted: All that should be on it.
        generation: The generation that they are about.
        now: RFC 3339; becomes the transition time of those whose status changed.
    """
    known = {condition.type: condition for condition in before}
    merged: list[Condition] = []
    for item in wanted:
        if item.only_true and not item.holds:
            continue
        no = ConditionStatus.UNKNOWN if item.unknown else ConditionStatus.FALSE
        status = ConditionStatus.TRUE if item.holds else no
        old = known.get(item.type)
        kept = old is not None and old.status is status
        merged.append(
            Condition(
                type=item.type,
                status=status,
                reason=item.reason,
                message=item.message[:MOST_MESSAGE],
                last_transition_time=old.last_transition_time if kept and old is not None else now,
                observed_generation=generation,
            )
        )
    return tuple(sorted(merged, key=lambda condition: condition.type))


def replaced(
    before: Sequence[Condition], wanted: Sequence[Wanted], *, generation: int, now: str
) -> tuple[Condition, ...]:
    """Return the conditions to write if several controllers have some each: those of other types stay.

    Args:
        before: As in `merge`.
        wanted: All of the types that one controller says something of.
        generation: As in `merge`.
        now: As in `merge`.
    """
    ours = {item.type for item in wanted}
    kept = [condition for condition in before if condition.type not in ours]
    merged = merge(before, wanted, generation=generation, now=now)
    return tuple(sorted((*kept, *merged), key=lambda condition: condition.type))


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """Return the condition of a type, None if there is none."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Return whether a condition is there and holds."""
    found = find(conditions, type_)
    return found is not None and found.status is ConditionStatus.TRUE

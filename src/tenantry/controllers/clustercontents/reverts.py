"""When the operator stops bringing an object back that another client changes again and again: pure.

    changed by "argocd", brought back       once
    changed by "argocd", brought back       twice
    changed by "argocd", brought back       three times within ten minutes
    changed by "argocd"                     left as it is, and reported

It goes on as soon as the object is as it should be, or is deleted: that is what a person does to end the quarrel.
"""

from __future__ import annotations

import datetime as dt

import msgspec

MOST_REVERTS = 3
PERIOD = dt.timedelta(minutes=10)

DELETION = ""
"""What stands for the manager of an object that was deleted: managedFields go with it."""


class RevertRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How often one object was brought back.

    Args:
        manager: The field manager that has changed it last, or `DELETION`.
        times: When it was brought back against that one, within `PERIOD`.
        stopped: Whether it is left as it is.
    """

    manager: str = DELETION
    times: tuple[dt.datetime, ...] = ()
    stopped: bool = False


def changed(before: RevertRecord | None, manager: str, now: dt.datetime) -> RevertRecord:
    """Return the record after a change that differs from what should be; `stopped` decides whether it is brought back.

    Args:
        before: The record so far; None for none.
        manager: As in `RevertRecord`.
        now: The time.
    """
    kept = before or RevertRecord()
    # A deletion by a person ends the quarrel; one after many deletions does not.
    if kept.stopped and (manager != DELETION or kept.manager == DELETION):
        return kept
    if kept.stopped or kept.manager != manager:
        return RevertRecord(manager=manager, times=(now,))
    times = tuple(each for each in kept.times if now - each < PERIOD)
    if len(times) >= MOST_REVERTS:
        return RevertRecord(manager=manager, times=times, stopped=True)
    return RevertRecord(manager=manager, times=(*times, now))

"""Times of a cron schedule: five fields, in UTC. Pure.

"30 2 * * 1-5" is 02:30 from Monday to Friday. A field is "*", a number, a range, a list, and a step after "/". Days are
those of the month or of the week if both fields are given, as in crontab(5).
"""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api.errors import InputError

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("day of the week", 0, 7))
_DAYS = 366 * 8 + 1
"""A leap day may be eight years away."""


class CronSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule; the fields have the numbers that match.

    Args:
        minutes: From 0 to 59.
        hours: From 0 to 23.
        days: Of the month.
        months: From 1 to 12.
        weekdays: Monday is 1, and Sunday 7.
        either: A day matches by either of its fields; otherwise by both.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def after(self, moment: dt.datetime) -> dt.datetime | None:
        """Return the first time after a moment; None if there is none, as of 30 February."""
        start = moment.astimezone(dt.UTC).replace(second=0, microsecond=0) + dt.timedelta(minutes=1)
        for number in range(_DAYS):
            day = start.date() + dt.timedelta(days=number)
            if not self._has(day):
                continue
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    found = dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=dt.UTC)
                    if found >= start:
                        return found
        return None

    def _has(self, day: dt.date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() in self.weekdays
        return (of_month or of_week) if self.either else (of_month and of_week)


def parse(text: str) -> CronSchedule:
    """Return a schedule.

    Raises:
        InputError: The text is not one.
    """
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise InputError(f"{text!r} must have five fields: minute, hour, day, month, weekday")
    found = [_field(field, *about) for field, about in zip(fields, _FIELDS, strict=True)]
    weekdays = frozenset(day or 7 for day in found[4])
    given = not fields[2].startswith("*") and not fields[4].startswith("*")
    schedule = CronSchedule(
        minutes=found[0], hours=found[1], days=found[2], months=found[3], weekdays=weekdays, either=given
    )
    if schedule.after(dt.datetime(2024, 1, 1, tzinfo=dt.UTC)) is None:
        raise InputError(f"{text!r} never comes")
    return schedule


def _field(text: str, name: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            first, last = str(least), str(most)
        elif not last:
            last = str(most) if step else first
        texts = (first, last, step or "1")
        if any(not each.isascii() or not each.isdigit() or len(each) > 2 for each in texts) or "/" in part[-1:]:  # noqa: PLR2004 - digits
            raise InputError(f"{name} {text!r} must have numbers from {least} to {most}, as in 5, 1-5, */10 or 1,15")
        begin, end, every = (int(each) for each in texts)
        if not least <= begin <= end <= most or every < 1:
            raise InputError(f"{name} {text!r} must have numbers from {least} to {most}, as in 5, 1-5, */10 or 1,15")
        found.update(range(begin, end + 1, every))
    return frozenset(found)

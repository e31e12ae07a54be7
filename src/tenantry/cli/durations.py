"""Durations in the form 90s, 5m, 1h30m, 2d. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click
from typing_extensions import override

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_FORM = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", re.ASCII)
_LARGEST_PARTS = 2


def parse(given: str) -> int | None:
    """Return whole seconds; None if the text is not a duration. A number without a unit is seconds."""
    if given.isascii() and given.isdigit() and len(given) <= 6:  # noqa: PLR2004 - eleven days
        return int(given)
    found = _FORM.fullmatch(given)
    if found is None or not given:
        return None
    return sum(int(number or 0) * unit for number, unit in zip(found.groups(), _UNITS.values(), strict=True))


def text(seconds: int) -> str:
    """Return seconds in the two largest units that are not 0, as kubectl writes ages."""
    parts: list[str] = []
    rest = max(seconds, 0)
    for unit, size in _UNITS.items():
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number}{unit}")
        if parts and (len(parts) == _LARGEST_PARTS or not number):
            break
    return "".join(parts) or "0s"


def age(since: str, now: datetime) -> str:
    """Return how long ago an RFC 3339 time was; "unknown" if it does not parse."""
    try:
        then = datetime.fromisoformat(since)
    except ValueError:
        return "unknown"
    return text(int((now - then.astimezone(UTC)).total_seconds()))


def left(until: str, now: datetime) -> int:
    """Return the seconds until an RFC 3339 time; negative for a past time, 0 if it does not parse."""
    try:
        then = datetime.fromisoformat(until)
    except ValueError:
        return 0
    return int((then.astimezone(UTC) - now).total_seconds())


def expiry(at: str, now: datetime) -> str:
    """Return when an object expires, and in how long; "never" for ""."""
    if not at:
        return "never"
    rest = left(at, now)
    return f"{at} ({f'in {text(rest)}' if rest > 0 else 'past'})"


def remaining(at: str, now: datetime) -> str:
    """Return in how long an object expires: `in 2h`, `now`, or "-" for never."""
    rest = left(at, now)
    return "-" if not at else f"in {text(rest)}" if rest > 0 else "now"


def instant(given: str, now: datetime) -> str:
    """Return the RFC 3339 time that a duration from now, or a time, means; "" if the text is neither."""
    seconds = parse(given)
    if seconds is not None:
        then = now + timedelta(seconds=seconds)
    else:
        try:
            then = datetime.fromisoformat(given)
        except ValueError:
            return ""
        if then.tzinfo is None or "T" not in given.upper():
            return ""
    return then.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Duration(click.ParamType[int]):
    """A click type: whole seconds."""

    name = "duration"

    @override
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        seconds = parse(str(value))
        if seconds is None:
            self.fail(f"{value!r} must be a duration, as in 30s, 5m or 1h30m", param, ctx)
        return seconds


DURATION = Duration()


def timeout_option(default: str, text: str) -> Callable[[F], F]:
    """Return the option --timeout, in whole seconds.

    Args:
        default: Its default, as people write it.
        text: The help.
    """
    return click.option("--timeout", default=default, show_default=True, type=DURATION, help=text)


patience_option = timeout_option("60s", "Deadline without progress, as in 30s or 5m.")

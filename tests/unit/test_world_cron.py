"""Times of schedules: pure."""

from __future__ import annotations

import datetime as dt

import pytest

from tenantry.api.errors import InputError
from tenantry.world import cron


def at(text: str) -> dt.datetime:
    """Return a time in UTC."""
    return dt.datetime.fromisoformat(f"{text}:00+00:00")


@pytest.mark.parametrize(
    ("schedule", "moment", "found"),
    [
        ("* * * * *", "2026-03-01 10:00", "2026-03-01 10:01"),
        ("30 2 * * *", "2026-03-01 02:30", "2026-03-02 02:30"),
        ("30 2 * * *", "2026-03-01 02:29", "2026-03-01 02:30"),
        ("*/20 8-10/2 * * *", "2026-03-01 08:40", "2026-03-01 10:00"),
        ("5,1 0 1 1 *", "2026-03-01 00:00", "2027-01-01 00:01"),
        ("0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"),
        # 2026-03-01 is a Sunday.
        ("0 0 * * 1-5", "2026-03-06 12:00", "2026-03-09 00:00"),
        ("0 0 * * 0", "2026-03-02 00:00", "2026-03-08 00:00"),
        ("0 0 * * 7", "2026-03-02 00:00", "2026-03-08 00:00"),
        # Either of the days.
        ("0 0 13 * 5", "2026-03-01 00:00", "2026-03-06 00:00"),
        ("0 0 13 * 5", "2026-03-06 00:00", "2026-03-13 00:00"),
        ("50/5 * * * *", "2026-03-01 10:56", "2026-03-01 11:50"),
    ],
)
def test_the_next_time_is_the_first_that_matches(schedule: str, moment: str, found: str) -> None:
    """H02: as crontab(5) has it."""
    assert cron.parse(schedule).after(at(moment)) == at(found)


@pytest.mark.parametrize(
    "schedule",
    [
        *("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
        *("5-1 * * * *", "*/0 * * * *", "a * * * *", "-1 * * * *", "1, * * * *", "1/ * * * *", "\u0661 * * * *"),
        *("1000 * * * *", "0 0 30 2 *", "0 0 31 4,6 *"),
    ],
)
def test_a_schedule_that_never_comes_is_refused(schedule: str) -> None:
    """H02: with its field, instead of snapshots that are never taken."""
    with pytest.raises(InputError, match=r"must have|never comes"):
        cron.parse(schedule)

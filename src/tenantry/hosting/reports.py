"""What a hosted control plane reports of itself: pure.

Source: go/hosted/internal/activity.
"""

from __future__ import annotations

import datetime as dt

import msgspec


class FormerUse(msgspec.Struct, frozen=True, kw_only=True):
    """A client with a certificate of an authority that is being replaced.

    Args:
        user: Its user name.
        last: When its last request ended.
    """

    user: str
    last: dt.datetime


class Activity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a hosted control plane reports of its clients, and of itself.

    Args:
        open_requests: Requests of clients that are not finished, watches included.
        idle_seconds: The time since the last one ended; 0 while one is open.
        next_event: When a controller acts next because of the time alone, as a CronJob: None for never.
        error: Why the next event is not known; "" if it is.
        former_clients: In the phase Issuing of a rotation: those that use certificates of before.
    """

    open_requests: int
    idle_seconds: int
    next_event: dt.datetime | None = None
    error: str = ""
    former_clients: tuple[FormerUse, ...] = ()

"""When a lease ends, and when to warn of it: pure, the time is an argument (X05)."""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.tenant import Tenant

WARN_SECONDS = (24 * 3600, 3600)
"""How long before its end a person is warned, the first time and the last."""


class LeaseState(msgspec.Struct, frozen=True):
    """The state of a lease.

    Args:
        is_expired: Its end has passed.
        warned: How many of the warnings are due.
        next_seconds: Seconds until the state changes; None for never.
    """

    is_expired: bool
    warned: int
    next_seconds: float | None


ENDLESS = LeaseState(is_expired=False, warned=0, next_seconds=None)


def instant(text: str) -> dt.datetime:
    """Return an RFC 3339 time.

    Raises:
        InputError: The text is not a time, or has no offset from UTC.
    """
    try:
        value = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{text[:64]!r} is not a time; write it as in 2027-01-31T18:00:00Z") from error
    if value.tzinfo is None:
        raise InputError(f"{text[:64]!r} has no offset from UTC; write it as in 2027-01-31T18:00:00Z")
    return value


def lease(expires_at: str, now: dt.datetime) -> LeaseState:
    """Return the state of a lease at a time.

    Args:
        expires_at: RFC 3339; "" for no end.
        now: The time, with an offset.

    Raises:
        InputError: The end is not a time.
    """
    if not expires_at:
        return ENDLESS
    left = (instant(expires_at) - now).total_seconds()
    if left <= 0:
        return LeaseState(is_expired=True, warned=len(WARN_SECONDS), next_seconds=None)
    warned = sum(left <= ahead for ahead in WARN_SECONDS)
    turns = [left - ahead for ahead in WARN_SECONDS if left > ahead]
    return LeaseState(is_expired=False, warned=warned, next_seconds=min([left, *turns]))


def with_lease(tenant: Tenant, now: dt.datetime) -> Tenant:
    """Return a tenant as it counts at a time: suspended once its lease has ended.

    Raises:
        InputError: The end of its lease is not a time.
    """
    if tenant.spec.suspended or not lease(tenant.spec.expires_at, now).is_expired:
        return tenant
    return msgspec.structs.replace(tenant, spec=msgspec.structs.replace(tenant.spec, suspended=True))


def warning(expires_at: str, state: LeaseState, then: str) -> str:
    """Return the warning before the end of a lease; "" if none is due.

    Args:
        expires_at: The end, as in the spec.
        state: Of the lease.
        then: What happens at the end, for example "is deleted".
    """
    if not state.warned:
        return ""
    ahead = "an hour" if state.warned == len(WARN_SECONDS) else "a day"
    return f"it ends within {ahead}, at {expires_at}, and {then} then; set a later spec.expiresAt to keep it"

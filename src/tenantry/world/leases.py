"""When a lease ends, and when to warn of it: pure, the time is an argument (X05)."""

from __future__ import annotations

import datetime as dt

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.tenant import Tenant

WARN_SECONDS = (24 * 3600, 3600)
"""How long before its end a person is warned, the first time and the last."""


class Lease(msgspec.Struct, frozen=True):
    """How a lease stands.

    Args:
        is_expired: Its end has come.
        warned: How many of the warnings are due.
        next_seconds: In how many seconds that changes; None for never.
    """

    is_expired: bool
    warned: int
    next_seconds: float | None


ENDLESS = Lease(is_expired=False, warned=0, next_seconds=None)


def instant(text: str) -> dt.datetime:
    """Return an RFC 3339 time.

    Raises:
        InputError: It is none, or has no offset from UTC.
    """
    try:
        value = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{text[:64]!r} is not a time; write it as in 2027-01-31T18:00:00Z") from error
    if value.tzinfo is None:
        raise InputError(f"{text[:64]!r} has no offset from UTC; write it as in 2027-01-31T18:00:00Z")
    return value


def lease(expires_at: str, now: dt.datetime) -> Lease:
    """Return how a lease stands at a time.

    Args:
        expires_at: RFC 3339; "" for one without end.
        now: The time, with an offset.

    Raises:
        InputError: The end is not a time.
    """
    if not expires_at:
        return ENDLESS
    left = (instant(expires_at) - now).total_seconds()
    if left <= 0:
        return Lease(is_expired=True, warned=len(WARN_SECONDS), next_seconds=None)
    warned = sum(left <= ahead for ahead in WARN_SECONDS)
    turns = [left - ahead for ahead in WARN_SECONDS if left > ahead]
    return Lease(is_expired=False, warned=warned, next_seconds=min([left, *turns]))


def with_lease(tenant: Tenant, now: dt.datetime) -> Tenant:
    """Return a tenant as it counts at a time: suspended once its lease has ended.

    Raises:
        InputError: The end of its lease is not a time.
    """
    if tenant.spec.suspended or not lease(tenant.spec.expires_at, now).is_expired:
        return tenant
    return msgspec.structs.replace(tenant, spec=msgspec.structs.replace(tenant.spec, suspended=True))


def warning(expires_at: str, state: Lease, then: str) -> str:
    """Return what a person is told of a lease's end ahead of it; "" where it is far.

    Args:
        expires_at: The end, as the spec has it.
        state: How the lease stands.
        then: What happens at its end, as in "is deleted".
    """
    if not state.warned:
        return ""
    ahead = "an hour" if state.warned == len(WARN_SECONDS) else "a day"
    return f"it ends within {ahead}, at {expires_at}, and {then} then; set a later spec.expiresAt to keep it"

"""The conditions that report the outcome of a reconcile, the same for every kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tenantry.api import reasons
from tenantry.api.errors import (
    ApiError,
    Conflict,
    Forbidden,
    InputError,
    Invalid,
    NotFound,
    RetryableError,
    ServerError,
    TenantryError,
    TerminalError,
    TooManyRequests,
    Unreachable,
)
from tenantry.api.model import Condition, ConditionStatus
from tenantry.api.wording import shortened
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.tenantnamespace import COUNTS
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import Wanted, find
from tenantry.engine.plan import Blocked
from tenantry.engine.workqueue import FIRST_DELAY_SECONDS
from tenantry.world.leases import LeaseState, warning
from tenantry.world.objectcounts import EPHEMERAL_STORAGE, PREFIX

PATIENCE = 3
"""The number of tries in a row that may fail for a passing reason before the status reports it."""

ROOM_SECONDS = 30.0
"""The longest pause between two tries to create an object that a full quota refuses."""

_QUOTA = re.compile(r"exceeded quota: (?P<quota>[^,\s]+), requested: (?P<key>[^=]+)=")
"""The refusal of the quota admission (k8s.io/apiserver, pkg/admission/plugin/resourcequota/controller.go)."""

_MAY_LACK_ROOM = (reasons.READY, reasons.INHERITED)
_NO_ROOM = (reasons.COUNT_EXCEEDED, reasons.REFUSED)
"""The reasons of these conditions if a quota leaves no room: the operator counted, or the API server did."""

# NotFound: the namespace was deleted during the reconcile, or the API server does not serve a new kind yet.
PASSING = (Conflict, NotFound, TooManyRequests, ServerError, Unreachable)


def is_refusal(error: ApiError) -> bool:
    """Return whether an API server whose users are its administrators refuses a write until they change something.

    A webhook of theirs can fail, or answer with any status.
    """
    return "webhook" in str(error) or not isinstance(error, PASSING)


def problem_of(outcome: Outcome) -> Blocked | None:
    """Return the one obstacle that a person should know."""
    if outcome.blocked:
        return outcome.blocked[0]
    error = outcome.error
    if error is None:
        return None
    if isinstance(error, TerminalError):
        return Blocked(reason=error.reason, message=str(error))
    if isinstance(error, Invalid | InputError):
        return Blocked(reason=reasons.INVALID_SPEC, message=str(error))
    if isinstance(error, Forbidden):
        return Blocked(reason=reasons.REFUSED, message=_refused(str(error)))
    # Other refusals need a person; these pass when the API server, or the other client, is done.
    return Blocked(reason=reasons.API_ERROR, message=str(error), passing=isinstance(error, PASSING))


def is_over_quota(error: Exception | None) -> bool:
    """Return whether the API server refused an object because a ResourceQuota is full."""
    return isinstance(error, Forbidden) and _QUOTA.search(str(error)) is not None


def retried(error: ApiError, attempt: int) -> TenantryError:
    """Return the error by which a reconcile ends.

    Room in a quota wakes the reconcile. But admission may still count as before, and refuse again: no further event
    follows, and after many refusals the back-off of the queue would be five minutes.

    Args:
        error: The refusal, or another error, which stays as it is.
        attempt: How many tries failed before.
    """
    if not is_over_quota(error):
        return error
    delay = min(FIRST_DELAY_SECONDS * 2 ** min(attempt, 32), ROOM_SECONDS)
    return RetryableError(str(error), delay, is_reported=True)


def waits_for_room(conditions: Iterable[Condition]) -> bool:
    """Return whether something of an object is not in place, possibly because a quota is full.

    Only then room in the quota is news: otherwise an owner could wake the operator with each object.
    """
    return any(
        each.type in _MAY_LACK_ROOM and each.reason in _NO_ROOM and each.status is not ConditionStatus.TRUE
        for each in conditions
    )


def _refused(text: str) -> str:
    """Return the message of a refusal; if a quota refuses an object of Tenantry's own, with what to do about it."""
    found = _QUOTA.search(text)
    if found is None:
        return text
    where = {
        COUNTS: "spec.objectCounts of TenancyDefaults 'default'",
        QUOTA: f"{found['key']} of spec.quota of the Tenant or Subnamespace",
    }
    kind = found["key"].removeprefix(PREFIX)
    limit = where.get(found["quota"], f"{found['key']} of ResourceQuota '{found['quota']}'")
    return (
        f"{text}: other objects took the place of this one; delete one of the {kind} there, or raise"
        f" {limit}; the operator tries again"
    )


def ready(problem: Blocked | None, done: str) -> Wanted:
    """Return the condition Ready.

    Args:
        problem: The obstacle; None if there is none.
        done: The message if there is none.
    """
    if problem is None:
        return Wanted(reasons.READY, True, reasons.ESTABLISHED, done)
    return Wanted(reasons.READY, False, problem.reason, problem.message)


def trouble(problem: Blocked | None) -> list[Wanted]:
    """Return Stalled or Reconciling, if there is an obstacle."""
    if problem is None:
        return []
    type_ = reasons.RECONCILING if problem.passing else reasons.STALLED
    return [Wanted(type_, True, problem.reason, problem.message, only_true=True)]


def expiring(expires_at: str, state: LeaseState, *, then: str, ended: str) -> list[Wanted]:
    """Return the condition Expiring, from a day before the end of a lease on (X05).

    Args:
        expires_at: `spec.expiresAt`.
        state: The state of the lease.
        then: What happens at its end, as in "is deleted".
        ended: The end of the message after the lease has ended.
    """
    if state.is_expired:
        message = f"it ended at {expires_at}{ended}"
        return [Wanted(reasons.EXPIRING, True, reasons.EXPIRED, message, only_true=True)]
    message = warning(expires_at, state, then)
    return [Wanted(reasons.EXPIRING, True, reasons.EXPIRES_SOON, message, only_true=True)] if message else []


def exceeding(namespace: str, exceeded: Sequence[tuple[str, str, str]], level: str) -> list[Wanted]:
    """Return the condition ObjectsExceeded, while a namespace has more objects than it may have.

    Args:
        namespace: The namespace.
        exceeded: See `objectcounts.exceeded`.
        level: The field of `spec.objectCounts` of TenancyDefaults: core or child.
    """
    if not exceeded:
        return []
    # Without the number that exists: a condition must not change with every object.
    disk = [EPHEMERAL_STORAGE[0]] if EPHEMERAL_STORAGE[0] in {kind for kind, *_ in exceeded} else []
    listed = shortened(f"{kind if kind in disk else PREFIX + kind} is {most}" for kind, _, most in exceeded)
    fields = [f"spec.objectCounts.{level}"] if len(exceeded) > len(disk) else []
    fields += [f"spec.ephemeralStorage.{level}"] if disk else []
    message = (
        f"namespace {namespace!r} has more objects than it may have: {listed}; all stay, and new ones are refused:"
        f" delete some, or raise {' and '.join(fields)} of TenancyDefaults 'default'"
    )
    return [Wanted(reasons.OBJECTS_EXCEEDED, True, reasons.COUNT_EXCEEDED, message, only_true=True)]


def warned_of(conditions: Iterable[Condition]) -> str:
    """Return the last message about the end of a lease; "" for none."""
    found = find(conditions, reasons.EXPIRING)
    return found.message if found is not None else ""


def was_said(conditions: Iterable[Condition], blocked: Blocked) -> bool:
    """Return whether a condition already reports an obstacle: only a new one gets an event."""
    return any(each.reason == blocked.reason and blocked.message in each.message for each in conditions)

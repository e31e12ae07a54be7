"""What came of a reconcile, as conditions say it: the same for every kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry.api import reasons
from tenantry.api.errors import (
    Conflict,
    Forbidden,
    InputError,
    Invalid,
    NotFound,
    ServerError,
    TerminalError,
    TooManyRequests,
    Unreachable,
)
from tenantry.api.model import Condition
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import Wanted, find
from tenantry.engine.plan import Blocked
from tenantry.world.leases import LeaseState, warning

PATIENCE = 3
"""How many tries in a row may fail for a passing reason before the status says so."""

# NotFound: the namespace went away under our hands, or the API server does not serve a new kind yet.
PASSING = (Conflict, NotFound, TooManyRequests, ServerError, Unreachable)


def problem_of(outcome: Outcome) -> Blocked | None:
    """Return the one thing that a person should know."""
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
        return Blocked(reason=reasons.REFUSED, message=str(error))
    return Blocked(reason=reasons.API_ERROR, message=str(error), passing=isinstance(error, PASSING))


def ready(problem: Blocked | None, done: str) -> Wanted:
    """Return the condition Ready.

    Args:
        problem: What stands in the way.
        done: What is in place where nothing does.
    """
    if problem is None:
        return Wanted(reasons.READY, True, reasons.ESTABLISHED, done)
    return Wanted(reasons.READY, False, problem.reason, problem.message)


def trouble(problem: Blocked | None) -> list[Wanted]:
    """Return Stalled or Reconciling, where there is a problem."""
    if problem is None:
        return []
    type_ = reasons.RECONCILING if problem.passing else reasons.STALLED
    return [Wanted(type_, True, problem.reason, problem.message, only_true=True)]


def expiring(expires_at: str, state: LeaseState, *, then: str, ended: str) -> list[Wanted]:
    """Return the condition Expiring, from a day before the end of a lease on (X05).

    Args:
        expires_at: `spec.expiresAt`.
        state: How the lease stands.
        then: What happens at its end, as in "is deleted".
        ended: What a person should know once it has ended.
    """
    if state.is_expired:
        message = f"it ended at {expires_at}{ended}"
        return [Wanted(reasons.EXPIRING, True, reasons.EXPIRED, message, only_true=True)]
    message = warning(expires_at, state, then)
    return [Wanted(reasons.EXPIRING, True, reasons.EXPIRES_SOON, message, only_true=True)] if message else []


def warned_of(conditions: Iterable[Condition]) -> str:
    """Return what was last said of the end of a lease, "" where nothing was."""
    found = find(conditions, reasons.EXPIRING)
    return found.message if found is not None else ""


def was_said(conditions: Iterable[Condition], blocked: Blocked) -> bool:
    """Tell whether a condition says already what stands in the way: an event is for what is new."""
    return any(each.reason == blocked.reason and blocked.message in each.message for each in conditions)

"""What came of a reconcile, as conditions say it: the same for every kind. Pure."""

from __future__ import annotations

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
from tenantry.engine.apply import Outcome
from tenantry.engine.conditions import Wanted
from tenantry.engine.plan import Blocked

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

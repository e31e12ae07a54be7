"""The status of a request: pure."""

from __future__ import annotations

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.model import Condition
from tenantry.api.requests import Decision, Request, RequestStatus
from tenantry.controllers.conclusion import trouble
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked
from tenantry.world.leases import ENDLESS, WARN_SECONDS, LeaseState

OPERATORS = (marks.OPERATOR_USER, f"system:serviceaccount:{marks.SYSTEM_NAMESPACE}:tenantry-operator")
"""The operator's user names: on a local cluster, and as a ServiceAccount."""


def compute(
    request: Request,
    *,
    problem: Blocked | None,
    granted: str,
    done: str,
    now: str,
    lease: LeaseState = ENDLESS,
) -> RequestStatus:
    """Return the status to write; the decision stays as it is.

    Args:
        request: With its decision and its conditions so far.
        problem: The obstacle to the grant, also before an approval.
        granted: The name of the object that was created; "" if there is none.
        done: The message of the condition Ready once the request is granted.
        now: RFC 3339.
        lease: How the grant's lease stands.
    """
    before = request.status
    generation = request.metadata.generation
    wanted = [*_decided(before), _ready(before, problem, done, lease)]
    # An obstacle to a grant that is over is none.
    if not lease.is_expired:
        wanted += trouble(problem) if before.decision is not Decision.DENIED else []
    if before.decision is Decision.APPROVED:
        wanted += _expiring(before.expires_at, lease)
    conditions: tuple[Condition, ...] = merge(before.conditions, wanted, generation=generation, now=now)
    return msgspec.structs.replace(before, observed_generation=generation, granted=granted, conditions=conditions)


def _decided(before: RequestStatus) -> list[Wanted]:
    if before.decision is Decision.PENDING:
        return []
    type_ = reasons.APPROVED if before.decision is Decision.APPROVED else reasons.DENIED
    reason = reasons.DECIDED_AUTOMATICALLY if before.decided_by in OPERATORS else reasons.DECIDED
    said = f": {before.reason}" if before.reason else ""
    return [Wanted(type_, True, reason, f"by {before.decided_by}{said}", only_true=True)]


def _ready(before: RequestStatus, problem: Blocked | None, done: str, lease: LeaseState) -> Wanted:
    if before.decision is Decision.DENIED:
        return Wanted(reasons.READY, False, reasons.DENIED, "it was denied; make a new request")
    if lease.is_expired:
        return Wanted(reasons.READY, False, reasons.EXPIRED, f"it ended at {before.expires_at}; make a new request")
    if problem is not None:
        return Wanted(reasons.READY, False, problem.reason, problem.message)
    if before.decision is Decision.PENDING:
        return Wanted(reasons.READY, False, reasons.AWAITING_DECISION, "waiting for approval")
    return Wanted(reasons.READY, True, reasons.GRANTED, done)


def _expiring(expires_at: str, lease: LeaseState) -> list[Wanted]:
    if lease.is_expired:
        return [Wanted(reasons.EXPIRING, True, reasons.EXPIRED, f"it ended at {expires_at}", only_true=True)]
    if not lease.warned:
        return []
    ahead = "an hour" if lease.warned == len(WARN_SECONDS) else "a day"
    message = f"it ends within {ahead}, at {expires_at}; make a new request to keep it"
    return [Wanted(reasons.EXPIRING, True, reasons.EXPIRES_SOON, message, only_true=True)]

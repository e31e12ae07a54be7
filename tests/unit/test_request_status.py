"""What a request's status says at each stage."""

from __future__ import annotations

from tenantry.api import reasons
from tenantry.api.model import ObjectMeta
from tenantry.api.requests import Decision, Requester, RequestStatus, TenantRequest, TenantRequestSpec
from tenantry.controllers.requests import status
from tenantry.engine.conditions import find, is_true
from tenantry.engine.plan import Blocked
from tenantry.world.leases import LeaseState

NOW = "2027-01-01T00:00:00Z"
END = "2027-01-01T08:00:00Z"
GONE = LeaseState(is_expired=True, warned=2, next_seconds=None)


def request(decision: Decision, *, by: str = "admin", reason: str = "", expires_at: str = "") -> TenantRequest:
    spec = TenantRequestSpec(requester=Requester(name="bob"), tenant="acme")
    said = RequestStatus(decision=decision, decided_by=by, reason=reason, expires_at=expires_at)
    return TenantRequest(metadata=ObjectMeta(name="r", uid="u1", generation=1), spec=spec, status=said)


def compute(
    given: TenantRequest, *, problem: Blocked | None = None, granted: str = "", lease: LeaseState | None = None
) -> RequestStatus:
    more = {"lease": lease} if lease is not None else {}
    return status.compute(given, problem=problem, granted=granted, done="it is made", now=NOW, **more)


def reason(found: RequestStatus, type_: str) -> str:
    condition = find(found.conditions, type_)
    return condition.reason if condition is not None else ""


def test_a_pending_request_is_neither_ready_nor_stalled() -> None:
    """E16: it waits, which is no error."""
    found = compute(request(Decision.PENDING, by=""))
    assert [condition.type for condition in found.conditions] == [reasons.READY]
    assert reason(found, reasons.READY) == reasons.AWAITING_DECISION


def test_a_pending_request_tells_what_would_be_in_the_way() -> None:
    """E16: before a decision."""
    problem = Blocked(reason=reasons.TENANT_EXISTS, message="there is one")
    found = compute(request(Decision.PENDING, by=""), problem=problem)
    assert reason(found, reasons.READY) == reason(found, reasons.STALLED) == reasons.TENANT_EXISTS


def test_a_decision_is_kept_as_it_was_written() -> None:
    """E16: the operator writes around it."""
    given = request(Decision.APPROVED, reason="fine", expires_at=END)
    found = compute(given, granted="acme")
    kept = (found.decision, found.decided_by, found.reason, found.expires_at)
    assert kept == (Decision.APPROVED, "admin", "fine", END)
    assert is_true(found.conditions, reasons.READY)
    approved = find(found.conditions, reasons.APPROVED)
    assert approved is not None
    assert (approved.reason, approved.message) == (reasons.DECIDED, "by admin: fine")


def test_an_automatic_approval_says_so() -> None:
    """E16: for any name of the operator."""
    for by in ("tenantry:operator", "system:serviceaccount:tenantry-system:tenantry-operator"):
        found = compute(request(Decision.APPROVED, by=by), granted="acme")
        assert reason(found, reasons.APPROVED) == reasons.DECIDED_AUTOMATICALLY


def test_a_denied_request_is_not_ready_for_good() -> None:
    """E16: whatever else is in the way does not matter any more."""
    problem = Blocked(reason=reasons.TENANT_EXISTS, message="there is one")
    found = compute(request(Decision.DENIED), problem=problem)
    assert {condition.type for condition in found.conditions} == {reasons.READY, reasons.DENIED}
    assert reason(found, reasons.READY) == reasons.DENIED


def test_the_end_of_a_grant_is_told_ahead_and_stays() -> None:
    """X05: within an hour, and then that it has ended; the approval is still on record."""
    given = request(Decision.APPROVED, expires_at=END)
    soon = compute(given, granted="x", lease=LeaseState(is_expired=False, warned=2, next_seconds=10.0))
    told = find(soon.conditions, reasons.EXPIRING)
    assert told is not None
    assert told.message == f"it ends within an hour, at {END}; make a new request to keep it"
    ended = compute(given, lease=GONE)
    assert reason(ended, reasons.READY) == reason(ended, reasons.EXPIRING) == reasons.EXPIRED
    assert is_true(ended.conditions, reasons.APPROVED)
    assert ended.granted == ""


def test_nothing_changes_when_nothing_has() -> None:
    """X05: no write for nothing."""
    once = compute(request(Decision.APPROVED), granted="acme")
    given = request(Decision.APPROVED)
    again = TenantRequest(metadata=given.metadata, spec=given.spec, status=once)
    assert status.compute(again, problem=None, granted="acme", done="it is made", now=END) == once

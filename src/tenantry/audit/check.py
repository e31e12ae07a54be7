"""What a check is, and its results. Pure.

AuditCheck ─► attempts(AuditContext) ─► requests as the tenant ─► an AttemptResult of each ─► CheckResult (Verdict)
           └ or NotApplicable, or an Observation                 └ refused, through, undecided or skipped
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tenantry.api.model import Json
from tenantry.audit.context import AuditContext

if TYPE_CHECKING:
    from tenantry.audit.probe.findings import ProbeFindings

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Area(StrEnum):
    """The subject of a check."""

    API = "api"
    PODS = "pods"
    NODES = "nodes"
    NETWORK = "network"
    STORAGE = "storage"
    QUOTA = "quota"
    TENANTRY = "tenantry"


_AREAS = {
    "API": Area.API,
    "POD": Area.PODS,
    "NODE": Area.NODES,
    "NET": Area.NETWORK,
    "STO": Area.STORAGE,
    "QTA": Area.QUOTA,
    "OWN": Area.TENANTRY,
}


class Severity(StrEnum):
    """How serious it is if a check fails."""

    CRITICAL = "Critical"
    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


class Verdict(StrEnum):
    """The result of a check: it holds, it does not, it cannot be tried here, or the answers prove neither."""

    PASSED = "Passed"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    ERROR = "Error"


class WithoutTenantry(StrEnum):
    """What Kubernetes alone does, in a namespace whose user is bound to the ClusterRole `admin`."""

    OPEN = "Open"
    REFUSED = "Refused"
    DEPENDS = "Depends"


class WhenNotFound(StrEnum):
    """What the answer 404 means: the API server checks rights first, so a user who gets it has the right."""

    THROUGH = "Through"
    SKIPPED = "Skipped"


class AttemptOutcome(StrEnum):
    """The result of an attempt."""

    REFUSED = "Refused"
    THROUGH = "Through"
    UNDECIDED = "Undecided"
    SKIPPED = "Skipped"


class AttemptResponse(NamedTuple):
    """A successful answer of the API server: the object, and the headers in lower case."""

    body: Json
    headers: Mapping[str, str]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the tenant, which must do no harm if it goes through.

    Args:
        what: What is tried, for people, as in "create a pod (dry run)".
        method: The HTTP method.
        path: The URL's path.
        body: The body as JSON; None for none.
        content_type: The body's content type.
        query: The query parameters.
        missing: What 404 means.
        judge: Returns what is wrong with a successful answer, "" for nothing; None if the success itself is wrong. If
            the tenant may not read the answer, the check is skipped.
    """

    what: str
    path: str
    method: str = "GET"
    body: Json | None = None
    content_type: str = JSON
    query: dict[str, str] = {}
    missing: WhenNotFound = WhenNotFound.THROUGH
    judge: Callable[[AttemptResponse], str] | None = None


class AttemptResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of one attempt.

    Args:
        what: The attempt.
        outcome: How it ended.
        by: What refused it: RBAC, a policy, a quota; "" if nothing did.
        message: The server's message, or what its answer shows.
    """

    what: str
    outcome: AttemptOutcome
    by: str = ""
    message: str = ""

    @classmethod
    def refused(cls, what: str, by: str = "", message: str = "") -> AttemptResult:
        """Return the result of an attempt that was refused; the message follows the attempt."""
        return cls(what, AttemptOutcome.REFUSED, by, f"{what}: {message}" if message else "")

    @classmethod
    def through(cls, what: str, message: str = "") -> AttemptResult:
        """Return the result of an attempt that went through."""
        return cls(what, AttemptOutcome.THROUGH, message=message)

    @classmethod
    def skipped(cls, what: str, message: str) -> AttemptResult:
        """Return the result of an attempt that could not be made."""
        return cls(what, AttemptOutcome.SKIPPED, message=message)


class NotApplicable(NamedTuple):
    """A check cannot be tried here, and why."""

    why: str


class Observation(NamedTuple):
    """What an administrator sees without an attempt.

    Args:
        what: What was inspected.
        wrong: What is wrong with it, "" for nothing.
    """

    what: str
    wrong: str


AttemptsOf = Callable[[AuditContext], "Sequence[Attempt] | NotApplicable | Observation"]


class AuditCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that must not be possible; or, if `allowed`, one that must be.

    Args:
        id: As in TNT-API-001: the middle part names the area. An id is never reused.
        title: A sentence that is true if the check passes.
        severity: How serious it is if the check fails.
        tries: What is attempted.
        proves: What is known if the check passes.
        fix: What to change if the check fails.
        attempts: The requests; or why there are none here; or what is known without any.
        control: A legitimate request of the same kind. If that is refused, too, the refusals of the attempts prove
            nothing, and the check is skipped.
        allowed: The attempts must go through instead of being refused.
        by_quota: A quota must refuse the attempts; other refusals prove nothing. In other checks a refusal by a quota
            proves nothing unless the quota is 0: once something is deleted, the quota admits the attempt.
        alone: What Kubernetes does without Tenantry.
        benchmark: The check of kubectl-mtb that this one covers, "" for none.
        probe: Derives the results from what pods found out, if requests cannot tell; None if they can.
    """

    id: str
    title: str
    severity: Severity
    tries: str
    proves: str
    fix: str
    attempts: AttemptsOf
    control: Callable[[AuditContext], Attempt] | None = None
    allowed: bool = False
    by_quota: bool = False
    alone: WithoutTenantry = WithoutTenantry.REFUSED
    benchmark: str = ""
    probe: Callable[[AuditContext, ProbeFindings], Sequence[AttemptResult] | NotApplicable] | None = None

    @property
    def area(self) -> Area:
        """Return the subject of the check."""
        return _AREAS[self.id.split("-")[1]]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a check, with all that a reader needs to act on it."""

    id: str
    title: str
    area: Area
    severity: Severity
    verdict: Verdict
    message: str
    by: str = ""
    tries: str = ""
    proves: str = ""
    fix: str = ""
    attempts: tuple[AttemptResult, ...] = ()

"""What a check is, and what comes of it. Pure.

Check ─► attempts(Place) ─► requests as the tenant ─► what came of each ─► Verdict
└ or why there is nothing to try            └ refused, through, undecided, skipped
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenantry.audit.place import Place

if TYPE_CHECKING:
    from tenantry.audit.findings import Findings

Json = dict[str, Any]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Area(StrEnum):
    """What a check is about."""

    API = "api"
    PODS = "pods"
    NODES = "nodes"
    NETWORK = "network"
    STORAGE = "storage"
    QUOTA = "quota"
    TENANTRY = "tenantry"


class Severity(StrEnum):
    """How bad it is when a check fails."""

    CRITICAL = "Critical"
    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


class Verdict(StrEnum):
    """What came of a check: it holds, it does not, it could not be tried here, or its answer says neither."""

    PASSED = "Passed"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    ERROR = "Error"


class Alone(StrEnum):
    """What Kubernetes does without Tenantry, in a namespace whose user is bound to the ClusterRole `admin`."""

    OPEN = "Open"
    REFUSED = "Refused"
    DEPENDS = "Depends"


class Missing(StrEnum):
    """What the answer 404 means: rights are asked for first, so that whoever gets it had them."""

    THROUGH = "Through"
    SKIPPED = "Skipped"


class Answer(NamedTuple):
    """What the server answered with a success: the object, and the headers in lower case."""

    body: Json
    headers: Mapping[str, str]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the tenant, that must do no harm if it goes through.

    Args:
        what: What is tried, for people, as in "create a pod (dry run)".
        method: HTTP's.
        path: Where to.
        body: As JSON; None for none.
        content_type: Of the body.
        query: As in the API.
        missing: What 404 means.
        judge: Looks at an answer that is a success, and returns what is wrong with it, "" for nothing; None where the
            success itself is what is wrong. Who may not read what it would look at is not known to be kept from it.
    """

    what: str
    path: str
    method: str = "GET"
    body: Json | None = None
    content_type: str = JSON
    query: dict[str, str] = {}
    missing: Missing = Missing.THROUGH
    judge: Callable[[Answer], str] | None = None


class Nothing(NamedTuple):
    """There is nothing to try here, and why."""

    why: str


class Seen(NamedTuple):
    """What an administrator sees already, so that nothing has to be tried.

    Args:
        what: What was looked at.
        wrong: What is wrong with it, "" for nothing.
    """

    what: str
    wrong: str


Attempts = Callable[[Place], "Sequence[Attempt] | Nothing | Seen"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that must not be possible; or, where `allowed`, one that must be.

    Args:
        id: As in TNT-API-001; never given to another check.
        title: In a few words.
        area: What it is about.
        severity: How bad it is when it fails.
        tries: What is attempted.
        proves: What is known when it passes.
        fix: What to change when it fails.
        attempts: The requests, or why there are none here, or what is known without any.
        control: An honest request of the same kind. Where that is refused too, the refusals of the attempts tell
            nothing, and the check is skipped.
        allowed: The attempts must go through, rather than be refused.
        by_quota: A quota has to refuse the attempts: whatever else does tells nothing. Elsewhere a quota tells nothing,
            unless it is of 0: once something is deleted, it refuses no more.
        alone: What Kubernetes does without Tenantry.
        benchmark: The check of kubectl-mtb that this one covers, "" for none.
        probe: What comes of it by what pods have seen that ran, where requests cannot tell; None where they can.
    """

    id: str
    title: str
    area: Area
    severity: Severity
    tries: str
    proves: str
    fix: str
    attempts: Attempts
    control: Callable[[Place], Attempt] | None = None
    allowed: bool = False
    by_quota: bool = False
    alone: Alone = Alone.REFUSED
    benchmark: str = ""
    probe: Callable[[Place, Findings], Sequence[Tried] | Nothing] | None = None


class Tried(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of one attempt.

    Args:
        what: The attempt.
        outcome: Refused, Through, Undecided or Skipped.
        by: What refused it: RBAC, a policy, a quota; "" where nothing did.
        message: What the server said, or what its answer shows.
    """

    what: str
    outcome: str
    by: str = ""
    message: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of a check, and all that a reader needs to act on it."""

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
    attempts: tuple[Tried, ...] = ()

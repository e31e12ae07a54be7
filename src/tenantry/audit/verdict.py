"""What answers mean: of one attempt, of a check, of a whole audit. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from tenantry.api.wording import shortened
from tenantry.audit.check import Check, Result, Seen, Severity, Tried, Verdict

NEEDS_PROBE = "it needs pods that run: give --probe"
NO_NODES = "no node is seen that runs containers and takes pods (kwok only plays nodes)"
NO_IMAGE = (
    "there is no image of the probe for the pods to run: `--probe-image` names one "
    "(docs/how-to/audit.md tells how it is made)"
)


class Outcome(StrEnum):
    """What came of an attempt."""

    REFUSED = "Refused"
    THROUGH = "Through"
    UNDECIDED = "Undecided"
    SKIPPED = "Skipped"


WEIGHTS = {Severity.CRITICAL: 10, Severity.HIGH: 6, Severity.MEDIUM: 3, Severity.LOW: 1}
"""What a check counts in the score."""

_POLICY = re.compile(r"(Validating|Mutating)AdmissionPolicy '([^']+)'")
_QUOTA = re.compile(r"(?:exceeded|failed) quota: ([^,\s:]+)")
_NONE = re.compile(r"limited: \S*=0(,|$)")
"""A quota of nothing, which is a guard: it is full for ever."""
_ENDING = "because it is being terminated"
"""So Kubernetes refuses whatever would be new in a namespace that goes."""

_WEBHOOK = re.compile(r'admission webhook "([^"]+)"')


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many checks came out how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    errors: int = 0


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """A whole audit of one namespace.

    Args:
        tenant: Whose it is, "" for nobody's.
        namespace: What was audited.
        user: As whom.
        time: When, RFC 3339.
        seconds: How long it took.
        score: See `score`.
        summary: How many checks came out how.
        checks: All results.
    """

    tenant: str
    namespace: str
    user: str
    time: str
    seconds: float
    score: int
    summary: Counts
    checks: tuple[Result, ...]


def refused_by(message: str) -> str:
    """Return what refused a request, as its message tells."""
    policy, quota, webhook = _POLICY.search(message), _QUOTA.search(message), _WEBHOOK.search(message)
    if policy:
        return f"policy {policy[2]}"
    if quota:
        return f"quota {quota[1]}"
    if webhook:
        return f"webhook {webhook[1]}"
    if "violates PodSecurity" in message:
        return "PodSecurity"
    return "RBAC" if " cannot " in message or "attempting to grant RBAC" in message else "Kubernetes"


def of_check(check: Check, tried: Sequence[Tried]) -> Result:
    """Return what came of a check, out of what came of its attempts."""
    if check.allowed:
        return _of_permission(check, tried)
    tried = [_heard(check, each) for each in tried]
    through = [each for each in tried if each.outcome == Outcome.THROUGH]
    undecided = [each for each in tried if each.outcome == Outcome.UNDECIDED]
    refused = [each for each in tried if each.outcome == Outcome.REFUSED]
    skipped = [each for each in tried if each.outcome == Outcome.SKIPPED]
    if through:
        return result(check, Verdict.FAILED, named(_what_went(each) for each in through), tried)
    if undecided:
        return result(check, Verdict.ERROR, undecided[0].message, tried)
    if refused:
        by = ", ".join(sorted({each.by for each in refused if each.by}))
        return result(check, Verdict.PASSED, refused[0].message, tried, by=by)
    return result(check, Verdict.SKIPPED, skipped[0].message if skipped else "there is nothing to try", tried)


def _heard(check: Check, tried: Tried) -> Tried:
    """Return an attempt as it counts: a refusal by what the check is not about tells nothing."""
    if tried.outcome != Outcome.REFUSED:
        return tried
    outcome = Outcome.SKIPPED
    if _ENDING in tried.message:
        why = "the namespace is being deleted"
    elif check.by_quota and not tried.by.startswith("quota "):
        why = f"{tried.by} refuses it before a quota is asked"
    elif not check.by_quota and _is_full(tried.message):
        outcome, why = Outcome.UNDECIDED, "a quota that is full refuses it"
    else:
        return tried
    return replace(tried, outcome=outcome, by="", message=f"it cannot be told, because {why}: {tried.message}")


def _is_full(message: str) -> bool:
    return "exceeded quota" in message and not _NONE.search(message)


def without_control(check: Check, control: Tried) -> Result:
    """Return what came of a check whose honest request does not go through either.

    A quota that is full is the tenant's own doing: were that skipped, its score would rise by it.
    """
    why = f"it cannot be told, because what is honest is refused too: {control.what}: {control.message}"
    return result(check, Verdict.ERROR if _is_full(control.message) else Verdict.SKIPPED, why)


def of_seen(check: Check, seen: Seen) -> Result:
    """Return what came of a check for which nothing had to be tried."""
    outcome = Outcome.THROUGH if seen.wrong else Outcome.REFUSED
    tried = (Tried(what=seen.what, outcome=outcome, message=seen.wrong),)
    return result(
        check, Verdict.FAILED if seen.wrong else Verdict.PASSED, seen.wrong or f"{seen.what}: nothing is open", tried
    )


def _of_permission(check: Check, tried: Sequence[Tried]) -> Result:
    bad = [each for each in tried if each.outcome != Outcome.THROUGH]
    if not bad:
        return result(check, Verdict.PASSED, "allowed", tried)
    is_refused = any(each.outcome == Outcome.REFUSED for each in bad)
    return result(check, Verdict.FAILED if is_refused else Verdict.ERROR, bad[0].message, tried)


def result(check: Check, verdict: Verdict, message: str, tried: Sequence[Tried] = (), *, by: str = "") -> Result:
    """Return the result of a check."""
    return Result(
        id=check.id,
        title=check.title,
        area=check.area,
        severity=check.severity,
        verdict=verdict,
        message=message,
        by=by,
        tries=check.tries,
        proves=check.proves,
        fix=check.fix,
        attempts=tuple(tried),
    )


def _what_went(tried: Tried) -> str:
    return f"{tried.what}: {tried.message}" if tried.message else tried.what


def named(texts: Iterable[str]) -> str:
    """Return texts in the order in which they were found, shortened."""
    return shortened(texts, separator="; ", in_order=True)


def counts(results: Iterable[Result]) -> Counts:
    """Return how many checks came out how."""
    verdicts = [each.verdict for each in results]
    return Counts(
        passed=verdicts.count(Verdict.PASSED),
        failed=verdicts.count(Verdict.FAILED),
        skipped=verdicts.count(Verdict.SKIPPED),
        errors=verdicts.count(Verdict.ERROR),
    )


def score(results: Iterable[Result]) -> int:
    """Return the score of an audit, 0 to 100.

    It is the weight of what passed in percent of the weight of all that was decided, rounded down: only a clean audit
    has 100. An error counts as a failure, because nothing was shown; what was skipped does not count. Nothing decided
    is 0.
    """
    decided = [each for each in results if each.verdict is not Verdict.SKIPPED]
    whole = sum(WEIGHTS[each.severity] for each in decided)
    passed = sum(WEIGHTS[each.severity] for each in decided if each.verdict is Verdict.PASSED)
    return 100 * passed // whole if whole else 0

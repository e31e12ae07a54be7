"""The meaning of answers: of one attempt, of a check, of a whole audit. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from tenantry.api.isolationreport import Summary
from tenantry.api.wording import shortened
from tenantry.audit.check import AttemptOutcome, AttemptResult, AuditCheck, CheckResult, Observation, Severity, Verdict

NEEDS_PROBE = "needs running pods: use --probe"
NO_NODES = "no node runs containers and accepts pods (kwok nodes are simulated)"
NO_IMAGE = "the pods have no probe image: name one with `--probe-image` (docs/how-to/audit.md explains how to build it)"

WEIGHTS = {Severity.CRITICAL: 10, Severity.HIGH: 6, Severity.MEDIUM: 3, Severity.LOW: 1}
"""The weight of a check in the score."""

_REFUSED_BY = (
    (re.compile(r"(?:Validating|Mutating)AdmissionPolicy '([^']+)'"), "policy "),
    (re.compile(r"(?:exceeded|failed) quota: ([^,\s:]+)"), "quota "),
    (re.compile(r'admission webhook "([^"]+)"'), "webhook "),
    (re.compile(r"violates (PodSecurity)"), ""),
    (re.compile(r"( cannot |attempting to grant RBAC)"), "RBAC"),
)
_ZERO_QUOTA = re.compile(r"limited: \S*=0(,|$)")
"""A quota of 0 always refuses."""
_TERMINATING = "because it is being terminated"
"""Kubernetes refuses every new object in a namespace that is being deleted."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """A whole audit of one namespace.

    Args:
        tenant: The namespace's tenant, "" for none.
        namespace: The audited namespace.
        user: The user who made the attempts.
        time: When the audit began, RFC 3339.
        seconds: How long it took.
        score: See `score`.
        summary: How many checks have each verdict.
        checks: All results.
    """

    tenant: str
    namespace: str
    user: str
    time: str
    seconds: float
    score: int
    summary: Summary
    checks: tuple[CheckResult, ...]


def refused_by(message: str) -> str:
    """Return what refused a request, from the message of the refusal."""
    for pattern, kind in _REFUSED_BY:
        found = pattern.search(message)
        if found is not None:
            return kind if kind == "RBAC" else f"{kind}{found[1]}"
    return "Kubernetes"


def of_check(check: AuditCheck, results: Sequence[AttemptResult]) -> CheckResult:
    """Return the result of a check from the results of its attempts."""
    if check.allowed:
        return _of_permission(check, results)
    results = [_counted(check, each) for each in results]

    def having(outcome: AttemptOutcome) -> list[AttemptResult]:
        return [each for each in results if each.outcome is outcome]

    # One attempt that succeeds is enough to fail, whatever the other answers are.
    if through := having(AttemptOutcome.THROUGH):
        texts = [f"{each.what}: {each.message}" if each.message else each.what for each in through]
        return result(check, Verdict.FAILED, named(texts), results)
    # An attempt without an answer may be the one that would have succeeded.
    if undecided := having(AttemptOutcome.UNDECIDED):
        return result(check, Verdict.ERROR, undecided[0].message, results)
    if refused := having(AttemptOutcome.REFUSED):
        by = ", ".join(sorted({each.by for each in refused if each.by}))
        return result(check, Verdict.PASSED, refused[0].message, results, by=by)
    return result(check, Verdict.SKIPPED, results[0].message if results else "there is nothing to try", results)


def _counted(check: AuditCheck, attempt: AttemptResult) -> AttemptResult:
    """Return a result as it counts: a refusal for a reason that the check is not about proves nothing."""
    if attempt.outcome is not AttemptOutcome.REFUSED:
        return attempt
    outcome = AttemptOutcome.SKIPPED
    if _TERMINATING in attempt.message:
        why = "the namespace is being deleted"
    elif check.by_quota and not attempt.by.startswith("quota "):
        why = f"{attempt.by} refuses it before the quota is checked"
    elif not check.by_quota and _is_full(attempt.message):
        outcome, why = AttemptOutcome.UNDECIDED, "a full quota refuses it"
    else:
        return attempt
    return replace(attempt, outcome=outcome, by="", message=f"unknown, because {why}: {attempt.message}")


def _is_full(message: str) -> bool:
    return "exceeded quota" in message and not _ZERO_QUOTA.search(message)


def without_control(check: AuditCheck, control: AttemptResult) -> CheckResult:
    """Return the result of a check whose legitimate request is refused, too.

    A tenant can fill its own quota: if that skipped the check, the tenant would raise its score by it.
    """
    why = f"unknown, because a legitimate request is refused, too: {control.what}: {control.message}"
    return result(check, Verdict.ERROR if _is_full(control.message) else Verdict.SKIPPED, why)


def of_observation(check: AuditCheck, seen: Observation) -> CheckResult:
    """Return the result of a check that needs no attempt."""
    if seen.wrong:
        return result(check, Verdict.FAILED, seen.wrong, [AttemptResult.through(seen.what, seen.wrong)])
    return result(check, Verdict.PASSED, f"{seen.what}: nothing is open", [AttemptResult.refused(seen.what)])


def _of_permission(check: AuditCheck, results: Sequence[AttemptResult]) -> CheckResult:
    bad = [each for each in results if each.outcome is not AttemptOutcome.THROUGH]
    if not bad:
        return result(check, Verdict.PASSED, "allowed", results)
    is_refused = any(each.outcome is AttemptOutcome.REFUSED for each in bad)
    return result(check, Verdict.FAILED if is_refused else Verdict.ERROR, bad[0].message, results)


def of_stranger(check: AuditCheck, found: CheckResult, why: str) -> CheckResult:
    """Return a result as it counts for a user without rights in the namespace: what RBAC refuses proves nothing.

    What succeeds although the user has no rights, or what a policy or quota refuses, counts.

    Args:
        check: The check.
        found: The result of its attempts.
        why: The message of a result that proves nothing.
    """
    if found.verdict is Verdict.PASSED and found.by in {"", "RBAC"}:
        return result(check, Verdict.SKIPPED, why, found.attempts)
    return found


def result(
    check: AuditCheck, verdict: Verdict, message: str, attempts: Sequence[AttemptResult] = (), *, by: str = ""
) -> CheckResult:
    """Return the result of a check."""
    return CheckResult(
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
        attempts=tuple(attempts),
    )


def named(texts: Iterable[str]) -> str:
    """Return texts in the order in which they were found, shortened."""
    return shortened(texts, separator="; ", in_order=True)


def counts(results: Iterable[CheckResult]) -> Summary:
    """Return how many checks have each verdict."""
    verdicts = [each.verdict for each in results]
    return Summary(
        passed=verdicts.count(Verdict.PASSED),
        failed=verdicts.count(Verdict.FAILED),
        skipped=verdicts.count(Verdict.SKIPPED),
        errors=verdicts.count(Verdict.ERROR),
    )


def score(results: Iterable[CheckResult]) -> int:
    """Return the score of an audit, 0 to 100: the share of the decided checks that passed, weighted by severity.

    It is rounded down, so that only an audit without failures has 100. An error counts as a failure, because it proves
    nothing. Skipped checks do not count. If nothing was decided, the score is 0.
    """
    decided = [each for each in results if each.verdict is not Verdict.SKIPPED]
    whole = sum(WEIGHTS[each.severity] for each in decided)
    passed = sum(WEIGHTS[each.severity] for each in decided if each.verdict is Verdict.PASSED)
    return 100 * passed // whole if whole else 0

"""What answers mean, and how a whole audit is scored and told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tenantry.api.model import Json
from tenantry.audit import verdict
from tenantry.audit.attempts import get, may
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import Area, AttemptResponse, AttemptResult, AuditCheck, CheckResult, Severity, Verdict
from tenantry.audit.checks.api import surplus
from tenantry.audit.sarif import sarif
from tenantry.audit.verdict import AttemptOutcome, Audit
from tenantry.engine.preview import merged

CHECK = AuditCheck(
    id="TNT-API-900",
    title="Something",
    severity=Severity.HIGH,
    tries="Tries.",
    proves="Proves.",
    fix="Fix.",
    attempts=lambda _: [],
)


def tried(*outcomes: AttemptOutcome) -> list[AttemptResult]:
    """Return attempts with these outcomes."""
    return [AttemptResult(what=f"try {number}", outcome=each, message="said") for number, each in enumerate(outcomes)]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([AttemptOutcome.REFUSED, AttemptOutcome.REFUSED], Verdict.PASSED),
        ([AttemptOutcome.REFUSED, AttemptOutcome.THROUGH, AttemptOutcome.UNDECIDED], Verdict.FAILED),
        ([AttemptOutcome.REFUSED, AttemptOutcome.UNDECIDED], Verdict.ERROR),
        ([AttemptOutcome.REFUSED, AttemptOutcome.SKIPPED], Verdict.PASSED),
        ([AttemptOutcome.SKIPPED], Verdict.SKIPPED),
        ([], Verdict.SKIPPED),
    ],
)
def test_one_attempt_that_goes_through_fails_the_check(outcomes: list[AttemptOutcome], expected: Verdict) -> None:
    """X06: what was not shown is no pass."""
    assert verdict.of_check(CHECK, tried(*outcomes)).verdict is expected


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([AttemptOutcome.THROUGH, AttemptOutcome.THROUGH], Verdict.PASSED),
        ([AttemptOutcome.THROUGH, AttemptOutcome.REFUSED], Verdict.FAILED),
        ([AttemptOutcome.UNDECIDED], Verdict.ERROR),
    ],
)
def test_what_must_be_allowed_fails_when_it_is_refused(outcomes: list[AttemptOutcome], expected: Verdict) -> None:
    allowed = AuditCheck(
        **{field: getattr(CHECK, field) for field in CHECK.__struct_fields__ if field != "allowed"}, allowed=True
    )
    assert verdict.of_check(allowed, tried(*outcomes)).verdict is expected


def result(of: Verdict, severity: Severity) -> CheckResult:
    """Return a result."""
    return CheckResult(id=f"{of}-{severity}", title="t", area=Area.API, severity=severity, verdict=of, message="m")


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], 0),
        ([result(Verdict.SKIPPED, Severity.CRITICAL)], 0),
        ([result(Verdict.PASSED, Severity.LOW), result(Verdict.SKIPPED, Severity.CRITICAL)], 100),
        ([result(Verdict.PASSED, Severity.CRITICAL), result(Verdict.FAILED, Severity.CRITICAL)], 50),
        ([result(Verdict.PASSED, Severity.CRITICAL), result(Verdict.ERROR, Severity.CRITICAL)], 50),
        ([*[result(Verdict.PASSED, Severity.CRITICAL)] * 40, result(Verdict.FAILED, Severity.LOW)], 99),
    ],
)
def test_only_a_clean_audit_has_the_full_score(results: list[CheckResult], expected: int) -> None:
    """X06: weighted by severity; what failed in the least never rounds away."""
    assert verdict.score(results) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('pods is forbidden: User "a" cannot list resource "pods"', "RBAC"),
        ("x: ValidatingAdmissionPolicy 'tenantry-marks' with binding 'b' denied request: no", "policy tenantry-marks"),
        ('pods "p" is forbidden: exceeded quota: tenantry-quota, requested: pods=1', "quota tenantry-quota"),
        ('admission webhook "w.example" denied the request', "webhook w.example"),
        ('pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged', "PodSecurity"),
        ("something else", "Kubernetes"),
    ],
)
def test_a_refusal_names_who_refused(message: str, expected: str) -> None:
    assert verdict.refused_by(message) == expected


@pytest.mark.parametrize(
    ("by_quota", "by", "message", "expected"),
    [
        (False, "policy tenantry-rules-pods", "no", Verdict.PASSED),
        (False, "quota q", "exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=10", Verdict.ERROR),
        # Of nothing there will never be one.
        (
            False,
            "quota q",
            "exceeded quota: q, requested: a=1,b=1, used: a=0,b=1, limited: a=0,b=9",
            Verdict.PASSED,
        ),
        (False, "quota q", "failed quota: q: must specify limits.cpu", Verdict.PASSED),
        (True, "quota q", "exceeded quota: q, requested: cpu=1k, used: cpu=0, limited: cpu=8", Verdict.PASSED),
        (True, "policy tenantry-rules-pods", "no", Verdict.SKIPPED),
        (
            False,
            "Kubernetes",
            "unable to create new content in namespace x because it is being terminated",
            Verdict.SKIPPED,
        ),
        (True, "Kubernetes", "maximum cpu usage per Container is 2", Verdict.SKIPPED),
    ],
)
def test_a_refusal_counts_by_what_refused(*, by_quota: bool, by: str, message: str, expected: Verdict) -> None:
    """X06: a full quota is no guard, and what one container may have is no quota."""
    check = replace(CHECK, by_quota=by_quota)
    tried = [AttemptResult(what="try", outcome=AttemptOutcome.REFUSED, by=by, message=message)]
    assert verdict.of_check(check, tried).verdict is expected


def test_the_answer_of_a_review_is_judged_by_what_it_says() -> None:
    judge = may("impersonate", "users").judge
    assert judge is not None
    assert judge(AttemptResponse({"status": {"allowed": False}}, {})) == ""
    assert "by a role" in judge(AttemptResponse({"status": {"allowed": True, "reason": "by a role"}}, {}))
    assert get("/version").judge is None


def test_a_merge_patch_takes_away_by_null() -> None:
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": {"e": 3}}}) == {"a": {"c": 2, "d": {"e": 3}}}


def test_sarif_has_a_rule_for_each_result_and_a_level_only_for_failures() -> None:
    """X06: as viewers of SARIF 2.1.0 need it."""
    checks = tuple(
        verdict.result(check, of, "said", [])
        for check, of in zip(CHECKS, (*Verdict, *[Verdict.PASSED] * len(CHECKS)), strict=False)
    )
    counts = verdict.counts(checks)
    audit = Audit(
        tenant="acme",
        namespace="acme",
        user="alice",
        time="2027-01-31T18:00:00Z",
        seconds=1.0,
        score=3,
        summary=counts,
        checks=checks,
    )
    (run,) = sarif([audit], CHECKS)["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[each["ruleIndex"]]["id"] for each in run["results"]] == [each.id for each in checks]
    assert {each["level"] for each in run["results"] if each["kind"] == "fail"} <= {"error", "warning", "note"}
    assert {each["level"] for each in run["results"] if each["kind"] != "fail"} == {"none"}
    assert {each["kind"] for each in run["results"]} == {"pass", "fail", "notApplicable", "review"}


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"verbs": ["get"], "resourceNames": ["acme"]}, ""),
        ({"verbs": ["get"], "resourceNames": ["acme", "rival"]}, "may get secrets"),
        ({"verbs": ["get"]}, "may get secrets"),
        ({"verbs": ["get", "watch"], "resourceNames": ["acme"]}, "may get/watch secrets"),
    ],
)
def test_the_right_to_get_its_own_kubeconfig_is_no_finding(rule: Json, told: str) -> None:
    """H01: one more right where kubeconfigs are is one."""
    answer = AttemptResponse({"status": {"resourceRules": [{"apiGroups": [""], "resources": ["secrets"], **rule}]}}, {})
    assert surplus(answer, frozenset(), frozenset({"acme"})) == told

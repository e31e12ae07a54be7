"""An audit in the format SARIF, for tools that collect findings. Pure.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

from collections.abc import Sequence

from tenantry import __version__
from tenantry.api.model import Json
from tenantry.audit.check import AuditCheck, CheckResult, Severity, Verdict
from tenantry.audit.verdict import Audit

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
REFERENCE = "https://tenantry.dev/reference/checks"

_LEVELS = {Severity.CRITICAL: "error", Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note"}
_SCORES = {Severity.CRITICAL: "9.5", Severity.HIGH: "8.0", Severity.MEDIUM: "5.5", Severity.LOW: "2.0"}
"""Values of `security-severity`, by which viewers sort: the middle of the ranges of CVSS."""

_KINDS = {
    Verdict.FAILED: "fail",
    Verdict.PASSED: "pass",
    Verdict.SKIPPED: "notApplicable",
    Verdict.ERROR: "review",
}


def sarif(audits: Sequence[Audit], checks: Sequence[AuditCheck]) -> Json:
    """Return a SARIF log of one run for each audit."""
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(audit, checks) for audit in audits]}


def _run(audit: Audit, checks: Sequence[AuditCheck]) -> Json:
    driver = {
        "name": "tenantry audit",
        "version": __version__,
        "semanticVersion": f"{__version__}",
        "informationUri": "https://tenantry.dev",
        "rules": [_rule(check) for check in checks],
    }
    indexes = {check.id: index for index, check in enumerate(checks)}
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"tenantry-audit/{audit.namespace}/"},
        "invocations": [{"executionSuccessful": not audit.summary.errors, "startTimeUtc": audit.time}],
        "results": [_result(audit, each, indexes[each.id]) for each in audit.checks],
        "properties": {"score": audit.score, "user": audit.user, "tenant": audit.tenant},
    }


def _rule(check: AuditCheck) -> Json:
    return {
        "id": check.id,
        "name": "".join(word.capitalize() for word in check.title.replace("(", " ").replace(")", " ").split()),
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": f"{check.tries} {check.proves}"},
        "help": {"text": check.fix},
        "helpUri": f"{REFERENCE}#{check.id.lower()}",
        "defaultConfiguration": {"level": _LEVELS[check.severity]},
        "properties": {"security-severity": _SCORES[check.severity], "tags": ["security", check.area]},
    }


def _result(audit: Audit, result: CheckResult, index: int) -> Json:
    # Only results of the kind fail may have another level (section 3.27.10).
    level = _LEVELS[result.severity] if result.verdict is Verdict.FAILED else "none"
    name = f"namespaces/{audit.namespace}"
    return {
        "ruleId": result.id,
        "ruleIndex": index,
        "kind": _KINDS[result.verdict],
        "level": level,
        "message": {"text": f"{result.title}: {result.message}"},
        "locations": [{"logicalLocations": [{"fullyQualifiedName": name, "kind": "namespace"}]}],
        # The same finding in the next audit, even if the API server words its message differently.
        "partialFingerprints": {"tenantry/v1": f"{audit.namespace}/{result.id}"},
    }

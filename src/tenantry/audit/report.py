"""Writes the results of an audit into the IsolationReport of its namespace."""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.isolationreport import (
    LATEST,
    MAX_MESSAGE,
    FailedCheck,
    IsolationReport,
    IsolationReportSpec,
    IsolationReportStatus,
)
from tenantry.api.model import ObjectMeta
from tenantry.audit.check import CheckResult, Verdict
from tenantry.audit.verdict import Audit
from tenantry.kube import wire
from tenantry.kube.client import Client


def report(audit: Audit) -> IsolationReport:
    """Return the report of an audit."""
    labels = {marks.MANAGED_BY: marks.MANAGER, **({marks.TENANT: audit.tenant} if audit.tenant else {})}
    return IsolationReport(
        metadata=ObjectMeta(name=LATEST, namespace=audit.namespace, labels=labels),
        spec=IsolationReportSpec(user=audit.user, tenant=audit.tenant),
        status=IsolationReportStatus(
            time=audit.time,
            score=audit.score,
            summary=audit.summary,
            failed=tuple(_failed(each) for each in audit.checks if each.verdict is Verdict.FAILED),
        ),
    )


def _failed(result: CheckResult) -> FailedCheck:
    return FailedCheck(
        id=result.id,
        title=result.title,
        severity=result.severity,
        message=result.message[:MAX_MESSAGE],
        fix=result.fix[:MAX_MESSAGE],
    )


async def write(client: Client, audit: Audit) -> None:
    """Write the report, and replace the previous one.

    Args:
        client: The client of an administrator.
        audit: The audit.
    """
    wanted = report(audit)
    whole = wire.encode(wanted)
    resource = IsolationReport.resource
    path = wire.path(resource, audit.namespace, LATEST)
    query = {"fieldManager": f"{marks.MANAGER}-audit", "force": "true"}
    # The status is a subresource: a write to the object itself ignores it.
    for url in (path, f"{path}/status"):
        await client.request("PATCH", url, query=query, body=whole, content_type="application/apply-patch+yaml")

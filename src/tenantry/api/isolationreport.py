"""IsolationReport: the result of an isolation audit of a namespace, for its owners (X06)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Column, Names, list_map
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.times import Instant

LATEST = "latest"
"""The name of the report of the last audit that wrote one."""

MAX_MESSAGE = 512


class IsolationReportSpec(Model, frozen=True, kw_only=True):
    """What was audited."""

    user: Annotated[str, Meta(max_length=253, description="The user that made the attempts.")]
    tenant: Annotated[str, Meta(max_length=63, description="The tenant of the namespace.")] = ""


class Summary(Model, frozen=True, kw_only=True, omit_defaults=False):
    """How many checks came out how."""

    passed: Annotated[int, Meta(ge=0)] = 0
    failed: Annotated[int, Meta(ge=0)] = 0
    skipped: Annotated[int, Meta(ge=0)] = 0
    errors: Annotated[int, Meta(ge=0)] = 0


class FailedCheck(Model, frozen=True, kw_only=True):
    """A check that failed."""

    id: Annotated[str, Meta(max_length=32, description="As in the reference of checks.")]
    title: Annotated[str, Meta(max_length=128, description="What it is about.")]
    severity: Annotated[str, Meta(max_length=16, description="Critical, High, Medium or Low.")]
    message: Annotated[str, Meta(max_length=MAX_MESSAGE, description="What was possible.")] = ""
    fix: Annotated[str, Meta(max_length=MAX_MESSAGE, description="What to change.")] = ""


class IsolationReportStatus(Model, frozen=True, kw_only=True, omit_defaults=False):
    """What was found."""

    time: Annotated[Instant, Meta(description="When the audit ran.")] = ""
    score: Annotated[int, Meta(ge=0, le=100, description="0 to 100, by severity; see the how-to on audits.")] = 0
    summary: Annotated[Summary, Meta(description="How many checks came out how.")] = Summary()
    failed: Annotated[
        tuple[FailedCheck, ...],
        Meta(max_length=256, description="The checks that failed.", extra_json_schema=list_map("id")),
    ] = ()


class IsolationReport(KubernetesObject, frozen=True, kw_only=True):
    """What the self-test of isolation found in this namespace; `tenantry audit --report` writes it."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "isolationreports", "IsolationReport")
    names: ClassVar[Names] = Names(short=("isorep",))
    access: ClassVar[KindAccess] = KindAccess(owners=READ)
    validations: ClassVar[tuple[()]] = ()
    columns: ClassVar[tuple[Column, ...]] = (
        Column("Score", "integer", ".status.score"),
        Column("Passed", "integer", ".status.summary.passed"),
        Column("Failed", "integer", ".status.summary.failed"),
        Column("Skipped", "integer", ".status.summary.skipped"),
        Column("Errors", "integer", ".status.summary.errors", priority=1),
        Column("User", "string", ".spec.user", priority=1),
        Column("Audited", "date", ".status.time"),
    )

    spec: IsolationReportSpec
    status: IsolationReportStatus = IsolationReportStatus()

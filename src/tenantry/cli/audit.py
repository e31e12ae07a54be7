"""`tenantry audit`: try, as a tenant, what a tenant must not be able to do."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.isolationreport import IsolationReport
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.owner import OwnerKind
from tenantry.api.tenant import Tenant
from tenantry.cli import complete, output, session
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from types import FrameType

    from rich.text import Text

    from tenantry.audit.check import CheckResult
    from tenantry.audit.probe.objects import ProbeImage
    from tenantry.audit.verdict import Audit
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client

SOMETHING_FAILED = 1
SOMETHING_UNKNOWN = 5
IMAGE = "registry.k8s.io/pause:3.10"
MEMBER = "tenantry-audit-member"
"""The user of attempts if the owner is a group: no real user has this name."""

_COLORS = {"Passed": "green", "Failed": "red", "Skipped": "yellow", "Error": "magenta"}


class AuditSubject(msgspec.Struct, frozen=True, kw_only=True):
    """Who is audited, and where.

    Args:
        namespace: To audit.
        tenant: The tenant of the namespace, "" without one.
        user: As whom; "" with the credentials as they are.
        groups: In which groups.
    """

    namespace: str
    tenant: str
    user: str
    groups: tuple[str, ...] = ()


@click.command()
@takes_target
@click.argument("tenant", required=False, default="", shell_complete=complete.tenants)
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAMESPACE",
    shell_complete=complete.namespaces,
    help="Audit this one, whether it is a tenant's or not.  [default: the tenant's core namespace]",
)
@click.option("--as", "user", default="", metavar="USER", help="Make the attempts as this user.  [default: an owner]")
@click.option("--as-group", "groups", multiple=True, metavar="GROUP", help="With --as: in this group. Repeatable.")
@click.option("--self", "itself", is_flag=True, help="Make the attempts with these credentials as they are.")
@click.option("--image", default=IMAGE, show_default=True, help="Of the pods that are tried; none is run.")
@click.option("--probe", is_flag=True, help="Run pods too, where the cluster has nodes that do.")
@click.option(
    "--probe-image",
    default="",
    metavar="IMAGE",
    help="What those pods run.  [default: made for a local cluster with real nodes; see docs/how-to/audit.md]",
)
@click.option("--report", is_flag=True, help="Write the IsolationReport 'latest' into the namespace.")
@output.output_option("table", "json", "sarif")
def audit(
    target: Target,
    *,
    tenant: str,
    namespace: str,
    user: str,
    groups: tuple[str, ...],
    itself: bool,
    image: str,
    probe: bool,
    probe_image: str,
    report: bool,
    form: str | None,
) -> None:
    r"""Try, as a tenant, everything that a tenant must not be able to do, and say what went through.

    Attempts are reads, dry runs and questions about rights: nothing is made or changed, but by --probe, which makes
    pods in the namespace, and others in one of its own, and takes them away. With neither TENANT nor --namespace every
    tenant is audited. Exit code: 0 nothing failed, 1 something did, 5 something could not be told.

    \b
      tenantry audit acme
      tenantry audit acme --probe
      tenantry audit --namespace legacy --as bob
      tenantry audit acme -o sarif > acme.sarif
    """
    if (user or groups) and itself:
        raise InputError("give either --as or --self, not both")
    if groups and not user:
        raise InputError("--as-group needs --as")
    if probe_image and not probe:
        raise InputError("--probe-image needs --probe")

    async def work(client: Client) -> list[Audit]:
        subjects = await _subjects(client, tenant, namespace)
        await _may_report(client, subjects if report else ())
        if user or itself:
            subjects = [msgspec.structs.replace(each, user=user, groups=groups) for each in subjects]
        ran = await _probe_image(target, probe_image) if probe else None
        return [await _audited(client, each, image=image, ran=ran, writes=report) for each in subjects]

    if probe:
        # SIGTERM cleans up like Ctrl-C, which shells make their background jobs ignore.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
    audits = session.run(target, work)
    _print(audits, form, single=bool(tenant or namespace))
    if any(each.summary.failed for each in audits):
        sys.exit(SOMETHING_FAILED)
    if any(each.summary.errors for each in audits):
        sys.exit(SOMETHING_UNKNOWN)


async def _may_report(client: Client, subjects: Sequence[AuditSubject]) -> None:
    """Check, before any attempt, that the caller may write the reports.

    Raises:
        InputError: They may not.
    """
    from tenantry.audit.attempts import may
    from tenantry.audit.runner import attempted
    from tenantry.audit.verdict import AttemptOutcome

    for each in subjects:
        question = may("patch", IsolationReport.resource.plural, group=marks.GROUP, namespace=each.namespace)
        if (await attempted(client, question)).outcome == AttemptOutcome.REFUSED:
            raise InputError(
                f"you may not write the IsolationReport in {each.namespace!r}, which is for administrators:"
                " leave out --report"
            )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


async def _audited(
    client: Client, subject: AuditSubject, *, image: str, ran: ProbeImage | str | None, writes: bool
) -> Audit:
    """Audit one namespace.

    Args:
        client: The caller's.
        subject: Whom to audit, and where.
        image: Of the pods that are tried.
        ran: Of those that are run, or why there is none; None where none is to be run.
        writes: Whether to write the report.

    Raises:
        InputError: No user was named, and the attempts would be made as an administrator.
    """
    from tenantry.audit import report, runner
    from tenantry.audit.catalog import CHECKS
    from tenantry.audit.gather import gather
    from tenantry.audit.probe import run as probing
    from tenantry.audit.probe.objects import ProbeImage
    from tenantry.kube.client import Client

    connection = client.connection
    if subject.user:
        connection = msgspec.structs.replace(
            connection, impersonate=subject.user, impersonate_groups=_groups(subject.user, subject.groups)
        )
    async with Client(connection, field_manager="tenantry-audit", max_connections=runner.AT_ONCE) as person:
        found, groups = await runner.require(person, subject.user)
        place = await gather(
            client, namespace=subject.namespace, user=found, groups=groups, tenant=subject.tenant, image=image
        )
        findings = None
        if ran is not None:
            if isinstance(ran, ProbeImage) and place.real_nodes:
                output.talk(f"running pods in {subject.namespace!r} and beside it, for about half a minute")
            findings = await probing.probe(client, person, place, ran)
        done = await runner.audit(person, place, CHECKS, findings)
    if writes:
        await report.write(client, done)
        output.talk(f"isolationreport/latest in {subject.namespace!r} written")
    return done


async def _probe_image(target: Target, named: str) -> ProbeImage | str:
    """Return what pods run that an audit makes, or why there is nothing that they could run.

    Raises:
        LocalError: It cannot be made for a local cluster.
    """
    from tenantry.audit.probe.objects import ProbeImage
    from tenantry.audit.verdict import NO_IMAGE
    from tenantry.local.cluster import LocalCluster
    from tenantry.local.progress import StreamProgress
    from tenantry.local.real import probe

    if named:
        return ProbeImage(reference=named)
    cluster = LocalCluster(target.local_name) if target.local_name else None
    if cluster is None or cluster.spec().real is None:
        return NO_IMAGE
    progress = StreamProgress()
    try:
        return ProbeImage(reference=await probe.provide(cluster, progress), is_there=True)
    finally:
        progress.clear()


def _groups(user: str, groups: Sequence[str]) -> tuple[str, ...]:
    """Return the groups to name: the API server adds those of a service account only where none is named."""
    if not groups or not user.startswith("system:serviceaccount:"):
        return tuple(groups)
    namespace = user.split(":")[2]
    return (*groups, "system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


# -- who ------------------------------------------------------------------------------------------


async def _subjects(client: Client, tenant: str, namespace: str) -> list[AuditSubject]:
    """Return whom to audit.

    Raises:
        InputError: The namespace belongs to another tenant or has no owner, or the caller may not list all tenants.
    """
    if not tenant and not namespace:
        try:
            return [_owner_of(each) for each in await client.list(Tenant)]
        except Forbidden as error:
            raise InputError(
                f"you may not list all tenants: name yours, as in `tenantry audit acme` ({error})"
            ) from error
    try:
        if not namespace:
            return [_owner_of(await client.get(Tenant, tenant))]
        return [await _of_namespace(client, tenant, namespace)]
    except Forbidden:
        # An owner audits itself: it may read neither its Tenant nor, perhaps, the namespace's labels.
        return [AuditSubject(namespace=namespace or tenant, tenant=tenant, user="")]


def _owner_of(tenant: Tenant) -> AuditSubject:
    name, owner = tenant.metadata.name, tenant.spec.owners[0]
    return _as_owner(name, name, owner.kind, owner.name, owner.namespace)


def _as_owner(tenant: str, namespace: str, kind: str, name: str, of_account: str) -> AuditSubject:
    if kind == OwnerKind.GROUP:
        return AuditSubject(namespace=namespace, tenant=tenant, user=MEMBER, groups=(name,))
    user = f"system:serviceaccount:{of_account}:{name}" if kind == OwnerKind.SERVICE_ACCOUNT else name
    return AuditSubject(namespace=namespace, tenant=tenant, user=user)


async def _of_namespace(client: Client, tenant: str, namespace: str) -> AuditSubject:
    labels = (await client.get(Namespace, namespace)).metadata.labels
    found = labels.get(marks.TENANT, "")
    if tenant and found != tenant:
        raise InputError(f"the namespace {namespace!r} is not of the tenant {tenant!r}")
    if not found:
        return AuditSubject(namespace=namespace, tenant="", user="")
    try:
        subjects = (await client.get(RoleBinding, marks.OWNER_ROLE, namespace)).subjects
    except NotFound:
        subjects = ()
    if not subjects:
        return AuditSubject(namespace=namespace, tenant=found, user="")
    first = subjects[0]
    of_account = first.namespace if isinstance(first.namespace, str) else ""
    return _as_owner(found, namespace, first.kind, first.name, of_account)


# -- printing -------------------------------------------------------------------------------------


def _print(audits: Sequence[Audit], form: str | None, *, single: bool) -> None:
    if form == "sarif":
        from tenantry.audit.catalog import CHECKS
        from tenantry.audit.sarif import sarif

        output.write(output.to_json(sarif(audits, CHECKS)))
    elif form == "json":
        output.write(output.to_json(audits[0] if single else {"items": audits}))
    elif not audits:
        output.talk("there are no tenants")
    else:
        output.show(*(part for each in audits for part in lines(each)))


def lines(audit: Audit) -> list[Part]:
    """Return what is said of an audit: the score, every check, and what to do about those that failed."""
    counts = audit.summary
    whose = f"tenant {audit.tenant!r}, " if audit.tenant else ""
    told = f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped, {counts.errors} errors"
    rows = [(each.id, each.severity, _colored(each.verdict), each.title, each.by) for each in audit.checks]
    return [
        f"{whose}namespace {audit.namespace!r}, as {audit.user!r}: score {audit.score} of 100 ({told})",
        "",
        output.table(("CHECK", "SEVERITY", "VERDICT", "TITLE", "REFUSED BY"), rows),
        "",
        *(line for each in audit.checks for line in _details(each)),
    ]


def _details(result: CheckResult) -> list[Part]:
    if result.verdict == "Passed":
        return []
    head = _colored(result.verdict).append(output.styled(f" {result.id} {result.title}: {result.message}"))
    return [head, f"  fix: {result.fix}"] if result.verdict == "Failed" else [head]


def _colored(verdict: str) -> Text:
    return output.styled((verdict, _COLORS.get(verdict, "")))

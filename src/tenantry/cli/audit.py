"""`tenantry audit`: try, as a tenant, what a tenant must not be able to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.errors import InputError
from tenantry.cli import output, session
from tenantry.cli.completion import candidates
from tenantry.cli.paths import NAMESPACE, TENANT_NAME
from tenantry.cli.probeimage import image_of
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from rich.text import Text

    from tenantry.audit.check import CheckResult
    from tenantry.audit.verdict import Audit
    from tenantry.cli.output import Part
    from tenantry.kube.client import Client

SOMETHING_FAILED = 1
SOMETHING_UNKNOWN = 5
IMAGE = "registry.k8s.io/pause:3.10"
_COLORS = {"Passed": "green", "Failed": "red", "Skipped": "yellow", "Error": "magenta"}


@click.command()
@takes_target
@click.argument("tenant", required=False, default="", type=TENANT_NAME, shell_complete=candidates.tenants)
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAMESPACE",
    shell_complete=candidates.namespaces,
    type=NAMESPACE,
    help="Namespace to audit, of a tenant or not (default: the tenant's core namespace).",
)
@click.option("--as", "user", default="", metavar="USER", help="User who makes the attempts (default: an owner).")
@click.option(
    "--as-group", "groups", multiple=True, metavar="GROUP", help="Group of the user of --as. May be repeated."
)
@click.option("--self", "itself", is_flag=True, help="Make the attempts with your credentials, without --as.")
@click.option("--image", default=IMAGE, show_default=True, help="Image of the pods of dry runs.")
@click.option("--probe", is_flag=True, help="Run pods, too, if the cluster has nodes that run containers.")
@click.option(
    "--probe-image",
    default="",
    metavar="IMAGE",
    help="Image of the pods of --probe (default: built for a local cluster with real nodes; see docs/how-to/audit.md).",
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
    r"""Try, as a tenant, everything that a tenant must not be able to do, and report what succeeded.

    Attempts are reads, dry runs and questions about rights: they change nothing. --probe creates pods in the namespace
    and in a namespace of its own, and deletes them. Without TENANT and --namespace, all tenants are audited. Exit code:
    0 all checks passed, 1 a check failed, 5 a check had no result.

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
        from tenantry.audit import subjects
        from tenantry.views import installation

        chosen = await subjects.select(client, tenant, namespace)
        if report:
            await subjects.require_reports(client, chosen)
        if user or itself:
            chosen = [msgspec.structs.replace(each, user=user, groups=groups) for each in chosen]
        ran = await image_of(target, probe_image) if probe else None
        compared = await installation.differences(client)
        options = subjects.AuditOptions(image=image, probe=ran, reports=report, installation=compared)
        return await subjects.audit(client, chosen, options, output.talk)

    if probe:
        session.interrupt_on_signals()
    audits = session.run(target, work)
    _print(audits, form, single=bool(tenant or namespace))
    if any(each.summary.failed for each in audits):
        sys.exit(SOMETHING_FAILED)
    if any(each.summary.errors for each in audits):
        sys.exit(SOMETHING_UNKNOWN)


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
    """Return the page of an audit: the score, every check, and how to fix those that failed."""
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

"""`tenantry import`: converts the objects of other tools to Tenantry's, and prints or creates them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.api.tenant import NetworkIsolation
from tenantry.api.wording import shortened
from tenantry.cli import durations, output, session
from tenantry.cli.delete import confirm
from tenantry.cli.flags import choice_option, owner_option, parse_owner
from tenantry.cli.target import Target, may_take_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.world.hnc.objects import HncObjects, ImportFinding
    from tenantry.world.hnc.plan import ImportPlan


@click.group("import")
def import_() -> None:
    """Adopt the namespaces that another tool has created."""


@import_.command()
@may_take_target
@click.argument("roots", nargs=-1, metavar="[ROOT]...")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE|DIR|-",
    help="Read HNC's objects from files instead of a cluster. May be repeated.",
)
@owner_option("An owner of the tenants (default: the admins according to the RoleBindings in the root).")
@choice_option("--network", NetworkIsolation.OPEN, "Network isolation of the tenants from other tenants.")
@click.option("--fit", is_flag=True, help="Reduce shares if the quotas promise more than their parents have.")
@click.option(
    "--apply", "applies", is_flag=True, help="Create the objects; the existing namespaces then belong to the tenants."
)
@click.option("-y", "--yes", is_flag=True, help="With --apply: do not ask for confirmation.")
@durations.timeout_option("2m", "With --apply: deadline for each level of a tree.")
@output.output_option("yaml", "json", text="YAML documents, or one JSON List.")
def hnc(
    target: Callable[[], Target],
    *,
    roots: tuple[str, ...],
    files: tuple[str, ...],
    owners: tuple[str, ...],
    network: str,
    fit: bool,
    applies: bool,
    yes: bool,
    timeout: int,
    form: str | None,
) -> None:
    r"""Turn the trees of the Hierarchical Namespace Controller into tenants.

    Each root becomes a Tenant, and each namespace below it a Subnamespace that adopts the namespace unchanged. The
    command prints the objects on stdout, and on stderr what it does not convert, why, and what to do. --apply creates
    the objects: it deletes and recreates nothing, leaves HNC's objects alone, and can be repeated to continue.

    \b
      tenantry import hnc
      tenantry import hnc acme --owner Group:acme-leads --apply
      kubectl get subnamespaceanchors,hierarchyconfigurations,hrq,ns,rolebindings -A -o yaml > hnc.yaml
      tenantry import hnc -f hnc.yaml
    """
    from tenantry.world.hnc import plan as hnc_plan

    wishes = hnc_plan.ImportOptions(
        roots=roots,
        owners=tuple(dict.fromkeys(parse_owner(owner) for owner in owners)),
        network=NetworkIsolation(network),
        fit=fit,
    )
    world = _from_files(files) if files else _from_cluster(target())
    plan = hnc_plan.plan(world, wishes)
    _report(plan)
    if not applies:
        _print(plan, form or "yaml")
        return
    if plan.is_blocked:
        raise InputError('nothing was done: what stands under "blocks" above has to be decided first')
    many = f"{_count(len(plan.trees), 'tenant')} of {_count(sum(1 + len(t.children) for t in plan.trees), 'namespace')}"
    output.talk(f"{many}: {shortened([tree.tenant.metadata.name for tree in plan.trees])}")
    if not yes:
        confirm("Apply this? The namespaces stay, with everything in them.", "nothing was done")
    _carry_out(target(), plan, seconds=timeout)
    if form:
        _print(plan, form)


def _carry_out(target: Target, plan: ImportPlan, *, seconds: int) -> None:
    from tenantry.cli.imports import adoption

    async def work(client: Client) -> None:
        await adoption.adopt(client, plan, seconds=seconds)

    session.run(target, work)
    for line in adoption.NEXT:
        output.talk(line)


# -- reading --------------------------------------------------------------------------------------


def _from_files(files: Sequence[str]) -> HncObjects:
    from tenantry.cli.documents import documents_in, expanded
    from tenantry.world.hnc.objects import read

    found = [document for file in files for each in expanded(file) for document in documents_in(each, "HNC's objects")]
    return read((document.where, document.value) for document in found)


def _from_cluster(target: Target) -> HncObjects:
    from tenantry.cli.imports import hnc

    return session.run(target, hnc.read)


# -- printing -------------------------------------------------------------------------------------


def _report(plan: ImportPlan) -> None:
    for finding in plan.findings:
        output.talk(told(finding))
    for exempt in plan.exceptions:
        source = exempt.source
        output.talk(
            f"mark: kubectl annotate -n {source.metadata.namespace} {source.kind.lower()}/{source.metadata.name}"
            f" 'tenantry.dev/inherit={exempt.inherit}'"
        )


def told(finding: ImportFinding) -> str:
    """Return a finding in one line."""
    return f"{finding.weight}: {shortened(finding.where)}: {finding.text}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print(plan: ImportPlan, form: str) -> None:
    objects = [
        value for tree in plan.trees for value in (tree.tenant, *(child.subnamespace for child in tree.children))
    ]
    output.print_documents([output.whole(value) for value in objects], form)

"""`tenantry import`: converts the objects of other tools to Tenantry's, and prints, creates or removes them."""

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
from tenantry.world.hnc.tool import HNC
from tenantry.world.imports.form import ImportOptions
from tenantry.world.imports.objects import ImportSource, ImportTool
from tenantry.world.imports.sources import SOURCES

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.world.imports.findings import ImportFinding
    from tenantry.world.imports.form import ImportPlan

Planner = Callable[[Callable[[], Target], Sequence[str], ImportOptions], "ImportPlan"]
"""Returns the plan of an import from a cluster, or from files if there are any."""

USAGE = """\
    The command prints the objects on stdout, and on stderr what it does not convert, why, and what to do. --apply
    creates the objects: it deletes and recreates nothing, leaves the objects of {title} alone, and can be repeated to
    continue. Until --commit, --undo gives the namespaces back as they were.

    \b
      tenantry import {name}
      tenantry import {name} acme --owner Group:acme-leads --apply
      tenantry import {name} acme --undo
      tenantry import {name} --commit
      {listing} > {name}.yaml
      tenantry import {name} -f {name}.yaml
"""


@click.group("import")
def import_() -> None:
    """Adopt the namespaces that another tool has created."""


def _command(tool: ImportTool, planner: Planner) -> click.Command:
    """Return the verb of a tool."""

    @click.command(
        tool.name, help=f"{tool.help}\n{USAGE.format(title=tool.title, name=tool.name, listing=tool.listing)}"
    )
    @may_take_target
    @click.argument("roots", nargs=-1, metavar="[TENANT]...")
    @click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        metavar="FILE|DIR|-",
        help=f"Read the objects of {tool.title} from files instead of a cluster. May be repeated.",
    )
    @owner_option(f"An owner of the Tenants (default: as in {tool.title}).")
    @choice_option("--network", NetworkIsolation.OPEN, "Network isolation of the Tenants from other tenants.")
    @click.option("--fit", is_flag=True, help="Reduce shares if the quotas promise more than their parents have.")
    @click.option(
        "--apply",
        "applies",
        is_flag=True,
        help="Create the objects; the existing namespaces then belong to the Tenants.",
    )
    @click.option(
        "--undo", "undoes", is_flag=True, help="Give the namespaces of imported Tenants back, and delete the Tenants."
    )
    @click.option("--commit", "commits", is_flag=True, help="End the time in which the import can be undone.")
    @click.option("-y", "--yes", is_flag=True, help="With --apply, --undo or --commit: do not ask for confirmation.")
    @durations.timeout_option("2m", "With --apply or --undo: deadline for each level of a tree.")
    @output.output_option("yaml", "json", text="YAML documents, or one JSON List.")
    def verb(
        target: Callable[[], Target],
        *,
        roots: tuple[str, ...],
        files: tuple[str, ...],
        owners: tuple[str, ...],
        network: str,
        fit: bool,
        applies: bool,
        undoes: bool,
        commits: bool,
        yes: bool,
        timeout: int,
        form: str | None,
    ) -> None:
        if applies + undoes + commits > 1:
            raise InputError("give only one of --apply, --undo and --commit")
        if undoes or commits:
            if files:
                raise InputError("--undo and --commit read the cluster: leave out -f")
            _end(target(), tool, roots, undoes=undoes, yes=yes, seconds=timeout)
            return
        options = ImportOptions(
            roots=roots,
            owners=tuple(dict.fromkeys(parse_owner(owner) for owner in owners)),
            network=NetworkIsolation(network),
            fit=fit,
        )
        plan = planner(target, files, options)
        _report(plan)
        if not applies:
            _print(plan, form or "yaml")
            return
        _apply(target(), tool, plan, yes=yes, seconds=timeout)
        if form:
            _print(plan, form)

    return verb


def _apply(target: Target, tool: ImportTool, plan: ImportPlan, *, yes: bool, seconds: int) -> None:
    if plan.is_blocked:
        raise InputError('nothing was done: what stands under "blocks" above has to be decided first')
    _tell_many({tree.tenant.metadata.name: len(tree.namespaces) for tree in plan.trees})
    if not yes:
        confirm("Apply this? The namespaces stay, with everything in them.", "nothing was done")
    from tenantry.cli.imports import adoption

    async def work(client: Client) -> None:
        await adoption.adopt(client, plan, tool, seconds=seconds)

    session.run(target, work)
    output.talk(f"`tenantry import {tool.name} --undo` takes this back until `tenantry import {tool.name} --commit`")
    for line in tool.next:
        output.talk(line)


def _end(target: Target, tool: ImportTool, roots: Sequence[str], *, undoes: bool, yes: bool, seconds: int) -> None:
    from tenantry.cli.imports import undoing

    async def find(client: Client) -> list[undoing.UndoneTree]:
        return await undoing.undoable(client, tool, roots)

    trees = session.run(target, find)
    if not trees:
        output.talk(f"no import from {tool.title} is left to {'undo' if undoes else 'commit'}")
        return
    _tell_many({tree.name: len(tree.namespaces) for tree in trees})
    if not yes:
        question = "Undo this import? The namespaces stay" if undoes else "Commit this import? It cannot be undone then"
        confirm(f"{question}.", "nothing was done")

    async def work(client: Client) -> None:
        if undoes:
            await undoing.undo(client, tool, trees, seconds=seconds)
        else:
            await undoing.commit(client, trees)

    session.run(target, work)


# -- reading --------------------------------------------------------------------------------------


def _of_source(source: ImportSource) -> Planner:
    def planner(target: Callable[[], Target], files: Sequence[str], options: ImportOptions) -> ImportPlan:
        from tenantry.cli.imports import reading

        async def work(client: Client) -> ImportPlan:
            return source.plan(await reading.from_cluster(client, source), options)

        return source.plan(reading.from_files(source, files), options) if files else session.run(target(), work)

    return planner


def _of_hnc(target: Callable[[], Target], files: Sequence[str], options: ImportOptions) -> ImportPlan:
    from tenantry.cli.imports import hnc, reading
    from tenantry.world.hnc.objects import read
    from tenantry.world.hnc.plan import plan

    if files:
        found = reading.documents(files, HNC.title)
        return plan(read((document.where, document.value) for document in found), options)
    return plan(session.run(target(), hnc.read), options)


for _each in SOURCES:
    import_.add_command(_command(_each, _of_source(_each)))
import_.add_command(_command(HNC, _of_hnc))


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


def _tell_many(tenants: dict[str, int]) -> None:
    """Print how many tenants and namespaces are concerned."""
    many = f"{_count(len(tenants), 'tenant')} of {_count(sum(tenants.values()), 'namespace')}"
    output.talk(f"{many}: {shortened(tenants)}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print(plan: ImportPlan, form: str) -> None:
    documents: list[dict[str, object]] = []
    for tree in plan.trees:
        documents += [output.whole(value) for value in (tree.tenant, *(child.subnamespace for child in tree.children))]
        documents += [value.document for value in tree.objects]
    output.print_documents(documents, form)

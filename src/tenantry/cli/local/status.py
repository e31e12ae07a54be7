"""`tenantry status`: the local clusters, their components, and how these last ended unasked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import LocalError
from tenantry.cli import output
from tenantry.cli.local.name import name_option
from tenantry.local.cluster import LocalCluster
from tenantry.local.clusters import list_clusters
from tenantry.local.state import ComponentState, Phase
from tenantry.views.clusters import LocalClusterView, local_clusters

if TYPE_CHECKING:
    from tenantry.cli.output import Part

HEADERS = ("COMPONENT", "STATUS", "PID", "PORT", "RESTARTS", "LAST UNPLANNED END")


@click.command()
@name_option
@output.output_option("table", "wide", "json", "yaml", default="table")
@click.pass_context
def status(context: click.Context, *, name: str, form: str) -> None:
    """Show the local clusters; with --name only that one, and exit code 4 unless all of it is ready."""
    source = context.get_parameter_source("name")
    named = source is not None and source.name != "DEFAULT"
    views = asyncio.run(local_clusters([LocalCluster(name)] if named else list_clusters()))
    if form == "json":
        output.write(output.to_json(views))
    elif form == "yaml":
        output.write(output.to_yaml([views]))
    elif not views:
        output.talk("no local clusters; `tenantry up` creates one")
    else:
        output.show(*(part for view in views for part in lines(view, wide=form == "wide")))
    if named and views[0].phase is not Phase.READY:
        context.exit(LocalError.exit_code)


def lines(view: LocalClusterView, *, wide: bool) -> list[Part]:
    """Return a cluster's line, its problems, the table of its components, and the last lines of those that ended."""
    rows = [
        (
            each.name,
            each.phase,
            str(each.pid or "-"),
            str(each.port),
            str(each.restarts),
            f"{each.last_exit} at {each.last_exit.at}" if each.last_exit else "",
        )
        for each in view.components
    ]
    data = f"{view.data} ({'throwaway' if view.throwaway else 'kept'})"
    places = [output.indented(output.pairs([("kubeconfig", view.kubeconfig), ("data", data)]))]
    return [
        f'cluster "{view.name}": {view.phase}, {view.server}',
        *(f"  {problem}" for problem in view.problems),
        *(places if wide else []),
        output.indented(output.table(HEADERS, rows)),
        *(line for each in view.components for line in _crash(each)),
    ]


def _crash(component: ComponentState) -> list[str]:
    found = component.last_exit.lines if component.last_exit else ()
    return [f"  last lines of {component.name} before it ended:", *(f"    {line}" for line in found)] if found else []

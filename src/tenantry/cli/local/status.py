"""`tenantry status`: the local clusters, their components, and what crashed."""

from __future__ import annotations

from typing import Literal

import click
import msgspec

from tenantry.api.errors import LocalError
from tenantry.cli.local.name import name_option
from tenantry.local.cluster import LocalCluster, list_clusters
from tenantry.local.state import ComponentState, Phase

Format = Literal["table", "wide", "json", "yaml"]


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is printed of one cluster; `server` and `kubeconfig` are those of the administrator."""

    name: str
    phase: Phase
    server: str
    kubeconfig: str
    data: str
    throwaway: bool
    supervisor_pid: int
    components: tuple[ComponentState, ...]


@click.command()
@name_option
@click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json", "yaml"]), default="table", help="How to print."
)
@click.pass_context
def status(context: click.Context, *, name: str, output: Format) -> None:
    """Show the local clusters; with --name only that one, and exit code 4 unless all of it is ready."""
    source = context.get_parameter_source("name")
    named = source is not None and source.name != "DEFAULT"
    reports = [_report(cluster) for cluster in ([LocalCluster(name)] if named else list_clusters())]
    if output in ("json", "yaml"):
        _print_data(reports, output)
    elif not reports:
        click.echo("no local clusters; `tenantry up` makes one", err=True)
    else:
        for report in reports:
            _print_people(report, wide=output == "wide")
    if named and reports[0].phase is not Phase.READY:
        context.exit(LocalError.exit_code)


def _report(cluster: LocalCluster) -> Report:
    spec, state = cluster.spec(), cluster.status()
    return Report(
        name=cluster.name,
        phase=state.phase,
        server=f"https://127.0.0.1:{spec.ports.apiserver}",
        kubeconfig=str(cluster.kubeconfig_path),
        data=str(cluster.paths.folder.resolve()),
        throwaway=spec.throwaway,
        supervisor_pid=state.supervisor_pid,
        components=state.components,
    )


def _print_data(reports: list[Report], output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(reports), indent=2))
        return
    import yaml  # 40 ms that only this needs

    click.echo(yaml.safe_dump(msgspec.to_builtins(reports), sort_keys=False), nl=False)


def _print_people(report: Report, *, wide: bool) -> None:
    click.echo(f'cluster "{report.name}": {report.phase}, {report.server}')
    if wide:
        kept = "throwaway" if report.throwaway else "kept"
        click.echo(f"  kubeconfig {report.kubeconfig}\n  data       {report.data} ({kept})")
    rows = [("COMPONENT", "STATUS", "PID", "PORT", "RESTARTS", "LAST CRASH")]
    for each in report.components:
        crash = f"{each.last_exit} at {each.last_exit.at}" if each.last_exit else ""
        rows.append((each.name, each.phase, str(each.pid or "-"), str(each.port), str(each.restarts), crash))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for each in report.components:
        if each.last_exit and each.last_exit.lines:
            click.echo(f"  last lines of {each.name} before it ended:")
            for line in each.last_exit.lines:
                click.echo(f"    {line}")

"""`tenantry logs`: the logs of a local cluster's components."""

from __future__ import annotations

import os
import sys

import click

from tenantry.api.errors import LocalError
from tenantry.cli.local.name import name_option
from tenantry.local import components
from tenantry.local.cluster import LocalCluster

_SUPERVISOR = "supervisor"


@click.command()
@name_option
@click.argument("component", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines until interrupted.")
@click.option(
    "--tail", "lines", type=click.IntRange(min=0), default=200, show_default=True, help="Number of lines to begin with."
)
@click.option("-p", "--previous", is_flag=True, help="Print the log of the previous run.")
def logs(*, name: str, component: str | None, follow: bool, lines: int, previous: bool) -> None:
    """Print the log of one component, of a real node, or of all."""
    from tenantry.local.hosted import processes

    cluster = LocalCluster(name)
    real = cluster.spec().real_names
    hosted = [each.name for each in processes(cluster.paths)]
    known = [*components.NAMES, *real, *((components.STORAGE,) if real else ()), *hosted, _SUPERVISOR]
    names = [components.check_name(component, known)] if component else known
    files = [cluster.paths.log(each) for each in names]
    if previous:
        files = [file.with_suffix(".log.1") for file in files]
    there = [str(file) for file in files if file.exists()]
    if not there:
        raise LocalError(f'there is no log of {component or "any component"} in "{cluster.paths.logs}"')
    sys.stdout.flush()
    # tail(1) waits by inotify and follows rotated files.
    os.execvp("tail", ["tail", "-n", str(lines), *(["-F"] if follow else []), *there])  # noqa: S607 - found on PATH

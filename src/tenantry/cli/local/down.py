"""`tenantry down`: stops a local cluster, and deletes its data on request."""

from __future__ import annotations

import asyncio

import click

from tenantry.cli.delete import confirm
from tenantry.cli.local.name import name_option
from tenantry.local.cluster import LocalCluster
from tenantry.local.clusters import list_clusters
from tenantry.local.peers import down as stop


@click.command()
@name_option
@click.option("--all", "everything", is_flag=True, help="Stop every local cluster.")
@click.option("--purge", is_flag=True, help="Delete the data, too.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def down(*, name: str, everything: bool, purge: bool, yes: bool) -> None:
    """Stop a local cluster, and the peers that were started with it; their data stays without --purge."""
    clusters = _alone() if everything else [LocalCluster(name)]
    for cluster in clusters:
        if purge and not yes:
            question = f'Drop the cluster "{cluster.name}" and all data in "{cluster.paths.folder}"?'
            confirm(question, f'cluster "{cluster.name}" stays as it is')
        ran = asyncio.run(stop(cluster, purge=purge))
        what = "stopped" if ran else "was not running"
        click.echo(f'cluster "{cluster.name}" {what}{"; its data is gone" if purge else ""}', err=True)


def _alone() -> list[LocalCluster]:
    """Return the clusters that stop with no other one."""
    found = list_clusters()
    peers = {peer.name for cluster in found for peer in cluster.spec().peers}
    return [each for each in found if each.name not in peers]

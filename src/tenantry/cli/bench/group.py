"""`tenantry bench`: measure a cluster's Tenantry, and what it adds to the API server's own speed."""

from __future__ import annotations

import click

from tenantry.cli.bench.clusters import clusters
from tenantry.cli.bench.establish import establish
from tenantry.cli.bench.fairness import fairness
from tenantry.cli.bench.federation import federation
from tenantry.cli.bench.footprint import footprint
from tenantry.cli.bench.ladder import ladder
from tenantry.cli.bench.pods import pods
from tenantry.cli.bench.runtimes import runtimes
from tenantry.cli.bench.slices import slices
from tenantry.cli.bench.tree import tree
from tenantry.cli.bench.vcp import vcp


@click.group()
def bench() -> None:
    """Measure a cluster."""


for _command in (establish, tree, fairness, pods, slices, clusters, vcp, ladder, runtimes, federation, footprint):
    bench.add_command(_command)

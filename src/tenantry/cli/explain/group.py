"""`tenantry explain`: why something is as it is."""

from __future__ import annotations

import click

from tenantry.cli.explain.denied import denied
from tenantry.cli.explain.quota import quota
from tenantry.cli.explain.slice import slice_
from tenantry.cli.explain.who_can import who_can


@click.group()
def explain() -> None:
    """Tell why something is as it is."""


explain.add_command(quota)
explain.add_command(denied)
explain.add_command(who_can)
explain.add_command(slice_)

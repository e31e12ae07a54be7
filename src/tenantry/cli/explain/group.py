"""`tenantry explain`: why an object is denied, what a quota lacks, who has a right, why a claim has its nodes."""

from __future__ import annotations

import click

from tenantry.cli.explain.denied import denied
from tenantry.cli.explain.quota import quota
from tenantry.cli.explain.slice import slice_
from tenantry.cli.explain.who_can import who_can


@click.group()
def explain() -> None:
    """Explain denials, rights, quotas and slices."""


for _command in (quota, denied, who_can, slice_):
    explain.add_command(_command)

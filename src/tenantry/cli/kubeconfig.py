"""`tenantry kubeconfig`: credentials for other tools."""

from __future__ import annotations

import click

from tenantry.api.errors import InputError
from tenantry.cli.target import Target, takes_target


@click.command()
@takes_target
def kubeconfig(target: Target) -> None:
    """Print the administrator's kubeconfig of a local cluster."""
    if target.local_name is None or target.kubeconfig is None:
        raise InputError("this cluster is not a local one: its kubeconfig is yours already; choose one with --name")
    click.echo(target.kubeconfig.read_text(), nl=False)

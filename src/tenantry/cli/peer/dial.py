"""`tenantry peer dial`: opens the tunnel to a home that cannot connect to this cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.api.peerinvitation import PeerTunnel
from tenantry.cli import durations, session
from tenantry.cli.peer import tunnels
from tenantry.cli.peer.invitation import cluster_id_of, file_option, read_file
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command()
@takes_target
@file_option
@durations.timeout_option("60s", "Deadline until the tunnel is open, as in 30s or 5m.")
def dial(target: Target, *, file: str, timeout: int) -> None:
    r"""Open a tunnel to a home that cannot connect to this cluster, and keep it open.

    \b
      tenantry peer dial -f tunnel.yaml
    """
    if not file:
        raise InputError("-f is needed: the file that `tenantry peer accept` printed at the home")
    tunnel = read_file(file, PeerTunnel)

    async def work(client: Client) -> None:
        await tunnels.use(client, tunnel, await cluster_id_of(client), timeout)

    session.run(target, work)

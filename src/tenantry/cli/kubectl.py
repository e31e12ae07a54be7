"""`tenantry kubectl -- ...`: the kubectl of the control plane's own version, on the chosen cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from tenantry.cli.local_name import name_option
from tenantry.local.build import Binaries
from tenantry.local.cluster import LocalCluster


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@name_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(*, name: str, arguments: tuple[str, ...]) -> None:
    """Run kubectl; its exit code is passed on."""
    cluster = LocalCluster(name)
    binary = Binaries(Path(cluster.spec().binaries)).kubectl
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig_path)
    sys.stdout.flush()
    os.execv(binary, ["kubectl", *arguments])

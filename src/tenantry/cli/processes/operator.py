"""`tenantry operator`: the process that the Deployment and local clusters run."""

from __future__ import annotations

import gc
import logging
import os
import socket
import uuid
from pathlib import Path

import click
import uvloop

from tenantry.api import marks
from tenantry.api.errors import ConfigError
from tenantry.controllers.operator import OperatorOptions, operate
from tenantry.engine.jsonlines import log_to
from tenantry.install import installed
from tenantry.kube import kubeconfig
from tenantry.local.hosted import LocalPlacement
from tenantry.local.paths import ClusterPaths


@click.command()
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(path_type=Path),
    help="Path to the kubeconfig (default: the pod's service account).",
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--metrics-address",
    default="127.0.0.1:8080",
    show_default=True,
    help="HOST:PORT of /metrics, /healthz and /readyz.",
)
@click.option("--namespace", default=marks.SYSTEM_NAMESPACE, show_default=True, help="Namespace of the Lease.")
@click.option(
    "--hosted-in",
    type=click.Path(path_type=Path),
    help="Folder of the local cluster that runs the control planes of VirtualControlPlanes.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
def operator(  # noqa: PLR0917 - click gives them by name
    path: Path | None,
    context: str | None,
    metrics_address: str,
    namespace: str,
    hosted_in: Path | None,
    log_level: str,
) -> None:
    """Run the operator until SIGTERM."""
    log_to(logging.StreamHandler(), log_level.upper())
    connection = kubeconfig.in_cluster() if path is None else kubeconfig.load([path], context)
    if connection is None:
        raise ConfigError("this is no pod with a service account; name the cluster with --kubeconfig")
    pod = os.environ.get("POD_NAME", socket.gethostname())
    # Unique, as in client-go: a restarted container must not take the Lease of its predecessor for its own.
    identity = f"{pod}_{uuid.uuid4()}"
    placement = LocalPlacement(ClusterPaths(hosted_in)) if hosted_in is not None else None
    options = OperatorOptions(
        metrics_address=metrics_address, namespace=namespace, identity=identity, placement=placement
    )
    _collect_seldom()
    uvloop.run(operate(connection, options, installed.shipment))


def _collect_seldom() -> None:
    """Run the cyclic garbage collector less often, and never over imported modules.

    The objects in the caches are untracked or acyclic, and freed by reference counts. Searching them for cycles at the
    default pace took an eighth of the operator's CPU while 512 tenants were created.
    """
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)

"""`tenantry node-agent`: runs on each node, and removes what a tenant left before the next tenant gets the node."""

from __future__ import annotations

import logging
from pathlib import Path

import click
import uvloop

from tenantry.engine.jsonlines import log_to
from tenantry.kube import kubeconfig
from tenantry.nodeagent.agent import CleanerOptions, serve

_path = click.Path(path_type=Path)


@click.command("node-agent", hidden=True)
@click.option("--kubeconfig", "path", type=_path, required=True, help="Kubeconfig of the node.")
@click.option("--node", required=True, help="Name of the node.")
@click.option("--ctr", type=_path, required=True, help="containerd's command.")
@click.option(
    "--address", type=_path, default="/run/containerd/containerd.sock", show_default=True, help="containerd's socket."
)
@click.option("--kubelet-root", type=_path, default="/var/lib/kubelet", show_default=True, help="The kubelet's folder.")
@click.option("--logs", type=_path, default="/var/log/pods", show_default=True, help="The logs of pods.")
@click.option("--state", type=_path, required=True, help="File for the state of the agent; its folder must exist.")
def node_agent(  # noqa: PLR0917 - click gives them by name
    path: Path, node: str, ctr: Path, address: Path, kubelet_root: Path, logs: Path, state: Path
) -> None:
    """Clean a node whenever a slice releases it, until SIGTERM."""
    log_to(logging.StreamHandler())
    options = CleanerOptions(node=node, ctr=ctr, address=address, kubelet=kubelet_root, logs=logs, state=state)
    uvloop.run(serve(kubeconfig.load([path]), options))

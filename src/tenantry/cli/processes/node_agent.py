"""`tenantry node-agent`: what each node runs to remove what a tenant left there before another comes."""

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
@click.option("--kubeconfig", "path", type=_path, required=True, help="The node's own credentials.")
@click.option("--node", required=True, help="The name of the node.")
@click.option("--ctr", type=_path, required=True, help="containerd's command.")
@click.option(
    "--address", type=_path, default="/run/containerd/containerd.sock", show_default=True, help="containerd's socket."
)
@click.option("--kubelet-root", type=_path, default="/var/lib/kubelet", show_default=True, help="The kubelet's folder.")
@click.option("--logs", type=_path, default="/var/log/pods", show_default=True, help="The logs of pods.")
@click.option("--state", type=_path, required=True, help="A file to remember by; its folder must be there.")
def node_agent(  # noqa: PLR0917 - click gives them by name
    path: Path, node: str, ctr: Path, address: Path, kubelet_root: Path, logs: Path, state: Path
) -> None:
    """Clean a node whenever a slice gives it back, until told to stop."""
    log_to(logging.StreamHandler())
    options = CleanerOptions(node=node, ctr=ctr, address=address, kubelet=kubelet_root, logs=logs, state=state)
    uvloop.run(serve(kubeconfig.load([path]), options))

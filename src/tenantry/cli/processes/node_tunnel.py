"""`tenantry node-tunnel`: runs on a node from outside, and keeps the tunnel to the API server of its cluster open."""

from __future__ import annotations

import ipaddress
import logging
from pathlib import Path

import click
import uvloop

from tenantry.api.errors import InputError
from tenantry.engine.jsonlines import log_to
from tenantry.nodeagent.tunnel import TunnelOptions, serve


@click.command("node-tunnel", hidden=True)
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/kubeconfig",
    show_default=True,
    help="Kubeconfig of the kubelet, with the certificate of the node.",
)
@click.option("--node", required=True, help="Name of the node.")
@click.option("--address", "addresses", required=True, multiple=True, help="IP address of the node, repeatable.")
@click.option("--pod-cidr", required=True, help="Range of the node's pods.")
def node_tunnel(path: Path, node: str, addresses: tuple[str, ...], pod_cidr: str) -> None:
    """Keep a tunnel open by which the API server reaches the kubelet and the pods of this node, until SIGTERM."""
    try:
        own = tuple(str(ipaddress.ip_address(each)) for each in addresses)
        pods = ipaddress.ip_network(pod_cidr)
    except ValueError as error:
        raise InputError(
            f"--address and --pod-cidr must be IP addresses and a range, as in 10.1.2.0/24: {error}"
        ) from error
    log_to(logging.StreamHandler())
    uvloop.run(serve(TunnelOptions(kubeconfig=path, node=node, addresses=own, pods=pods)))

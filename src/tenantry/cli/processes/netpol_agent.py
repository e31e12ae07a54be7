"""`tenantry netpol-agent`: runs on each real node, and enforces NetworkPolicies there."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import click
import uvloop

from tenantry.api.errors import ConfigError, InputError
from tenantry.engine.jsonlines import log_to
from tenantry.kube import kubeconfig
from tenantry.netpol.agent import PolicyAgentOptions, guard
from tenantry.world.netpol.compile import GuardedNode

_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}\*?")


@click.command("netpol-agent", hidden=True)
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(path_type=Path),
    help="Path to the kubeconfig (default: the pod's service account).",
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--node", required=True, help="Name of the node.")
@click.option(
    "--pod-interface",
    "interfaces",
    multiple=True,
    default=("cni0",),
    show_default=True,
    help='Interface of the node\'s pods: the bridge, or "veth*". May be repeated.',
)
@click.option("--routed", is_flag=True, help="The pods have no bridge in common (CNI plugin ptp).")
@click.option(
    "--netns",
    type=click.Path(path_type=Path),
    help="File of the node's network namespace (default: that of this process).",
)
@click.option("--own-view", is_flag=True, help="Read only the NodeView that the operator writes for the node.")
@click.option(
    "--services-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on 127.0.0.1 at which kube-proxy reads the Services of the view (default: 0, none).",
)
@click.option("--ready-file", type=click.Path(path_type=Path), help="File that exists while the rules are in force.")
def netpol_agent(  # noqa: PLR0917 - click gives them by name
    path: Path | None,
    context: str | None,
    node: str,
    interfaces: tuple[str, ...],
    routed: bool,  # noqa: FBT001 - click gives flags by name
    netns: Path | None,
    own_view: bool,  # noqa: FBT001 - click gives flags by name
    services_port: int,
    ready_file: Path | None,
) -> None:
    """Enforce NetworkPolicies on a node with nftables, until SIGTERM."""
    wrong = next((each for each in interfaces if not _INTERFACE.fullmatch(each)), None)
    if wrong is not None:
        raise InputError(f'--pod-interface {wrong!r} must be a name as in "cni0", or how names begin, as in "veth*"')
    if services_port and not own_view:
        raise InputError("--services-port needs --own-view: only a view has the Services of its node")
    log_to(logging.StreamHandler())
    connection = kubeconfig.in_cluster() if path is None else kubeconfig.load([path], context)
    if connection is None:
        raise ConfigError("this is no pod with a service account; name the cluster with --kubeconfig")
    guarded = GuardedNode(node=node, interfaces=interfaces, is_routed=routed)
    options = PolicyAgentOptions(
        guarded=guarded, netns=netns, has_view=own_view, services_port=services_port, ready_file=ready_file
    )
    uvloop.run(guard(connection, options))

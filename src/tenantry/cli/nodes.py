"""`tenantry nodes`: which node is whose, what is used of each, which are free, and who is next."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tenantry.cli import nodes_view, output, place, session
from tenantry.cli.nodes_view import NodesView
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command()
@takes_target
@place.takes_namespace("Only nodes that claims of this namespace have, and what they wait for.")
@output.output_option("json")
def nodes(target: Target, *, namespace: str, form: str | None) -> None:
    r"""Show which node is whose, what is used of each, which are free, and who is next.

    CPU and MEMORY are what pods ask for of what the node has; PODS OF, how many pods of whom are there. Who may not
    read nodes, as owners of tenants, sees those that the claims of their namespace have.

    \b
      tenantry nodes
      tenantry nodes -n acme
      tenantry nodes -o json
    """
    view = session.run(target, lambda client: _look(client, target, namespace))
    if form:
        output.write(output.to_json(view))
        return
    is_terminal = sys.stdout.isatty()
    blocks = is_terminal and output.has_blocks(sys.stdout.encoding)
    output.show(*nodes_view.lines(view, datetime.now(UTC), blocks=blocks))
    if not view.nodes:
        output.talk("no claim has nodes" if view.partial else "the cluster has no nodes")
    elif any(node.ready is None for node in view.nodes):
        output.talk("you may not read nodes: these are the ones of your claims, with your own pods")


async def _look(client: Client, target: Target, namespace: str) -> NodesView:
    from tenantry.cli import nodes_reads  # with it come the operator's own reads

    return await nodes_reads.look(client, namespace, place.context_namespace(target))

"""`tenantry nodes`: the tenant of each node, what is used, which are free, and which claims wait."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tenantry.cli import output, place, session
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.nodes import NodesView


@click.command()
@takes_target
@place.takes_namespace("Show only the nodes of the claims of this namespace, and the claims there that wait.")
@output.output_option("json")
def nodes(target: Target, *, namespace: str, form: str | None) -> None:
    r"""Show the tenant of each node, what is used of it, which nodes are free, and which claims wait.

    CPU and MEMORY are the share of the node that pods request; PODS OF is the number of pods of each tenant. Users who
    may not read nodes, such as owners of tenants, see the nodes of the claims in their namespace.

    \b
      tenantry nodes
      tenantry nodes -n acme
      tenantry nodes -o json
    """

    async def read(client: Client) -> tuple[NodesView, tuple[str, ...]]:
        from tenantry.views import nodes

        inputs = await nodes.read(client, namespace, place.context_namespace(target))
        return nodes.view(inputs, namespace), inputs.notes

    from tenantry.cli.nodes.table import lines  # with it comes the operator's selection of nodes

    view, notes = session.run(target, read)
    for note in notes:
        output.talk(note)
    if form:
        output.write(output.to_json(view))
        return
    blocks = sys.stdout.isatty() and output.has_blocks(sys.stdout.encoding)
    output.show(*lines(view, datetime.now(UTC), blocks=blocks))
    if not view.nodes:
        output.talk("no claim has nodes" if view.partial else "the cluster has no nodes")
    elif any(node.ready is None for node in view.nodes):
        output.talk("you may not read nodes: these are the nodes of your claims, with your own pods")

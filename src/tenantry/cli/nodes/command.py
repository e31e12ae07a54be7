"""`tenantry node list`: the tenant of each node, what is used, which are free, and which claims wait."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim
from tenantry.cli import listing, output, place, session
from tenantry.cli.listing import ListedObjects, ListOptions, run
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.nodes import NodesView


@click.command("list")
@takes_target
@place.takes_namespace("Show only the nodes of the claims of this namespace, and the claims there that wait.")
@listing.takes_options("wide")
def list_(target: Target, *, namespace: str, listing: ListOptions) -> None:
    r"""Show the tenant of each node, what is used of it, which nodes are free, and which claims wait.

    CPU and MEMORY are the share of the node that pods request; PODS OF is the number of pods of each tenant. Users who
    may not read nodes, such as owners of tenants, see the nodes of the claims in their namespace.

    \b
      tenantry node list
      tenantry node list -n acme
      tenantry node list -o json
    """
    blocks = sys.stdout.isatty() and output.has_blocks(sys.stdout.encoding)

    async def look(client: Client) -> tuple[NodesView, tuple[str, ...]]:
        from tenantry.views import nodes

        inputs = await nodes.read(client, namespace, place.context_namespace(target))
        return nodes.view(inputs, namespace), inputs.notes

    async def read(client: Client) -> ListedObjects:
        view, notes = await look(client)
        headers, rows = table.rows(view, datetime.now(UTC), blocks=blocks)
        return ListedObjects(
            headers=headers,
            rows=rows,
            objects=[msgspec.to_builtins(each) for each in view.nodes],
            names=[f"node/{each.name}" for each in view.nodes],
            keys=[each.name for each in view.nodes],
            notes=notes,
        )

    from tenantry.cli.nodes import table  # with it comes the operator's selection of nodes

    is_document = listing.form.partition("=")[0] in {"json", "yaml", "jsonpath"}
    if listing.watches or not (is_document or listing == ListOptions()):
        kinds = [(Node, ""), (SliceClaim, namespace)]
        run(target, listing, read, empty="no nodes found", kinds=kinds)
        return
    view, notes = session.run(target, look)
    for note in notes:
        output.talk(note)
    if is_document:
        output.print_objects([msgspec.to_builtins(view)], listing.form, single=True)
        return
    output.show(*table.lines(view, datetime.now(UTC), blocks=blocks))
    if not view.nodes:
        output.talk("no claim has nodes" if view.partial else "the cluster has no nodes")
    elif any(node.ready is None for node in view.nodes):
        output.talk("you may not read nodes: these are the nodes of your claims, with your own pods")

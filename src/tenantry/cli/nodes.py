"""`tenantry nodes`: which node is whose, which are free, and who waits for some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api import reasons
from tenantry.api.marks import SLICE, SLICE_RESERVED
from tenantry.api.slice import Slice, SliceClaim, SliceState
from tenantry.cli import output, session
from tenantry.cli.target import Target, takes_target
from tenantry.engine.conditions import find

if TYPE_CHECKING:
    from tenantry.controllers.nodes.controller import Node
    from tenantry.kube.client import Client

BAR = 40
"""How many characters the bar of all nodes has."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node, and whose it is.

    Args:
        name: Of the node.
        tenant: Whose; "" for everybody's.
        slice: Which slice; "" for none.
        state: Free, Reserved or Bound.
        cpu: What pods can have there.
        memory: The same.
        ready: Pods can run there.
    """

    name: str
    tenant: str = ""
    slice: str = ""
    state: str = "Free"
    cpu: str = ""
    memory: str = ""
    ready: bool = True


class NodesView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All nodes, and the claims that wait for some, oldest first: NAMESPACE/NAME to why."""

    nodes: tuple[NodeView, ...]
    waiting: Mapping[str, str]


@click.command()
@takes_target
@output.output_option("json")
def nodes(target: Target, *, form: str | None) -> None:
    r"""Show which node is whose, which are free, and who waits for some.

    \b
      tenantry nodes
      tenantry nodes -o json
    """
    view = session.run(target, _look)
    if form:
        output.write(output.to_json(view))
        return
    headers = ("NODE", "TENANT", "SLICE", "STATE", "READY", "CPU", "MEMORY")
    rows = [
        [output.cell(each) for each in (node.name, node.tenant, node.slice, node.state, node.ready, node.cpu)]
        + [output.cell(node.memory)]
        for node in view.nodes
    ]
    output.write_lines([*output.table(headers, rows), "", summary(view.nodes)])
    output.write_lines(f"waiting: {key}: {why}" for key, why in view.waiting.items())


def summary(found: Sequence[NodeView]) -> str:
    """Return how many nodes are taken and free, in words and as a bar."""
    taken = sum(node.state != "Free" for node in found)
    filled = round(BAR * taken / len(found)) if found else 0
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {taken} of {len(found)} nodes taken, {len(found) - taken} free"


async def _look(client: Client) -> NodesView:
    from tenantry.controllers.nodes.controller import Node

    found = await client.list(Node)
    owners = {each.metadata.name: each.spec.tenant for each in await client.list(Slice)}
    claims = sorted(await client.list(SliceClaim), key=lambda each: (each.metadata.creation_timestamp, each.key))
    return NodesView(
        nodes=tuple(_view(node, owners) for node in sorted(found, key=lambda each: each.metadata.name)),
        waiting={each.key: _why(each) for each in claims if each.status.state is SliceState.PENDING},
    )


def _view(node: Node, owners: Mapping[str, str]) -> NodeView:
    labels = node.metadata.labels
    name = labels.get(SLICE_RESERVED, "")
    state = "Bound" if SLICE in labels else "Reserved" if name else "Free"
    has = node.status.allocatable
    return NodeView(
        name=node.metadata.name,
        tenant=owners.get(name, ""),
        slice=name,
        state=state,
        cpu=has.get("cpu", ""),
        memory=has.get("memory", ""),
        ready=node.is_ready,
    )


def _why(claim: SliceClaim) -> str:
    told = find(claim.status.conditions, reasons.READY)
    return told.message if told is not None else "nobody has looked at it yet"

"""`tenantry node`: the real nodes of a local cluster."""

from __future__ import annotations

import asyncio

import click
import msgspec

from tenantry.cli import durations, nouns, output, spellings
from tenantry.cli.local import contribution
from tenantry.cli.local.name import name_option
from tenantry.cli.nodes.command import list_
from tenantry.local.cluster import LocalCluster
from tenantry.local.real import fleet, memberships
from tenantry.local.spec import RealNodes


@click.group()
def node() -> None:
    """Add, remove, crash and restart the real nodes of a local cluster, and let contributed nodes join."""


for _command in (
    contribution.contribute,
    contribution.join,
    contribution.record,
    contribution.take_back,
    contribution.cleaned,
):
    node.add_command(_command)


@node.command()
@name_option
@durations.patience_option
def create(*, name: str, timeout: int) -> None:
    """Add a node, and wait until it is Ready. Prints its name."""
    cluster = LocalCluster(name)
    added = ""

    def change(real: RealNodes) -> RealNodes:
        nonlocal added
        new = fleet.new(real.nodes)
        added = new.name
        return msgspec.structs.replace(real, nodes=(*real.nodes, new))

    asyncio.run(cluster.change_nodes(change, timeout))
    click.echo(added)


@node.command()
@name_option
@durations.patience_option
@click.argument("node_name", metavar="NODE")
def delete(*, name: str, node_name: str, timeout: int) -> None:
    """Stop a node, and delete it with its pods and its files."""
    asyncio.run(LocalCluster(name).change_nodes(lambda real: fleet.without(real, node_name), timeout))
    output.talk(f'node "{node_name}" removed')


@node.command()
@name_option
@click.argument("node_name", metavar="NODE")
def crash(*, name: str, node_name: str) -> None:
    """Stop a node and everything on it at once, like a power failure, until `restart`."""
    cluster = LocalCluster(name)
    fleet.check_name(cluster.real(), node_name)
    memberships.check_at_home(cluster.paths, node_name)
    asyncio.run(cluster.stop_component(node_name))
    output.talk(f'node "{node_name}" is dead; `tenantry node restart {node_name}` starts it again')


@node.command()
@name_option
@durations.patience_option
@click.argument("node_name", metavar="NODE")
def restart(*, name: str, node_name: str, timeout: int) -> None:
    """Stop a node if it runs, start it, and wait until it is Ready. Its pods start again."""
    cluster = LocalCluster(name)
    fleet.check_name(cluster.real(), node_name)
    memberships.check_at_home(cluster.paths, node_name)
    asyncio.run(cluster.restart_node(node_name, timeout))
    output.talk(f'node "{node_name}" is Ready')


node.add_command(list_)
node.add_command(spellings.moved(create, "add", "tenantry node create"))
node.add_command(spellings.moved(delete, "remove", "tenantry node delete"))
nouns.complete(node, nouns.Noun("node", "node", "nodes", "node-1"))

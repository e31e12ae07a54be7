"""`tenantry cluster create`: from nothing to the kubeconfig of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tenantry.api.dedicatedcluster import DedicatedCluster, DedicatedClusterSpec
from tenantry.api.errors import InputError
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.slice import MAX_NODES
from tenantry.cli import creation, flags, output, refusals, session
from tenantry.cli.cluster import offered
from tenantry.cli.cluster.place import LocalRuntime, ensure_tenant, found_or_started, in_tenant
from tenantry.cli.target import Target, may_take_target
from tenantry.world.validation import validate_cluster

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command()
@may_take_target
@click.argument("called", metavar="NAME")
@in_tenant
@click.option(
    "--nodes",
    type=click.IntRange(0, MAX_NODES),
    default=1,
    show_default=True,
    help=f"Number of nodes, from 0 to {MAX_NODES}.",
)
@click.option(
    "--version",
    "version",
    default="",
    metavar="VERSION",
    help="Minor version of Kubernetes (default: the latest that the template offers).",
)
@click.option(
    "--template",
    "template",
    default="",
    metavar="TEMPLATE",
    help="ClusterTemplate with the offered versions, the defaults and the limits (default: that of TenancyDefaults).",
)
@click.option(
    "--runtime",
    type=click.Choice(["kwok", "real"]),
    help="Kind of the nodes of a local cluster that the command starts: simulated (kwok, the default), or real (needs"
    " root on Linux).",
)
@flags.takes_wait("Wait until the cluster and all of its nodes are ready.", timeout="5m")
@flags.dry_run_option
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def create(
    find: Callable[[], Target],
    *,
    called: str,
    namespace: str,
    nodes: int,
    version: str,
    template: str,
    runtime: LocalRuntime | None,
    seconds: int | None,
    dry_run: bool,
    form: str | None,
) -> None:
    r"""Create a cluster of a tenant's own: a control plane, and nodes that leave the host for it.

    Without -n, the cluster belongs to the tenant of its name, which the command creates if there is none. On a machine
    without a cluster, the command starts a local one, which has one node more, of the kind of --runtime. Exit code:
    0 it is created, and with --wait ready; 1 it is refused, waits for a person, or is not ready before the deadline; 2
    the input is wrong.

    \b
      tenantry cluster create acme --nodes 2 --wait
      tenantry cluster kubeconfig acme > acme.kubeconfig
      tenantry cluster create acme --nodes 2 --runtime real --wait
      tenantry cluster create prod -n acme --template small
      tenantry cluster create acme --nodes 2 --dry-run -o yaml > acme.yaml
    """
    where = namespace or called
    spec = DedicatedClusterSpec(template=template, version=version, nodes=nodes)
    wanted = DedicatedCluster(metadata=ObjectMeta(name=called, namespace=where), spec=spec)
    wrong = validate_cluster(wanted)
    if wrong:
        raise InputError(refusals.summary(f"DedicatedCluster {called!r}", wrong))
    if dry_run:
        flags.print_one(wanted, output.whole(wanted), form or "yaml")
        return
    target = found_or_started(find, nodes, runtime)
    if target.local_name is not None:
        from tenantry.cli.vcp import build_program

        build_program(version)

    async def work(client: Client) -> Json:
        await offered.check_new(client, wanted)
        if not namespace:
            await ensure_tenant(client, where)
        await creation.check_place(client, where, "cluster")
        return await creation.create(client, wanted, seconds=seconds, verb="cluster")

    made = session.run(target, work)
    if form:
        flags.print_one(wanted, made, form)
    else:
        when = "" if seconds else " when it is ready"
        output.talk(f"`tenantry cluster kubeconfig {called} -n {where}` prints its kubeconfig{when}")

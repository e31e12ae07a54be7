"""`tenantry up`: starts a real control plane on this machine, with Tenantry in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import click

from tenantry.api.errors import InputError
from tenantry.cli import durations, output
from tenantry.cli.local.name import name_option
from tenantry.cli.oidc import takes_oidc
from tenantry.cli.target import overriding_variable, read_environment
from tenantry.local import build, controlplaneversions, nodes
from tenantry.local.authentication import Oidc
from tenantry.local.cluster import LocalCluster, UpOptions, UpResult
from tenantry.local.nodes import NodePlan
from tenantry.local.peers import MOST_PEERS
from tenantry.local.progress import StreamProgress
from tenantry.local.real import requirements
from tenantry.local.spec import StartedPeer

Runtime = Literal["kwok", "real", "auto"]


@click.command()
@name_option
@click.option("--nodes", "count", type=int, help="Number of nodes.")
@click.option(
    "--runtime",
    type=click.Choice(["kwok", "real", "auto"]),
    help="Kind of nodes: simulated (kwok), real (needs root on Linux), or real if this machine can run them (auto)."
    " Default: the cluster's own; kwok for a new one.",
)
@click.option("--node-cpu", default="", metavar="QUANTITY", help="CPUs of each node (default: 8).")
@click.option("--node-memory", default="", metavar="QUANTITY", help="Memory of each node (default: 32Gi).")
@click.option("--node-labels", multiple=True, metavar="KEY=VALUE", help="Labels of each node. May be repeated.")
@click.option("--zones", default="", metavar="A,B,...", help="Zones of the nodes, in turn.")
@click.option(
    "--nodes-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Simulated nodes in groups: a YAML list of {name, count, zone, labels, capacity, taints}.",
)
@click.option("--data", type=click.Path(path_type=Path), help="Folder of the cluster's files.")
@click.option("--throwaway", is_flag=True, help="Faster: data may be lost when the machine dies (no fsync).")
@click.option(
    "--no-operator",
    is_flag=True,
    help="Install Tenantry's kinds and rights, but do not run its operator. With --peers: only new peers have none.",
)
@click.option(
    "--peers",
    "peer_count",
    type=click.IntRange(1, MOST_PEERS),
    metavar="N",
    help=f"Number of peers (1 to {MOST_PEERS}): clusters NAME-peer-1 to NAME-peer-N, joined to this one. Each has the"
    " same simulated nodes (default: one), and stops with this cluster.",
)
@click.option(
    "--light",
    is_flag=True,
    help="New peers are light: API servers without nodes that share one etcd. Each needs 190 MiB of memory without an"
    " operator.",
)
@click.option(
    "--kubernetes-version",
    "kubernetes",
    default="",
    metavar="VERSION",
    help="Minor version of Kubernetes, as in 1.34 (default: the cluster's own; the newest for a new one).",
)
@takes_oidc
@click.option("--no-oidc", is_flag=True, help="Trust no OIDC provider any more.")
@durations.patience_option
def up(
    oidc: Oidc | None,
    *,
    name: str,
    count: int | None,
    runtime: Runtime | None,
    node_cpu: str,
    node_memory: str,
    node_labels: tuple[str, ...],
    zones: str,
    nodes_file: Path | None,
    data: Path | None,
    throwaway: bool,
    no_operator: bool,
    peer_count: int | None,
    light: bool,
    kubernetes: str,
    no_oidc: bool,
    timeout: int,
    waits: bool = True,
) -> None:
    """Start a local cluster: etcd, API server, controller manager, scheduler, and Tenantry in it.

    If the cluster runs already, the command applies the flags: it adds and removes nodes, starts or stops the operator,
    or changes the OIDC provider. Without flags of a provider, a cluster keeps its provider. The first start on a
    machine builds the programs, which takes some minutes.
    """
    if oidc is not None and no_oidc:
        raise InputError("--no-oidc may not be given together with flags of a provider")
    if light and peer_count is None:
        raise InputError("--light needs --peers: only peers are light")
    cluster = LocalCluster(name)
    wanted = _peers(cluster, peer_count, light=light, has_operator=not no_operator)
    real = None
    products = [controlplaneversions.VERSIONS.product(cluster.version(kubernetes))]
    about_nodes = nodes_file is not None or bool(node_cpu or node_memory or node_labels or zones)
    if runtime is None:
        # Only a number of nodes can mean either kind.
        runtime = "real" if count is not None and not about_nodes and _has_real_nodes(cluster) else "kwok"
    if _is_real(runtime):
        if count is None or about_nodes:
            raise InputError("--runtime real needs --nodes, and takes no other flags of nodes")
        requirements.check()
        # Real nodes resolve names by CoreDNS; simulated ones run nothing.
        products += [build.NODES, build.DNS]
        # The plan below is for simulated nodes only.
        count, real = None, count
    plan = _plan(count, nodes_file, cpu=node_cpu, memory=node_memory, labels=node_labels, zones=zones)
    options = UpOptions(
        nodes=plan,
        real_nodes=real,
        data=data,
        throwaway=throwaway,
        # The operator joins peers, and stands for their Nodes.
        operator=bool(wanted) or not no_operator,
        install=install,
        guard=guard,
        oidc=oidc,
        no_oidc=no_oidc,
        # Only another command leaves this to what it waits for itself.
        waits=waits,
        kubernetes=kubernetes,
        timeout_seconds=timeout,
    )
    for product in products:
        # Building is not part of the time that the cluster takes to start.
        with StreamProgress() as progress:
            build.ensure(progress, product)
    with StreamProgress() as progress:
        result = asyncio.run(_start(cluster, options, wanted, progress))
    done = "is up" if waits else "serves its clients"
    what = "is running" if result.was_running else f"{done} after {result.seconds:.1f} s"
    if wanted:
        what += f" with {len(wanted)} peers"
    kept = cluster.spec().oidc
    if kept is not None:
        _warn(kept)
    click.echo(f'cluster "{name}" {what}; kubeconfig: {cluster.kubeconfig_path}', err=True)
    variable = overriding_variable(name, read_environment())
    if variable:
        output.talk(
            f"warning: {variable} names another cluster, which the other commands use; for this one, set"
            f" TENANTRY_NAME={name}, or give them --cluster {name}"
        )


def _peers(cluster: LocalCluster, count: int | None, *, light: bool, has_operator: bool) -> tuple[StartedPeer, ...]:
    """Return the peers that the cluster should have: those that it has already, without --peers."""
    if cluster.exists() and cluster.spec().supervised_by:
        home = cluster.spec().supervised_by
        raise InputError(
            f'the cluster "{cluster.name}" is a light peer, and starts with `tenantry up --cluster {home}`'
        )
    if count is None:
        return cluster.spec().peers if cluster.exists() else ()
    from tenantry.cli.local import peers

    return peers.check(cluster, count, light=light, has_operator=has_operator)


async def _start(
    cluster: LocalCluster, options: UpOptions, wanted: tuple[StartedPeer, ...], progress: StreamProgress
) -> UpResult:
    result = await cluster.up(options, progress)
    if wanted:
        from tenantry.cli.local import peers

        await peers.start(cluster, wanted, options, progress)
    return result


def _has_real_nodes(cluster: LocalCluster) -> bool:
    real = cluster.spec().real if cluster.exists() else None
    return real is not None and bool(real.nodes)


def _is_real(runtime: Runtime) -> bool:
    """Return whether nodes are to be real; "auto" builds nothing, and reports its choice."""
    if runtime != "auto":
        return runtime == "real"
    lacks = requirements.lacking()
    if not lacks and build.built(build.NODES) is None:
        lacks = ("the programs of nodes are not built: run `tenantry local build --with-nodes`",)
    output.talk(f"nodes are simulated: {lacks[0]}" if lacks else "nodes are real")
    return not lacks


def _warn(oidc: Oidc) -> None:
    """Warn if the API server cannot use the OIDC provider yet; the API server tries again by itself."""
    from tenantry.local.issuer import trouble

    found = asyncio.run(trouble(oidc))
    if found:
        output.talk(f"warning: no user can log in by OIDC yet: {found}")


async def install(kubeconfig: Path) -> None:
    """Install Tenantry, without its policies, in the cluster of a kubeconfig."""
    # Imported here: building the schemas of the CRDs takes time, which overlaps with the start of the API server.
    from tenantry.install import apply, installed, manifests
    from tenantry.local.bootstrap import connected

    async with connected(kubeconfig) as client:
        await apply.found(client, manifests.foundation(manifests.LOCAL_USER, await installed.form(client)))


async def guard(kubeconfig: Path) -> None:
    """Install Tenantry's policies in the cluster of a kubeconfig."""
    from tenantry.install import apply, installed, manifests
    from tenantry.local.bootstrap import connected

    async with connected(kubeconfig) as client:
        # Without `in_force`, which waits for policies of requests and Ingresses: an early one gets a clear error.
        await apply.guard(client, manifests.foundation(manifests.LOCAL_USER, await installed.form(client)))


def _plan(
    count: int | None, file: Path | None, *, cpu: str, memory: str, labels: tuple[str, ...], zones: str
) -> NodePlan | None:
    if file is not None:
        if count is not None or cpu or memory or labels or zones:
            raise InputError("--nodes-file may not be given together with other flags of nodes")
        return nodes.plan_from_yaml(file.read_text(), str(file))
    if count is None:
        if cpu or memory or labels or zones:
            raise InputError("--node-cpu, --node-memory, --node-labels and --zones need --nodes")
        return None
    return nodes.plan_from_flags(count, cpu=cpu, memory=memory, labels=labels, zones=zones)

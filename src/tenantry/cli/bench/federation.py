"""`tenantry bench federation`: what it costs to run pods and namespaces at peers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.bench.running import rounds_option, run
from tenantry.cli.target import Target, takes_target
from tenantry.local.cluster import LocalCluster
from tenantry.local.spec import PeerForm
from tenantry.local.state import Phase

if TYPE_CHECKING:
    from tenantry.bench.federation.idle import FederationIdleResult
    from tenantry.bench.federation.namespaces import FederationGrowthResult, FederationNamespacesResult, NamespaceCost
    from tenantry.bench.federation.pods import FederationPodsResult
    from tenantry.bench.federation.sides import BenchFederation, BenchPeer
    from tenantry.kube.client import Client

T = TypeVar("T")


def _count(name: str, default: int, most: int, text: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return click.option(name, type=click.IntRange(1, most), default=default, show_default=True, help=text)


_peers_option = click.option(
    "--peers",
    "most",
    type=click.IntRange(1, 64),
    help="Number of peers that take part: the first ones of the cluster (default: all).",
)


@click.group()
def federation() -> None:
    """Measure a local cluster with peers, beside the same writes by one client.

    Start it with `tenantry up --peers N`. Each benchmark deletes everything that it creates.
    """


@federation.command()
@takes_target
@_peers_option
@_count("--pods", 300, 5000, "Number of pods in each round, over all peers.")
@rounds_option(3)
@output.output_option("json")
def pods(target: Target, *, most: int | None, pods: int, rounds: int, form: str | None) -> None:
    """Start pods at peers, and write the same objects by one client for comparison.

    `ratio` is the time of the writes alone divided by the time until all pods run at home.
    """

    async def measure(bench: BenchFederation) -> FederationPodsResult:
        from tenantry.bench.federation import pods as benchmark

        return await benchmark.pods(bench, pods, rounds, output.talk)

    _run(target, form, most, measure, _pods_lines)


def _pods_lines(result: FederationPodsResult) -> list[tuple[str, str]]:
    return [
        ("peers", f"{result.peers} ({result.peer_form})"),
        ("pods", f"{result.pods}, {result.rounds} round(s)"),
        ("mirrored", f"{result.mirrored_seconds} s until all run at home"),
        ("raw writes", f"{result.raw_seconds} s"),
        ("ratio", f"{result.ratio} (1 is as fast as writing alone)"),
        ("CPU of the home", f"{result.home_cpu_ratio} times that of the writes alone"),
        ("operator", f"{result.operator_milliseconds} ms of CPU for each pod"),
        ("client", f"{result.client_milliseconds} ms, {result.raw_client_milliseconds} ms for the writes alone"),
        ("API server", f"{result.server_cpu_ratio} times the CPU of the writes alone"),
    ]


@federation.command()
@takes_target
@_peers_option
@_count("--namespaces", 100, 500, "Number of namespaces to offload to each peer.")
@rounds_option(1)
@output.output_option("json")
def namespaces(target: Target, *, most: int | None, namespaces: int, rounds: int, form: str | None) -> None:
    """Offload namespaces to peers, and write the same objects by one client for comparison.

    An operator runs in each peer. During the raw writes, the benchmark holds the lease of the operator of the home, so
    that it pauses.
    """

    async def measure(bench: BenchFederation) -> FederationNamespacesResult:
        from tenantry.bench.federation import namespaces as benchmark

        return await benchmark.namespaces(bench, namespaces, rounds, output.talk)

    _run(target, form, most, measure, _namespaces_lines)


def _namespaces_lines(result: FederationNamespacesResult) -> list[tuple[str, str]]:
    return [
        ("peers", f"{result.peers} ({result.peer_form})"),
        ("namespaces", f"{result.namespaces} at each, {result.rounds} round(s)"),
        ("mapped", f"{result.mapped_seconds} s until all are Ready at home"),
        ("raw writes", f"{result.raw_seconds} s"),
        ("ratio", f"{result.ratio} (1 is as fast as writing alone)"),
        ("CPU of the home", f"{result.home_cpu_ratio} times that of the writes alone"),
        ("operator", f"{result.operator_milliseconds} ms of CPU for each namespace at a peer"),
        ("client", f"{result.raw_client_milliseconds} ms for the writes alone"),
        ("API server", f"{result.server_cpu_ratio} times the CPU of the writes alone"),
    ]


@federation.command()
@takes_target
@_peers_option
@_count("--few", 10, 1000, "The smaller number.")
@_count("--many", 100, 1000, "The larger number.")
@click.option(
    "--of",
    "what",
    type=click.Choice(["namespaces", "peers"]),
    default="namespaces",
    show_default=True,
    help="What there are few and many of: namespaces at each peer, or peers of one namespace.",
)
@rounds_option(3)
@output.output_option("json")
def growth(target: Target, *, most: int | None, few: int, many: int, what: str, rounds: int, form: str | None) -> None:
    """Measure what a namespace at a peer costs if there are few of them, and if there are many; 1 is linear.

    With --of peers, one namespace is offloaded to --few and to --many peers.
    """
    if few >= many:
        raise InputError(f"--few {few} must be less than --many {many}")
    if what == "peers" and most is not None:
        raise InputError("--peers may not be given with --of peers: --many is their number")

    async def measure(bench: BenchFederation) -> FederationGrowthResult:
        from tenantry.bench.federation import namespaces as benchmark

        count = len(bench.peers)
        sizes = ((few, count), (many, count)) if what == "namespaces" else ((1, few), (1, many))
        return await benchmark.growth(bench, *sizes, rounds, output.talk)

    _run(target, form, many if what == "peers" else most, measure, _growth_lines)


def _growth_lines(result: FederationGrowthResult) -> list[tuple[str, str]]:
    none = "they have none"
    return [
        ("peers", result.peer_form),
        *((f"{each.namespaces} x {each.peers}", _cost(each)) for each in (result.few, result.many)),
        ("ratio", f"{result.ratio} (1 is linear)"),
        ("CPU", f"operator {result.operator_ratio}, API server {result.server_ratio}"),
        ("peers' operators", str(none if result.peer_operator_ratio is None else result.peer_operator_ratio)),
    ]


def _cost(each: NamespaceCost) -> str:
    return (
        f"{each.milliseconds} ms for each namespace at a peer; CPU: operator {each.operator_milliseconds} ms, server"
        f" {each.server_milliseconds} ms, peers' operators {each.peer_operator_milliseconds} ms"
    )


@federation.command()
@takes_target
@_peers_option
@click.option(
    "--idle-seconds",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Seconds over which the idle CPU is measured, after as many seconds of rest.",
)
@output.output_option("json")
def idle(target: Target, *, most: int | None, idle_seconds: float, form: str | None) -> None:
    """Measure the memory and the CPU of peers that nothing uses."""

    async def measure(bench: BenchFederation) -> FederationIdleResult:
        from tenantry.bench.federation import idle as benchmark

        return await benchmark.idle(bench, idle_seconds, output.talk)

    _run(target, form, most, measure, _idle_lines)


def _idle_lines(result: FederationIdleResult) -> list[tuple[str, str]]:
    return [
        ("peers", f"{result.peers} ({result.peer_form})"),
        ("memory", f"{result.gibibytes} GiB"),
        ("idle CPU", f"{result.cores} of a core over {result.idle_seconds:.0f} s"),
        ("operator", f"{result.operator_mebibytes} MiB, {result.operator_cores} of a core"),
    ]


def _run(
    target: Target,
    form: str | None,
    most: int | None,
    measure: Callable[[BenchFederation], Awaitable[T]],
    lines: Callable[[T], list[tuple[str, str]]],
) -> None:
    """Run a benchmark with open clients of all clusters, and print its result."""
    home = _home(target)
    peers = _peers(home)
    if most is not None and most > len(peers):
        raise InputError(f'--peers {most}: the cluster "{home.name}" has {len(peers)}: `tenantry up --peers {most}`')

    async def main(client: Client) -> T:
        from tenantry.bench.federation.sides import opened

        async with opened(client, lambda: _processes(home), peers[:most]) as bench:
            return await measure(bench)

    run(target, form, main, lines)


def _home(target: Target) -> LocalCluster:
    if not target.local_name:
        raise InputError("the benchmark needs a local cluster with peers: `tenantry up --peers N`, and --cluster")
    return LocalCluster(target.local_name)


def _peers(home: LocalCluster) -> list[BenchPeer]:
    from tenantry.bench.federation.sides import BenchPeer
    from tenantry.install import unmanaged
    from tenantry.kube import kubeconfig
    from tenantry.local.peers import guest_name

    found: list[BenchPeer] = []
    guest = guest_name(home.name)
    for each in home.spec().peers:
        cluster = LocalCluster(each.name, root=home.root)
        found.append(
            BenchPeer(
                name=each.name,
                guest=guest,
                form=each.form.value,
                has_operator=each.has_operator,
                has_nodes=each.form is PeerForm.WHOLE,
                connection=kubeconfig.load([cluster.kubeconfig_path]),
                processes=lambda cluster=cluster: _processes(cluster),
                namespace_of=lambda uid, name: unmanaged.namespace_of(guest, name, uid),
            )
        )
    return found


def _processes(cluster: LocalCluster) -> Mapping[str, int]:
    return {each.name: each.pid for each in cluster.status().components if each.phase is Phase.READY}

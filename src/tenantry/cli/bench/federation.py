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
        raise InputError("the benchmark needs a local cluster with peers: `tenantry up --peers N`, and --name")
    return LocalCluster(target.local_name)


def _peers(home: LocalCluster) -> list[BenchPeer]:
    from tenantry.bench.federation.sides import BenchPeer
    from tenantry.kube import kubeconfig

    found: list[BenchPeer] = []
    for each in home.spec().peers:
        cluster = LocalCluster(each.name, root=home.root)
        found.append(
            BenchPeer(
                name=each.name,
                guest=home.name,
                form=each.form.value,
                has_operator=each.has_operator,
                has_nodes=each.form is PeerForm.WHOLE,
                connection=kubeconfig.load([cluster.kubeconfig_path]),
                processes=lambda cluster=cluster: _processes(cluster),
            )
        )
    return found


def _processes(cluster: LocalCluster) -> Mapping[str, int]:
    return {each.name: each.pid for each in cluster.status().components if each.phase is Phase.READY}

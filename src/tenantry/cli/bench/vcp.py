"""`tenantry bench vcp`: how fast virtual control planes start, and what they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.bench.running import run
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.vcp import ProcessCost, VcpResult
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.option(
    "--count", type=click.IntRange(1, 100), default=5, show_default=True, help="Number of control planes to create."
)
@click.option(
    "--pods", type=click.IntRange(1, 1000), default=20, show_default=True, help="Number of pods on each side."
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Seconds over which the idle CPU is measured, after as many seconds of rest.",
)
@output.output_option("json")
def vcp(target: Target, *, count: int, pods: int, idle_seconds: float, form: str | None) -> None:
    """Create virtual control planes on a local cluster, one after the other, and start pods on the host and inside.

    The cluster needs simulated nodes without pods (`tenantry up --nodes 2`). The benchmark deletes everything that it
    creates.
    """
    name = target.local_name
    if name is None:
        raise InputError("the benchmark reads processes of this machine: choose a local cluster with --name")

    async def measure(client: Client) -> VcpResult:
        from tenantry.bench import vcp as benchmark

        return await benchmark.vcp(client, count, pods, idle_seconds, lambda names: _costs(name, names), output.talk)

    run(target, form, measure, _lines)


def _costs(cluster: str, names: Sequence[str]) -> list[ProcessCost]:
    from tenantry.bench.vcp import process_cost
    from tenantry.local.cluster import LocalCluster
    from tenantry.local.hosted import PREFIX
    from tenantry.local.state import read_state

    state = read_state(LocalCluster(cluster).paths)
    found = [state.component(f"{PREFIX}{name}") if state is not None else None for name in names]
    return [process_cost(each.pid) for each in found if each is not None]


def _lines(result: VcpResult) -> list[tuple[str, str]]:
    return [
        ("control planes", f"{result.control_planes}, one after the other"),
        ("usable", f"p50 {result.ready_p50_seconds} s, p95 {result.ready_p95_seconds} s"),
        ("private memory", f"{result.private_megabytes_each} MB each"),
        ("idle CPU", f"{result.idle_cpu_seconds_per_minute} s a minute each"),
        ("a pod runs", f"direct {result.pod_direct_seconds_p50} s, inside {result.pod_mirrored_seconds_p50} s"),
    ]

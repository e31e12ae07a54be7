"""`tenantry bench clusters`: one process that watches many API servers, and one of them that hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.bench.running import available_mib, rounds_option

if TYPE_CHECKING:
    from tenantry.bench.clusters import ClustersResult

NEEDED_MIB = 150
"""What one API server takes, and its part of etcd."""


@click.command()
@click.option(
    "--clusters",
    "count",
    type=click.IntRange(2, 500),
    default=50,
    show_default=True,
    help=f"Number of clusters. Each needs {NEEDED_MIB} MiB of memory, and a few seconds of CPU to start.",
)
@rounds_option(5)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Seconds over which the idle CPU is measured.",
)
@output.output_option("json")
def clusters(*, count: int, rounds: int, idle_seconds: float, form: str | None) -> None:
    """Measure one process with many clusters: its idle CPU, and how one hung API server affects the others.

    The benchmark starts an etcd and one API server for each cluster on this machine, and removes them afterwards. It
    needs no other cluster.
    """
    import uvloop

    _check_memory(count)
    result = uvloop.run(_run(count, rounds, idle_seconds))
    if form == "json":
        output.write(output.to_json(result))
    else:
        output.write_lines(f"{name:<18} {text}" for name, text in _lines(result))


def _check_memory(count: int) -> None:
    """Check that the machine has memory for this many API servers.

    Raises:
        InputError: It has not.
    """
    free = available_mib()
    if free < count * NEEDED_MIB:
        raise InputError(
            f"--clusters {count} needs {count * NEEDED_MIB} MiB of memory, and {free} MiB are available: "
            f"at most --clusters {max(free // NEEDED_MIB, 2)} fits"
        )


async def _run(count: int, rounds: int, idle_seconds: float) -> ClustersResult:
    from tenantry.bench import clusters as benchmark
    from tenantry.local.light import light_clusters
    from tenantry.local.progress import StreamProgress

    async with light_clusters() as started:
        ready = 0
        with StreamProgress() as progress:

            async def add(name: str) -> None:
                nonlocal ready
                await started.add(name)
                ready += 1
                progress.update(f"starting API servers, {ready} of {count} are ready")

            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    group.create_task(add(f"c{number}"))
        members = [
            benchmark.BenchCluster(
                name=each.name, connection=each.connection, pid=each.pid, pause=each.pause, resume=each.resume
            )
            for each in started.all
        ]
        return await benchmark.clusters(members, rounds=rounds, idle_seconds=idle_seconds, progress=output.talk)


def _lines(result: ClustersResult) -> list[tuple[str, str]]:
    alive, stopped = result.latency_ms, result.latency_ms_one_stopped
    return [
        ("clusters", f"{result.clusters}, {result.rounds} round(s)"),
        ("idle", f"{result.idle_cpu_cores} of a core over {result.idle_seconds:.0f} s"),
        ("all running", f"{alive.median} ms until a reconcile begins, p99 {alive.p99} ms"),
        ("one stopped", f"{stopped.median} ms in the others, p99 {stopped.p99} ms"),
        ("ratio", f"{result.latency_ratio_one_stopped} (1 is as with all running)"),
        ("memory", f"{result.process_megabytes} MiB, {result.api_server_megabytes} MiB for each API server"),
    ]

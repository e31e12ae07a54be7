"""`tenantry bench slices`: how fast claims get their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.cli import output
from tenantry.cli.bench.running import rounds_option, run
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.slices import SlicesResult
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.option(
    "--claims", type=click.IntRange(1, 500), default=100, show_default=True, help="Number of claims created at once."
)
@click.option("--quota", is_flag=True, help="Give the tenants a quota, which claims are charged against.")
@rounds_option(3)
@output.output_option("json")
def slices(target: Target, *, claims: int, quota: bool, rounds: int, form: str | None) -> None:
    """Claim all nodes of a cluster by many SliceClaims at once, and release them.

    Pods that run on the nodes are evicted: use simulated nodes without pods (`tenantry up --nodes`). The benchmark
    deletes everything that it creates, and needs an administrator's credentials.
    """

    async def measure(client: Client) -> SlicesResult:
        from tenantry.bench import slices as benchmark

        return await benchmark.slices(client, claims=claims, quota=quota, rounds=rounds, progress=output.talk)

    run(target, form, measure, _lines)


def _lines(result: SlicesResult) -> list[tuple[str, str]]:
    quota = ", with a quota" if result.quota else ""
    return [
        ("claims", f"{result.claims} for {result.nodes} nodes{quota}, {result.rounds} round(s)"),
        ("settled", f"{result.settled_seconds} s"),
        ("latency", f"p50 {result.latency_p50_seconds} s, p95 {result.latency_p95_seconds} s"),
        ("one selection", f"{result.selection_milliseconds} ms"),
        ("released", f"{result.released_seconds} s"),
    ]

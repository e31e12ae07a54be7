"""`tenantry bench establish`: how fast tenants are established."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.cli import output
from tenantry.cli.bench.running import metrics_option, operator_usage, read_metrics, rounds_option, run
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.establish import EstablishResult
    from tenantry.kube.client import Client

MANY = 512
"""With so many tenants, one round is long enough for a reliable result."""


@click.command()
@takes_target
@click.option(
    "--tenants",
    type=click.IntRange(1, 20_000),
    default=128,
    show_default=True,
    help="Number of tenants in each round.",
)
@click.option(
    "--spread", type=click.FloatRange(0, 3600), default=0, help="Seconds over which to create them (default: at once)."
)
@rounds_option(None, f"5, or 1 from {MANY} tenants on")
@metrics_option
@output.output_option("json")
def establish(
    target: Target, *, tenants: int, spread: float, rounds: int | None, operator_metrics: str, form: str | None
) -> None:
    """Create tenants, and write the same objects without an operator for comparison.

    In the second half of each round the benchmark holds the operator's lease, so that the operator pauses. The operator
    continues afterwards, even if this command is killed. The benchmark deletes everything that it creates, and needs
    an administrator's credentials.
    """

    async def measure(client: Client) -> EstablishResult:
        from tenantry.bench import establish as benchmark

        return await benchmark.establish(
            client,
            tenants=tenants,
            spread_seconds=spread,
            rounds=rounds or (1 if tenants >= MANY else 5),
            metrics=await read_metrics(client, target, operator_metrics),
            progress=output.talk,
        )

    run(target, form, measure, _lines)


def _lines(result: EstablishResult) -> list[tuple[str, str]]:
    latency = result.latency_seconds
    return [
        ("tenants", f"{result.tenants} of {result.objects_per_tenant} objects, {result.rounds} round(s)"),
        ("established", f"{result.established_seconds} s ({result.tenants_per_second}/s)"),
        ("latency", f"p50 {latency.p50} s, p95 {latency.p95} s, max {latency.max} s"),
        ("raw writes", f"{result.raw_seconds} s"),
        ("ratio", f"{result.ratio} (1 is as fast as writing alone)"),
        operator_usage(result.operator_cpu_seconds, result.operator_rss_mib),
        ("deleted", f"{result.deleted_seconds} s"),
    ]

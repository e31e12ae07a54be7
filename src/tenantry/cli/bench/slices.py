"""`tenantry bench slices`: how fast claims get their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.cli import output
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.slices import SlicesResult


@click.command()
@takes_target
@click.option("--claims", type=click.IntRange(1, 500), default=100, show_default=True, help="How many at once.")
@click.option("--quota", is_flag=True, help="The tenants have a quota, which claims are charged against.")
@click.option("--rounds", type=click.IntRange(1, 50), default=3, show_default=True, help="How many times.")
@output.output_option("json")
def slices(target: Target, *, claims: int, quota: bool, rounds: int, form: str | None) -> None:
    """Claim all nodes of a cluster by many SliceClaims at once, and give them back.

    Pods that run there have to leave: `tenantry up --nodes` makes simulated nodes that nobody uses. Everything that was
    made is deleted again. Needs an administrator's credentials.
    """
    import uvloop

    from tenantry.bench.load import CONNECTIONS
    from tenantry.bench.slices import slices as measure
    from tenantry.kube.client import Client
    from tenantry.kube.version import require_supported

    async def main() -> SlicesResult:
        connection = target.connection()
        # Beside the writers: watches.
        async with Client(connection, field_manager="tenantry-bench", max_connections=CONNECTIONS + 4) as client:
            await require_supported(client)
            return await measure(client, claims=claims, quota=quota, rounds=rounds, talk=output.talk)

    result = uvloop.run(main())
    if form == "json":
        output.write(msgspec.json.encode(result).decode())
    else:
        output.write_lines(_lines(result))


def _lines(result: SlicesResult) -> list[str]:
    quota = ", with a quota" if result.quota else ""
    latency = f"p50 {result.latency_p50_seconds} s, p95 {result.latency_p95_seconds} s"
    return [
        f"claims             {result.claims} for {result.nodes} nodes{quota}, {result.rounds} round(s)",
        f"settled            {result.settled_seconds} s",
        f"latency            {latency}",
        f"one selection      {result.selection_milliseconds} ms",
        f"given back         {result.released_seconds} s",
    ]

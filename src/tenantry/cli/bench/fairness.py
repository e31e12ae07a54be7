"""`tenantry bench fairness`: what one tenant's flood costs another's reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.cli import output
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.fairness import FairnessResult, Reads, Side
    from tenantry.cli.certificates import Issued
    from tenantry.kube.kubeconfig import Connection

CERTIFICATE_SECONDS = 7200


@click.command()
@takes_target
@click.option("--connections", type=click.IntRange(1, 2000), default=64, show_default=True, help="Of the flood.")
@click.option(
    "--objects",
    type=click.IntRange(1, 20_000),
    default=500,
    show_default=True,
    help="In each collection that it lists, of 1 kB.",
)
@click.option("--rounds", type=click.IntRange(1, 50), default=3, show_default=True, help="Interleaved rounds.")
@click.option("--seconds", type=click.FloatRange(0.5, 600), default=5.0, show_default=True, help="Of each part.")
@output.output_option("json")
def fairness(target: Target, *, connections: int, objects: int, rounds: int, seconds: float, form: str | None) -> None:
    """Measure a quiet tenant's reads while another tenant floods, with Tenantry's priority level and without.

    Two tenants are made, with an owner each that has a client certificate of its own. One reads, alone and then while
    the other lists and writes from a process of its own as fast as it can. Everything that was made is deleted again;
    what is in force for others is not touched. Needs an administrator's credentials.
    """
    import uvloop

    from tenantry.bench.fairness import fairness as measure
    from tenantry.bench.load import CONNECTIONS
    from tenantry.cli import certificates
    from tenantry.kube.client import Client
    from tenantry.kube.version import require_supported

    async def main() -> FairnessResult:
        connection = target.connection()
        async with Client(connection, field_manager="tenantry-bench", max_connections=CONNECTIONS) as client:
            await require_supported(client)

            async def issue(user: str) -> Connection:
                issued = await certificates.issue(client, user, user, seconds=CERTIFICATE_SECONDS)
                return _as_person(connection, issued)

            return await measure(
                client,
                issue=issue,
                connections=connections,
                objects=objects,
                rounds=rounds,
                seconds=seconds,
                talk=output.talk,
            )

    result = uvloop.run(main())
    if form == "json":
        output.write(msgspec.json.encode(result).decode())
    else:
        output.write_lines(_lines(result))


def _as_person(connection: Connection, issued: Issued) -> Connection:
    """Return the way to the same server with nothing but a certificate."""
    return msgspec.structs.replace(
        connection,
        certificate=issued.certificate,
        key=issued.key,
        token="",
        token_file=None,
        exec_plugin=None,
        impersonate="",
        impersonate_groups=(),
    )


def _lines(result: FairnessResult) -> list[str]:
    flood = f"{result.connections} connections that list {result.objects} objects, and write"
    return [
        f"flood              {flood}",
        *_side("with the level", result.with_level),
        *_side("without", result.without_level),
        f"ratio              {result.ratio}, without {result.ratio_without} (1 is as if nobody flooded)",
    ]


def _side(title: str, side: Side) -> list[str]:
    return [
        f"{title:<18} {_reads(side.alone)} alone",
        f"{'':<18} {_reads(side.flooded)} flooded, at {side.flood_per_second} requests a second",
        f"{'':<18} {side.exempt_ratio} times as long for an administrator, who waits in no queue",
    ]


def _reads(reads: Reads) -> str:
    return f"p50 {1000 * reads.p50_seconds:.1f} ms, p99 {1000 * reads.p99_seconds:.1f} ms"

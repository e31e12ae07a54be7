"""`tenantry bench fairness`: what one tenant's flood costs another tenant's reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.cli import output
from tenantry.cli.bench.running import rounds_option, run
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.fairness import FairnessResult, Issue, LevelResult, ReadLatency
    from tenantry.kube.client import Client
    from tenantry.kube.kubeconfig import Connection

CERTIFICATE_SECONDS = 7200


@click.command()
@takes_target
@click.option(
    "--connections",
    type=click.IntRange(1, 2000),
    default=64,
    show_default=True,
    help="Number of connections of the flood.",
)
@click.option(
    "--objects",
    type=click.IntRange(1, 20_000),
    default=500,
    show_default=True,
    help="Number of objects of 1 kB in each list of the flood.",
)
@rounds_option(3)
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 600),
    default=5.0,
    show_default=True,
    help="Seconds of each part.",
)
@output.output_option("json")
def fairness(target: Target, *, connections: int, objects: int, rounds: int, seconds: float, form: str | None) -> None:
    """Measure a quiet tenant's reads while another tenant floods, with Tenantry's priority level and without.

    The benchmark creates two tenants, each with an owner that has a client certificate. One owner reads, alone and then
    while the other lists and writes from a process of its own as fast as it can. Objects in force for others stay
    untouched. The benchmark deletes everything that it creates, and needs an administrator's credentials.
    """

    async def measure(client: Client) -> FairnessResult:
        from tenantry.bench import fairness as benchmark

        return await benchmark.fairness(
            client,
            issue=issuing(client),
            connections=connections,
            objects=objects,
            rounds=rounds,
            seconds=seconds,
            progress=output.talk,
        )

    run(target, form, measure, _lines)


def issuing(client: Client) -> Issue:
    """Return what gives a user of the cluster a client certificate.

    Args:
        client: An administrator's.
    """
    from tenantry.cli import certificates

    async def issue(user: str) -> Connection:
        issued = await certificates.issue(client, user, user, seconds=CERTIFICATE_SECONDS)
        return msgspec.structs.replace(
            client.connection,
            certificate=issued.certificate,
            key=issued.key,
            token="",
            token_file=None,
            exec_plugin=None,
            impersonate="",
            impersonate_groups=(),
        )

    return issue


def _lines(result: FairnessResult) -> list[tuple[str, str]]:
    return [
        ("flood", f"{result.connections} connections that list {result.objects} objects, and write"),
        *_level("with the level", result.with_level),
        *_level("without", result.without_level),
        ("ratio", f"{result.ratio}, without {result.ratio_without} (1 is as without a flood)"),
    ]


def _level(title: str, level: LevelResult) -> list[tuple[str, str]]:
    return [
        (title, f"{_latency(level.alone)} alone"),
        ("", f"{_latency(level.flooded)} flooded, at {level.flood_per_second} requests a second"),
        ("", f"{level.exempt_ratio} times as long for an administrator, whose requests wait in no queue"),
    ]


def _latency(reads: ReadLatency) -> str:
    return f"p50 {1000 * reads.p50_seconds:.1f} ms, p99 {1000 * reads.p99_seconds:.1f} ms"

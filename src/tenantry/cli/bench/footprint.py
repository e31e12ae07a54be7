"""`tenantry bench footprint`: the memory and the CPU of an API server with Tenantry, beside one without."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.bench.running import available_mib, rounds_option
from tenantry.cli.bench.throwaway import started

if TYPE_CHECKING:
    from tenantry.bench.footprint import FootprintResult, KindCost

NEEDED_MIB = 2048
"""What two control planes take."""


@click.command()
@click.option(
    "--writes",
    type=click.IntRange(1, 100_000),
    default=200,
    show_default=True,
    help="Number of objects of each kind that are created, changed and deleted in a round, on each side.",
)
@rounds_option(3)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(1, 3600),
    default=125.0,
    show_default=True,
    help="Seconds over which the idle CPU is measured, after as many seconds of rest, before and after a restart.",
)
@output.output_option("json")
def footprint(*, writes: int, rounds: int, idle_seconds: float, form: str | None) -> None:
    """Measure what Tenantry adds to the memory, the idle CPU and the cost of a write of an API server.

    The benchmark starts two control planes on this machine, one with Tenantry, and removes them afterwards. It needs no
    other cluster.
    """
    free = available_mib()
    if free < NEEDED_MIB:
        raise InputError(f"the benchmark needs {NEEDED_MIB} MiB of memory, and {free} MiB are available")
    # Not uvloop: the supervisor of a cluster is a daemon that holds its pipe open, which uvloop waits for.
    result = asyncio.run(_run(writes, rounds, idle_seconds))
    if form == "json":
        output.write(output.to_json(result))
    else:
        output.write_lines(f"{name:<18} {text}" for name, text in _lines(result))


async def _run(writes: int, rounds: int, idle_seconds: float) -> FootprintResult:
    from tenantry.bench import footprint as benchmark

    with tempfile.TemporaryDirectory(prefix="tenantry-footprint-") as folder:
        async with AsyncExitStack() as stack:
            plain, guarded = [
                await started(stack, Path(folder), name, tenantry=tenantry)
                for name, tenantry in (("plain", False), ("guarded", True))
            ]
            return await benchmark.footprint(
                plain, guarded, writes=writes, rounds=rounds, idle_seconds=idle_seconds, progress=output.talk
            )


def _lines(result: FootprintResult) -> list[tuple[str, str]]:
    counted = result.counted_write_cost_ratio
    return [
        ("memory", f"{result.plain_megabytes} MiB without Tenantry, {result.added_megabytes} MiB more with it"),
        (
            "idle CPU",
            f"{result.plain_idle_cpu_cores} of a core without Tenantry, {result.idle_cpu_ratio} times with it",
        ),
        ("writes", f"{result.writes} objects of each kind, {result.rounds} round(s)"),
        ("ratio", f"{result.write_cost_ratio} (1 is as without Tenantry)"),
        ("ratio, counted", f"{'no kind is' if counted is None else counted} (kinds that quota counts)"),
        *_quota_lines(result),
        *(("kind", _cost(each)) for each in result.kinds),
    ]


def _quota_lines(result: FootprintResult) -> list[tuple[str, str]]:
    """Return how much of the cost of counted kinds is Kubernetes' own quota."""
    if result.counted_write_cost_ratio is None:
        return []
    return [
        ("quota, one key", f"{result.one_key_write_cost_ratio} (counted kinds without Tenantry, one quota key each)"),
        (
            "quota, all keys",
            f"{result.same_quota_write_cost_ratio} (counted kinds without Tenantry, a tenant's quota keys)",
        ),
        (
            "above quota",
            f"{result.counted_above_one_key_ratio} (to one key), {result.counted_above_same_quota_ratio} (to all keys)",
        ),
    ]


def _cost(kind: KindCost) -> str:
    plain, guarded = f"{kind.plain_milliseconds:>6.2f}", f"{kind.guarded_milliseconds:>6.2f}"
    return f"{kind.kind:<16} {plain} ms of CPU without, {guarded} ms with (ratio {kind.ratio}), by the {kind.writer}"

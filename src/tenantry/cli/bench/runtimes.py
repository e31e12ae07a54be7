"""`tenantry bench runtimes`: what runc, gVisor and Kata Containers cost the pods in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import output
from tenantry.cli.bench.running import rounds_option, run
from tenantry.cli.probeimage import image_of
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.runtimes import RuntimeFigures, RuntimeRates, RuntimesResult
    from tenantry.kube.client import Client

_NONE = "not measured"


@click.command()
@takes_target
@click.option("--node", default="", metavar="NAME", help="Node of all pods (default: the first that runs containers).")
@click.option(
    "--runtime",
    "chosen",
    multiple=True,
    metavar="NAME",
    help="RuntimeClass to measure; the first is what others are compared with. May be repeated (default: all).",
)
@rounds_option(3)
@click.option(
    "--starts", type=click.IntRange(1, 50), default=3, show_default=True, help="Number of pods started in each round."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 60),
    default=2.0,
    show_default=True,
    help="Seconds of each rate.",
)
@click.option(
    "--mebibytes",
    type=click.IntRange(1, 10_000),
    default=128,
    show_default=True,
    help="Size of the file that is written and read.",
)
@click.option(
    "--probe-image",
    "named",
    default="",
    metavar="IMAGE",
    help="Image of the pods (default: built for a local cluster).",
)
@output.output_option("json")
def runtimes(
    target: Target,
    *,
    node: str,
    chosen: tuple[str, ...],
    rounds: int,
    starts: int,
    seconds: float,
    mebibytes: int,
    named: str,
    form: str | None,
) -> None:
    r"""Measure what each runtime of containers costs the pods in it, on one real node.

    For each RuntimeClass, it prints the time to start, memory at rest, the rates of hashes, system calls, files, disk
    and network, and what is left of the first two beside pods of the same runtime that keep the node busy. Kinds of
    runtimes that the cluster does not have are named. The benchmark deletes everything that it creates. Exit code: 0
    measured, though a runtime may have no figures; 2 no node runs containers; 5 nothing could be measured.

    \b
      tenantry up --runtime real --nodes 1
      tenantry bench runtimes
    """

    async def measure(client: Client) -> RuntimesResult:
        from tenantry.bench import runtimes as benchmark

        place = await benchmark.node_of(client, node)
        image = await image_of(target, named)
        if isinstance(image, str):
            raise InputError(image)
        load = benchmark.RuntimesLoad(rounds=rounds, starts=starts, seconds=seconds, mebibytes=mebibytes)
        return await benchmark.runtimes(
            client, load, output.talk, node=place, image=image.reference, is_there=image.is_there, only=chosen
        )

    run(target, form, measure, lines)


def lines(result: RuntimesResult) -> list[tuple[str, str]]:
    """Return the table: a row for each measure, and a column for each runtime with its ratio to the first."""
    base = result.runtimes[0]
    rows: list[tuple[str, Callable[[RuntimeFigures], float | None], str]] = [
        ("start", lambda one: one.start_seconds, "s"),
        ("memory at rest", lambda one: one.memory_mebibytes, "MiB"),
        ("hashes", lambda one: _rate(one.rates, "hash_mebibytes"), "MiB/s"),
        ("system calls", lambda one: _rate(one.rates, "system_calls"), "/s"),
        ("files written", lambda one: _rate(one.rates, "file_operations"), "/s"),
        ("disk write", lambda one: _rate(one.rates, "write_mebibytes"), "MiB/s"),
        ("read again", lambda one: _rate(one.rates, "read_mebibytes"), "MiB/s"),
        ("network", lambda one: _rate(one.rates, "network_mebibytes"), "MiB/s"),
        ("beside others", lambda one: one.beside_processor, "of hashes"),
        ("", lambda one: one.beside_kernel, "of system calls"),
    ]
    titles = [f"{one.runtime or 'no RuntimeClass'} ({one.handler or 'default'})" for one in result.runtimes]
    table = [("", "".join(f"{each:<32}" for each in titles).rstrip())]
    for name, value, unit in rows:
        cells = [_cell(value(one), value(base), unit) for one in result.runtimes]
        table.append((name, "".join(f"{each:<32}" for each in cells).rstrip()))
    notes = [(one.runtime, f"not measured: {one.not_measured}") for one in result.runtimes if one.not_measured]
    notes += [("absent", f"{each}: no RuntimeClass has such a handler") for each in result.absent]
    return [("node", f"{result.node}, {result.container_runtime}, Linux {result.kernel}"), *table, *notes]


def _rate(rates: RuntimeRates | None, name: str) -> float | None:
    return None if rates is None else getattr(rates, name)


def _cell(value: float | None, base: float | None, unit: str) -> str:
    if value is None:
        return _NONE
    text = f"{value:,.0f}" if value >= 1000 else f"{value:g}"  # noqa: PLR2004 - four digits need no fraction
    ratio = f" ({value / base:.2f})" if base and value is not base else ""
    return f"{text} {unit}{ratio}"

"""Runs a benchmark with a client of its own, and prints the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tenantry.api.errors import ApiError, LocalError
from tenantry.cli import output
from tenantry.cli.target import Target

if TYPE_CHECKING:
    from tenantry.bench.probe import OperatorMetrics
    from tenantry.kube.client import Client

T = TypeVar("T")

metrics_option = click.option(
    "--operator-metrics",
    default="",
    metavar="URL",
    help="URL of the operator's /metrics (default: found through the API server, or the local cluster).",
)


def rounds_option(default: int | None, text: str = "") -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return the option --rounds.

    Args:
        default: How many rounds there are by default; None if that depends on other options.
        text: The default in that case.
    """
    said = f" (default: {text})" if text else ""
    return click.option(
        "--rounds",
        type=click.IntRange(1, 50),
        default=default,
        show_default=default is not None,
        help=f"Number of interleaved rounds{said}.",
    )


def run(
    target: Target,
    form: str | None,
    measure: Callable[[Client], Awaitable[T]],
    lines: Callable[[T], Sequence[tuple[str, str]]],
) -> None:
    """Run a benchmark and print its result.

    Args:
        target: The cluster.
        form: As -o names it; None for a table.
        measure: Runs the benchmark.
        lines: Returns the name and the text of each figure.
    """
    import uvloop

    from tenantry.bench.load import POOL
    from tenantry.kube.client import Client
    from tenantry.kube.version import require_supported

    async def main() -> T:
        async with Client(target.connection(), field_manager="tenantry-bench", max_connections=POOL) as client:
            await require_supported(client)
            return await measure(client)

    result = uvloop.run(main())
    if form == "json":
        output.write(output.to_json(result))
    else:
        output.write_lines(f"{name:<18} {text}" for name, text in lines(result))


async def read_metrics(client: Client, target: Target, url: str) -> OperatorMetrics | None:
    """Return the operator's metrics; None, with a note on stderr, if they cannot be read."""
    from tenantry.bench import probe

    try:
        return await probe.operator_metrics(client, url or local_url(target))
    except ApiError as error:
        output.talk(f"the operator's CPU and memory are not measured ({error}); give --operator-metrics")
        return None


def local_url(target: Target) -> str:
    """Return the URL of the metrics of a local cluster's operator; "" for other clusters."""
    from tenantry.local.cluster import LocalCluster

    if not target.local_name:
        return ""
    try:
        # The operator of a local cluster is a process beside it, without a Service.
        return f"http://127.0.0.1:{LocalCluster(target.local_name).spec().ports.operator}/metrics"
    except LocalError:
        return ""


def operator_usage(cpu_seconds: float | None, rss_mib: float | None) -> tuple[str, str]:
    """Return the figure of the operator's CPU and memory."""
    cpu = "not measured" if cpu_seconds is None else f"{cpu_seconds} s"
    memory = "not measured" if rss_mib is None else f"{rss_mib} MiB"
    return "operator", f"CPU {cpu}, memory {memory}"


def available_mib() -> int:
    """Return the memory that new processes can use; proc_meminfo(5)."""
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) // 1024

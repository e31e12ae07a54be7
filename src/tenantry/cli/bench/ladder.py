"""`tenantry bench ladder`: one tenant as a namespace, with a virtual control plane, and with a cluster of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenantry.cli import output
from tenantry.cli.bench.fairness import issuing
from tenantry.cli.bench.running import metrics_option, read_metrics, run
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.bench.ladder import LadderRequests, LadderResult, LadderStep
    from tenantry.kube.client import Client

IMAGE = "registry.k8s.io/pause:3.10"
_NONE = "not measured"


@click.command()
@takes_target
@click.option(
    "--objects",
    type=click.IntRange(0, 10_000),
    default=2000,
    show_default=True,
    help="Number of ConfigMaps of 1 kB with which memory is measured again.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 600),
    default=5.0,
    show_default=True,
    help="Seconds over which requests are measured, alone and with a neighbour.",
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(0, 600),
    default=10.0,
    show_default=True,
    help="Seconds of rest before memory is measured.",
)
@metrics_option
@output.output_option("json")
def ladder(
    target: Target, *, objects: int, seconds: float, idle_seconds: float, operator_metrics: str, form: str | None
) -> None:
    r"""Measure one tenant as a namespace, with a virtual control plane, and with a cluster of its own.

    It prints the time to the first answer and to the first pod, memory, requests alone and beside a neighbour of the
    same level that floods, the isolation score, and what the operator writes. A local cluster needs three nodes or
    more. What could not be measured is named. The benchmark deletes everything that it creates. Exit code: 0 all levels
    are measured; 5 the cluster refuses, or a tenant does not answer in time.

    \b
      tenantry up --nodes 4
      tenantry bench ladder
    """

    async def measure(client: Client) -> LadderResult:
        from tenantry.bench import ladder as benchmark

        metrics = await read_metrics(client, target, operator_metrics)
        machine = benchmark.LadderMachine(
            issue=issuing(client),
            score=_scoring(client),
            memory=_memory(target),
            writes=metrics.writes if metrics is not None else None,
        )
        load = benchmark.LadderLoad(objects=objects, seconds=seconds, idle_seconds=idle_seconds)
        return await benchmark.ladder(client, load, machine, output.talk)

    run(target, form, measure, lines)


def _scoring(client: Client) -> Callable[[str], Awaitable[int]]:
    from tenantry.audit import subjects

    async def score(tenant: str) -> int:
        chosen = await subjects.select(client, tenant, "")
        (found,) = await subjects.audit(client, chosen, subjects.AuditOptions(image=IMAGE), output.talk)
        return found.score

    return score


def _memory(target: Target) -> Callable[[str, str], float] | None:
    """Return what measures the processes of a control plane of a local cluster; None for any other cluster."""
    if target.local_name is None:
        return None
    from tenantry.local.cluster import LocalCluster
    from tenantry.local.state import read_state

    paths = LocalCluster(target.local_name).paths

    def memory(namespace: str, name: str) -> float:
        state = read_state(paths)
        components = state.components if state is not None else ()
        process = f"{namespace}.{name}"
        # hosted@NAME, and the etcd, the forward and the simulator of the same name.
        own = [each.pid for each in components if each.pid and each.name.partition("@")[2].startswith(process)]
        return round(sum(map(_pss, own)) / 1024, 1)

    return memory


def _pss(pid: int) -> int:
    """Return the proportional memory of a process in KiB; proc_pid_smaps(5)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def lines(result: LadderResult) -> list[tuple[str, str]]:
    """Return the table: a row for each measure, and a column for each level."""
    rows: list[tuple[str, Callable[[LadderStep], str]]] = [
        ("", lambda step: step.level),
        ("isolation class", lambda step: step.isolation_class or _NONE),
        ("first answer", lambda step: f"{step.first_answer_seconds} s"),
        ("first pod runs", lambda step: _told(step.first_pod_seconds, "s")),
        ("memory idle", lambda step: _told(step.idle_mebibytes, "MiB")),
        ("memory loaded", lambda step: _told(step.loaded_mebibytes, "MiB")),
        ("requests alone", lambda step: _requests(step.alone)),
        ("requests flooded", lambda step: _requests(step.flooded)),
        ("p99 ratio", lambda step: f"{step.p99_ratio}"),
        ("isolation score", lambda step: _told(step.score, "of 100")),
        ("operator writes", lambda step: _told(step.writes, "")),
    ]
    table = [(name, "".join(f"{cell(step):<26}" for step in result.steps).rstrip()) for name, cell in rows]
    notes = [(step.level, f"not measured: {each}") for step in result.steps for each in step.not_measured]
    return [*table, *notes]


def _told(value: float | None, unit: str) -> str:
    return _NONE if value is None else f"{value} {unit}".rstrip()


def _requests(found: LadderRequests) -> str:
    return f"{found.per_second:.0f} /s, p99 {found.p99_milliseconds} ms"

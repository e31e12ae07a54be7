"""How fast a control plane that sleeps answers, and how much CPU that takes beside a stock API server.

asleep by request ─► a request with its kubeconfig ─► the answer;  then a restart of the stock API server
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from tenantry.api.marks import REQUESTED_PHASE
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.bench.figures import median, percentile
from tenantry.bench.load import Progress, first_seen, of_run
from tenantry.bench.planes.processes import Processes, StockServer
from tenantry.bench.planes.run import BenchPlane, PlaneRun, planes_of_run
from tenantry.engine.tasks import in_background
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH, Client

ASLEEP_SECONDS = 120.0


class PlaneWakeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        wakes: How often a control plane was woken.
        wake_p50_seconds: From the first request of a user until its answer.
        wake_p95_seconds: The same.
        cpu_seconds_p50: CPU time of one when it has answered: API server, controllers and datastore.
        stock_cpu_seconds_p50: CPU time of a stock API server when it is ready, on a datastore that has data.
        cpu_ratio: cpu_seconds_p50 / stock_cpu_seconds_p50.
    """

    wakes: int
    wake_p50_seconds: float
    wake_p95_seconds: float
    cpu_seconds_p50: float
    stock_cpu_seconds_p50: float
    cpu_ratio: float


async def wake(
    client: Client, count: int, processes: Processes, stock: StockServer, progress: Progress
) -> PlaneWakeResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster.
        count: How often to wake one control plane.
        processes: Of the cluster.
        stock: A stock API server on the same machine.
        progress: Receives a line after each step.

    Raises:
        RetryableError: The control plane is not usable, or not asleep, in time.
    """
    took: list[float] = []
    used: list[float] = []
    stock_used: list[float] = []
    async with planes_of_run(client, 1) as run:
        plane = await run.create()
        for number in range(count):
            await fall_asleep(run, plane, number)
            took.append(await woken(plane))
            (cost,) = processes.of_planes([plane.process])
            stock_cost = await stock.start_cost()
            used.append(cost.cpu_seconds)
            stock_used.append(stock_cost.cpu_seconds)
            progress(f"{number + 1} of {count}: answered after {took[-1]:.2f} s, {cost.cpu_seconds:.2f} s of CPU")
    return PlaneWakeResult(
        wakes=count,
        wake_p50_seconds=median(took),
        wake_p95_seconds=percentile(took, 0.95),
        cpu_seconds_p50=median(used),
        stock_cpu_seconds_p50=median(stock_used),
        cpu_ratio=round(median(used) / median(stock_used), 2),
    )


async def wakes(run: PlaneRun, planes: Sequence[BenchPlane]) -> list[float]:
    """Return how many seconds the first request of each control plane takes, one after the other."""
    found: list[float] = []
    for plane in planes:
        await fall_asleep(run, plane, 0)
        found.append(await woken(plane))
    return found


async def fall_asleep(run: PlaneRun, plane: BenchPlane, number: int) -> None:
    """Have a control plane sleep.

    Args:
        run: The run.
        plane: The control plane.
        number: Another one for each time.

    Raises:
        RetryableError: It is not asleep in time.
    """
    key = f"{plane.namespace}/{plane.name}"
    seen = first_seen(
        run.client, VirtualControlPlane, {key}, _is_asleep, of_run(run.run), PlanePhase.ASLEEP, ASLEEP_SECONDS
    )
    body = {"metadata": {"annotations": {REQUESTED_PHASE: f"{PlanePhase.ASLEEP} {number}"}}}
    async with in_background(seen) as asleep:
        path = wire.path(VirtualControlPlane.resource, plane.namespace, plane.name)
        await run.client.request("PATCH", path, body=msgspec.json.encode(body), content_type=MERGE_PATCH)
        await asleep


async def woken(plane: BenchPlane) -> float:
    """Return how many seconds a request of a user takes, by a connection of its own."""
    began = time.perf_counter()
    async with Client(plane.connection, max_connections=1) as inside:
        await inside.request("GET", "/api/v1/namespaces/default/pods")
    return time.perf_counter() - began


def _is_asleep(found: VirtualControlPlane) -> bool:
    # Without its share, its process has ended.
    return found.status.phase is PlanePhase.ASLEEP and not found.status.charged

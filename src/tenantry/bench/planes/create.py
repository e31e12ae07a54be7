"""How fast control planes start, and how much CPU that takes beside a stock API server.

one at a time:  POST ─► Ready ─► a request with its kubeconfig succeeds;  then a restart of the stock API server
at once:        the same for all together
"""

from __future__ import annotations

import time

import msgspec

from tenantry.bench.figures import median, percentile
from tenantry.bench.load import Progress
from tenantry.bench.planes.processes import Processes, StockServer
from tenantry.bench.planes.run import planes_of_run
from tenantry.engine.tasks import all_of
from tenantry.kube.client import Client


class PlaneCreateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        control_planes: How many were created one after the other.
        ready_p50_seconds: From the POST to the first request that succeeds with the kubeconfig.
        ready_p95_seconds: The same.
        at_once: How many were created together.
        at_once_seconds: From the first POST until the last is usable.
        cpu_seconds_p50: CPU time of one when it is usable: API server, controllers and datastore.
        stock_cpu_seconds_p50: CPU time of a stock API server when it is ready, on a datastore that has data.
        cpu_ratio: cpu_seconds_p50 / stock_cpu_seconds_p50.
    """

    control_planes: int
    ready_p50_seconds: float
    ready_p95_seconds: float
    at_once: int
    at_once_seconds: float
    cpu_seconds_p50: float
    stock_cpu_seconds_p50: float
    cpu_ratio: float


async def create(  # noqa: PLR0917 - the flags of the command
    client: Client, count: int, at_once: int, processes: Processes, stock: StockServer, progress: Progress
) -> PlaneCreateResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster.
        count: How many to create one after the other.
        at_once: How many to create together after that.
        processes: Of the cluster.
        stock: A stock API server on the same machine.
        progress: Receives a line after each step.

    Raises:
        RetryableError: A control plane is not usable in time.
    """
    ready: list[float] = []
    used: list[float] = []
    stock_used: list[float] = []
    async with planes_of_run(client, count + at_once) as run:
        for number in range(count):
            plane = await run.create()
            (cost,) = processes.of_planes([plane.process])
            stock_cost = await stock.start_cost()
            ready.append(plane.seconds)
            used.append(cost.cpu_seconds)
            stock_used.append(stock_cost.cpu_seconds)
            progress(f"{number + 1} of {count}: usable after {plane.seconds:.2f} s, {cost.cpu_seconds:.2f} s of CPU")
        began = time.perf_counter()
        await all_of(run.create() for _ in range(at_once))
        together = time.perf_counter() - began
        progress(f"{at_once} at once: usable after {together:.2f} s")
    return PlaneCreateResult(
        control_planes=count,
        ready_p50_seconds=median(ready),
        ready_p95_seconds=percentile(ready, 0.95),
        at_once=at_once,
        at_once_seconds=round(together, 3),
        cpu_seconds_p50=median(used),
        stock_cpu_seconds_p50=median(stock_used),
        cpu_ratio=round(median(used) / median(stock_used), 2),
    )

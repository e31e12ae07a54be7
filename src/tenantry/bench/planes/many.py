"""What many control planes that nothing uses take together."""

from __future__ import annotations

import asyncio

import msgspec

from tenantry.bench.figures import median
from tenantry.bench.load import Progress
from tenantry.bench.planes.processes import Processes, cpu_a_minute
from tenantry.bench.planes.run import BenchPlane, planes_of_run
from tenantry.engine.tasks import all_of
from tenantry.kube.client import Client

AT_ONCE = 4
"""Control planes that start together; more would only wait for each other."""


class SharedCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a component takes that serves all control planes.

    Args:
        name: The component.
        private_megabytes: Its anonymous memory.
        before_megabytes: The same before there were control planes; 0 if it did not run.
        cpu_seconds_per_minute: Its CPU time in a minute of the window.
    """

    name: str
    private_megabytes: float
    before_megabytes: float
    cpu_seconds_per_minute: float


class ManyPlanesResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        control_planes: How many there were.
        private_gigabytes: Anonymous memory of all of them, in 10^9 bytes.
        private_megabytes_each: The median.
        idle_cpu_seconds_per_minute: CPU time of each in a minute; the median.
        shared: The components that serve all of them.
    """

    control_planes: int
    private_gigabytes: float
    private_megabytes_each: float
    idle_cpu_seconds_per_minute: float
    shared: list[SharedCost]


async def many(
    client: Client, count: int, idle_seconds: float, processes: Processes, progress: Progress
) -> ManyPlanesResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster.
        count: How many control planes.
        idle_seconds: The window of the idle CPU, after as many seconds of rest.
        processes: Of the cluster.
        progress: Receives a line after each step.

    Raises:
        RetryableError: A control plane is not usable in time.
    """
    bare = processes.of_shared()
    async with planes_of_run(client, count) as run:
        planes: list[BenchPlane] = []
        for first in range(0, count, AT_ONCE):
            planes += await all_of(run.create() for _ in range(min(AT_ONCE, count - first)))
            progress(f"{len(planes)} of {count} control planes are usable")
        names = [each.process for each in planes]
        await asyncio.sleep(idle_seconds)
        before, shared_before = processes.of_planes(names), processes.of_shared()
        await asyncio.sleep(idle_seconds)
        after, shared = processes.of_planes(names), processes.of_shared()
    shared_cpu = {
        name: cpu_a_minute([shared_before[name]], [shared[name]], idle_seconds)[0]
        for name in shared
        if name in shared_before
    }
    return ManyPlanesResult(
        control_planes=count,
        private_gigabytes=round(sum(each.private_megabytes for each in after) / 1000, 3),
        private_megabytes_each=median((each.private_megabytes for each in after), 1),
        idle_cpu_seconds_per_minute=median(cpu_a_minute(before, after, idle_seconds)),
        shared=[
            SharedCost(
                name=name,
                private_megabytes=round(shared[name].private_megabytes, 1),
                before_megabytes=round(bare[name].private_megabytes, 1) if name in bare else 0.0,
                cpu_seconds_per_minute=round(used, 3),
            )
            for name, used in shared_cpu.items()
        ],
    )

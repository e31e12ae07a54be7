"""A short form of the benchmarks of virtual control planes: one run, less than five minutes with its defaults.

one at a time:  POST VirtualControlPlane ─► Ready ─► a request with its kubeconfig succeeds
interleaved:    POST a pod on the host ─► Running     POST a pod inside ─► Running inside
at rest:        anonymous memory and CPU of the processes
asleep:         a request with its kubeconfig ─► the answer
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import msgspec

from tenantry.bench.figures import median, percentile
from tenantry.bench.load import Progress
from tenantry.bench.planes.pods import CONNECTIONS, BenchSide, in_turns
from tenantry.bench.planes.processes import Processes, cpu_a_minute
from tenantry.bench.planes.run import BenchPlane, planes_of_run
from tenantry.bench.planes.wake import wakes
from tenantry.bench.pods import require_room
from tenantry.kube.client import Client


class VcpResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        control_planes: How many were created, one after the other.
        ready_p50_seconds: From the POST to the first request that succeeds with the kubeconfig.
        ready_p95_seconds: The same.
        private_megabytes_each: Private memory of a process at rest; the median.
        idle_cpu_seconds_per_minute: CPU time of a process at rest, in a minute; the median.
        wake_p50_seconds: From the first request to one that sleeps until its answer.
        pods: How many pods were started on each side, one after the other.
        pod_direct_seconds_p50: From the POST of a pod on the host until it runs.
        pod_mirrored_seconds_p50: The same of a pod inside, seen inside.
        pod_extra_seconds_p50: The difference of the two.
    """

    control_planes: int
    ready_p50_seconds: float
    ready_p95_seconds: float
    private_megabytes_each: float
    idle_cpu_seconds_per_minute: float
    wake_p50_seconds: float
    pods: int
    pod_direct_seconds_p50: float
    pod_mirrored_seconds_p50: float
    pod_extra_seconds_p50: float


async def vcp(  # noqa: PLR0917 - the flags of the command
    client: Client, count: int, pods: int, idle_seconds: float, processes: Processes, progress: Progress
) -> VcpResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster with simulated nodes.
        count: How many control planes to create.
        pods: How many pods to start on each side.
        idle_seconds: Seconds over which idle CPU is measured, after as many seconds of rest.
        processes: Of the cluster.
        progress: Receives a line after each step.

    Raises:
        InputError: The nodes have no room for the pods.
        RetryableError: A control plane is not Ready, or a pod does not run, in time.
    """
    await require_room(client, 2)
    async with planes_of_run(client, count) as run, AsyncExitStack() as stack:
        planes: list[BenchPlane] = []
        for _ in range(count):
            planes.append(await run.create())
            progress(f"control plane {len(planes)} of {count}: usable after {planes[-1].seconds:.2f} s")
        inside = await stack.enter_async_context(Client(planes[0].connection, max_connections=CONNECTIONS))
        direct, mirrored = await in_turns(
            BenchSide(client, planes[0].namespace, "direct", run.run),
            BenchSide(inside, "default", "inside", run.run),
            pods,
        )
        progress(f"{pods} pods on each side: direct {median(direct)} s, mirrored {median(mirrored)} s")
        names = [each.process for each in planes]
        await asyncio.sleep(idle_seconds)
        before = processes.of_planes(names)
        await asyncio.sleep(idle_seconds)
        after = processes.of_planes(names)
        woken = await wakes(run, planes)
        progress(f"asleep: answered after {median(woken)} s")
    ready = [each.seconds for each in planes]
    return VcpResult(
        control_planes=count,
        ready_p50_seconds=median(ready),
        ready_p95_seconds=percentile(ready, 0.95),
        private_megabytes_each=median((each.private_megabytes for each in after), 1),
        idle_cpu_seconds_per_minute=median(cpu_a_minute(before, after, idle_seconds)),
        wake_p50_seconds=median(woken),
        pods=pods,
        pod_direct_seconds_p50=median(direct),
        pod_mirrored_seconds_p50=median(mirrored),
        pod_extra_seconds_p50=round(median(mirrored) - median(direct), 3),
    )

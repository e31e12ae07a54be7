"""One runtime with many clusters: its idle CPU, and whether one API server that hangs slows down the others.

    idle:    one watch for each cluster, no objects change ─► CPU of this process over a window
    latency: create an object in each cluster in turn ─► the reconcile of that object begins
             every other time while one API server is stopped with SIGSTOP, with reconciles that wait for its answers

The API servers need not have anything of Tenantry: the only objects are ConfigMaps.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

import msgspec

from tenantry.api.errors import RetryableError
from tenantry.api.model import KubernetesObject, ObjectMeta, Resource
from tenantry.bench.figures import percentile
from tenantry.bench.probe import MIB
from tenantry.engine.clock import SystemClock
from tenantry.engine.cluster import Cluster, ClusterId, Watch
from tenantry.engine.metrics import Metrics
from tenantry.engine.runtime import Runtime
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

LABEL = "bench.tenantry.dev/probe"
NAMESPACE = "default"
HUNG_KEYS = 16
"""Reconciles that wait for the stopped API server."""
ARRIVAL_SECONDS = 60.0

Progress = Callable[[str], None]


class BenchCluster(msgspec.Struct, frozen=True, kw_only=True):
    """An API server that the benchmark uses.

    Args:
        name: Its name, unique among all.
        connection: An administrator's connection.
        pid: Its process.
        pause: Stops the process with SIGSTOP.
        resume: Continues it with SIGCONT.
    """

    name: str
    connection: Connection
    pid: int
    pause: Callable[[], None]
    resume: Callable[[], None]


class ReconcileLatency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds from the request that creates an object until its reconcile begins, over all rounds."""

    median: float
    p99: float


class ClustersResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured.

    Args:
        clusters: The number of clusters.
        rounds: The number of rounds.
        idle_seconds: The length of the window of `idle_cpu_cores`.
        idle_cpu_cores: CPU of this process while nothing changes; 1 is a whole core.
        latency_ms: With all API servers running.
        latency_ms_one_stopped: Of the others, with one API server stopped.
        latency_ratio_one_stopped: The ratio of the two medians; 1 is as with all running.
        process_megabytes: Resident memory of this process.
        api_server_megabytes: The mean over the API servers, each page shared with others counted in part (PSS).
    """

    clusters: int
    rounds: int
    idle_seconds: float
    idle_cpu_cores: float
    latency_ms: ReconcileLatency
    latency_ms_one_stopped: ReconcileLatency
    latency_ratio_one_stopped: float
    process_megabytes: float
    api_server_megabytes: float


class ProbeObject(KubernetesObject, frozen=True, kw_only=True):
    """A ConfigMap without data."""

    resource: ClassVar[Resource] = Resource("", "v1", "configmaps", "ConfigMap")


decode_probe = msgspec.json.Decoder(ProbeObject).decode


class ArrivalController:
    """Notes when the reconcile of an object begins, and then reads the object from the API server.

    The read makes the reconciles of a stopped cluster wait, as those of a real controller do.
    """

    name = "arrivals"
    kind = ProbeObject

    def __init__(self) -> None:
        self._expected: dict[str, asyncio.Future[float]] = {}

    def watches(self) -> Sequence[Watch]:
        """Return the one watch of each cluster."""
        selectors = {"labelSelector": LABEL}
        watch = Watch(
            resource=ProbeObject.resource,
            decode=decode_probe,
            keys=lambda change: [each.key for each in (change.after,) if each is not None],
            selectors=selectors,
        )
        return [watch]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - unused
        """Note the time and read the object."""
        expected = self._expected.pop(key, None)
        if expected is not None:
            expected.set_result(time.perf_counter())
        namespace, _, name = key.partition("/")
        await cluster.live.get(ProbeObject, name, namespace)
        return None

    async def latency(self, client: Client, name: str) -> float:
        """Create an object, and return the milliseconds until its reconcile begins.

        Raises:
            RetryableError: It does not begin in time.
        """
        found = ProbeObject(metadata=ObjectMeta(name=name, namespace=NAMESPACE, labels={LABEL: "true"}))
        expected = self._expected[found.key] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                await client.create(found)
                return 1000 * (await expected - began)
        except TimeoutError as error:
            raise RetryableError(f'"{found.key}" is not reconciled after {ARRIVAL_SECONDS:.0f} s') from error


class _Member(msgspec.Struct, frozen=True):
    cluster: Cluster
    client: Client
    controller: ArrivalController


async def clusters(
    members: Sequence[BenchCluster], *, rounds: int, idle_seconds: float, progress: Progress
) -> ClustersResult:
    """Run the benchmark; what it creates stays in the clusters.

    Args:
        members: At least two clusters; the last one is stopped at times.
        rounds: How often each latency is measured in each cluster.
        idle_seconds: The window of the idle CPU.
        progress: Receives messages about what is being measured.

    Raises:
        RetryableError: A cluster is too slow.
    """
    clock = SystemClock()
    runtime = Runtime(clock=clock, metrics=Metrics())
    async with AsyncExitStack() as stack:
        running: list[_Member] = []
        for member in members:
            client = await stack.enter_async_context(Client(member.connection, max_connections=2 + HUNG_KEYS))
            cluster = Cluster(ClusterId(member.name), client, clock=clock, instance="bench")
            controller = ArrivalController()
            runtime.add(cluster, [controller])
            running.append(_Member(cluster, client, controller))
        async with asyncio.TaskGroup() as group:
            group.create_task(runtime.run())
            try:
                return await _measure(running, members, rounds, idle_seconds, progress)
            finally:
                members[-1].resume()
                runtime.stop()


async def _measure(
    running: list[_Member], members: Sequence[BenchCluster], rounds: int, idle_seconds: float, progress: Progress
) -> ClustersResult:
    numbers = itertools.count()
    # The first objects show that every watch works, and give the stopped cluster keys to reconcile.
    progress(f"watching {len(members)} clusters")
    for _ in range(HUNG_KEYS):
        await _latencies(running[-1:], numbers)
    await _latencies(running, numbers)
    progress(f"idle for {idle_seconds:.0f} s")
    idle = await _idle_cores(idle_seconds)
    alive: list[float] = []
    stopped: list[float] = []
    hung = members[-1]
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        alive += await _latencies(running[:-1], numbers)
        hung.pause()
        try:
            _hang(running[-1].cluster)
            stopped += await _latencies(running[:-1], numbers)
        finally:
            hung.resume()
    return ClustersResult(
        clusters=len(members),
        rounds=rounds,
        idle_seconds=idle_seconds,
        idle_cpu_cores=round(idle, 4),
        latency_ms=_latency(alive),
        latency_ms_one_stopped=_latency(stopped),
        latency_ratio_one_stopped=round(statistics.median(stopped) / statistics.median(alive), 3),
        process_megabytes=round(_resident_megabytes("self"), 1),
        api_server_megabytes=round(statistics.mean(_shared_megabytes(each.pid) for each in members), 1),
    )


async def _latencies(running: Sequence[_Member], numbers: itertools.count[int]) -> list[float]:
    """Create one object in each cluster, one after the other, so that they do not compete for the CPU."""
    return [await each.controller.latency(each.client, f"probe-{next(numbers)}") for each in running]


def _hang(cluster: Cluster) -> None:
    """Have objects of a stopped cluster reconciled: each of these reconciles waits for an answer."""
    for value in cluster.cache(ProbeObject.resource):
        cluster.wake(ProbeObject, value.key)


async def _idle_cores(seconds: float) -> float:
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - cpu) / (time.perf_counter() - began)


def _latency(values: list[float]) -> ReconcileLatency:
    return ReconcileLatency(median=round(statistics.median(values), 3), p99=percentile(values, 0.99))


def _resident_megabytes(process: str) -> float:
    """Return the resident memory of a process; proc_pid_status(5)."""
    return _kilobytes(Path(f"/proc/{process}/status"), "VmRSS") * 1024 / MIB


def _shared_megabytes(pid: int) -> float:
    """Return the proportional set size of a process; proc_pid_smaps(5)."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss") * 1024 / MIB


def _kilobytes(file: Path, field: str) -> int:
    line = next(line for line in file.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])

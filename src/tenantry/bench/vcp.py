"""How fast virtual control planes start, what they take, and what the mirror adds to the start of a pod.

one at a time:  POST VirtualControlPlane ─► Ready ─► a request with its kubeconfig succeeds
at rest:        anonymous memory and CPU of the processes
interleaved:    POST a pod on the host ─► Running     POST a pod inside ─► Running inside
"""

from __future__ import annotations

import asyncio
import base64
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from tenantry.api import reasons
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, VirtualControlPlane
from tenantry.bench.figures import median, percentile
from tenantry.bench.load import (
    RUN_LABEL,
    Progress,
    clean_up,
    create_tenants,
    first_seen,
    new_run,
    new_tenant,
    of_run,
)
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.conditions import is_true
from tenantry.engine.tasks import in_background
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

READY_SECONDS = 180.0
RUN_SECONDS = 120.0
_SECRETS = Resource("", "v1", "secrets", "Secret")
_QUOTA = {"cpu": "16", "memory": "32Gi", "pods": "200"}
_POD = {
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "registry.example.com/bench:1"}],
}


class ProcessCost(msgspec.Struct, frozen=True):
    """What the process of one control plane takes.

    Args:
        private_megabytes: Anonymous memory, in 10^6 bytes: all but the files that it maps, its program above all, whose
            pages all processes of the program share.
        cpu_seconds: CPU time since its start.
    """

    private_megabytes: float
    cpu_seconds: float


Costs = Callable[[Sequence[str]], Sequence[ProcessCost]]
"""Reads the processes of control planes by `NAMESPACE.NAME`."""


def process_cost(pid: int) -> ProcessCost:
    """Return what a process takes; proc_pid_smaps(5), proc_pid_stat(5).

    Raises:
        OSError: There is no such process.
    """
    kilobytes = next(
        int(line.split()[1])
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Anonymous:")
    )
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ProcessCost(kilobytes * 1024 / 1e6, ticks / os.sysconf("SC_CLK_TCK"))


class VcpResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        control_planes: How many were created, one after the other.
        ready_p50_seconds: From the POST to the first request that succeeds with the kubeconfig.
        ready_p95_seconds: The same.
        private_megabytes_each: Private memory of a process at rest; the median.
        idle_cpu_seconds_per_minute: CPU time of a process at rest, in a minute; the median.
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
    pods: int
    pod_direct_seconds_p50: float
    pod_mirrored_seconds_p50: float
    pod_extra_seconds_p50: float


async def vcp(  # noqa: PLR0917 - the flags of the command
    client: Client, count: int, pods: int, idle_seconds: float, costs: Costs, progress: Progress
) -> VcpResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster with simulated nodes.
        count: How many control planes to create.
        pods: How many pods to start on each side.
        idle_seconds: Seconds over which idle CPU is measured, after as many seconds of rest.
        costs: Reads the processes.
        progress: Receives a line after each step.

    Raises:
        RetryableError: A control plane is not Ready, or a pod does not run, in time.
    """
    run = new_run()
    # The standard number of control planes in a namespace is lower than what the benchmark may be asked for.
    tenant = new_tenant(f"bench-{run}", run, quota={**_QUOTA, f"count/{VirtualControlPlane.resource.full_name}": count})
    namespace = tenant.metadata.name
    try:
        await create_tenants(client, [tenant])
        names = [f"plane-{number}" for number in range(count)]
        ready: list[float] = []
        connections: list[Connection] = []
        for name in names:
            began = time.perf_counter()
            connections.append(await _created(client, namespace, name, run))
            ready.append(time.perf_counter() - began)
            progress(f"control plane {len(ready)} of {count}: usable after {ready[-1]:.2f} s")
        direct, mirrored = await _pods(client, connections[0], namespace, run, pods)
        progress(f"{pods} pods on each side: direct {median(direct)} s, mirrored {median(mirrored)} s")
        processes = [f"{namespace}.{name}" for name in names]
        await asyncio.sleep(idle_seconds)
        before = costs(processes)
        await asyncio.sleep(idle_seconds)
        after = costs(processes)
        pairs = zip(before, after, strict=True)
        used = [(late.cpu_seconds - early.cpu_seconds) / idle_seconds * 60 for early, late in pairs]
    finally:
        await clean_up(client, run)
    return VcpResult(
        control_planes=count,
        ready_p50_seconds=median(ready),
        ready_p95_seconds=percentile(ready, 0.95),
        private_megabytes_each=median((each.private_megabytes for each in after), 1),
        idle_cpu_seconds_per_minute=median(used),
        pods=pods,
        pod_direct_seconds_p50=median(direct),
        pod_mirrored_seconds_p50=median(mirrored),
        pod_extra_seconds_p50=round(median(mirrored) - median(direct), 3),
    )


async def _created(client: Client, namespace: str, name: str, run: str) -> Connection:
    """Create a control plane, and return its connection once it has answered its user."""
    found = VirtualControlPlane(metadata=ObjectMeta(name=name, namespace=namespace, labels={RUN_LABEL: run}))
    waiting = first_seen(client, VirtualControlPlane, {found.key}, _is_ready, of_run(run), "Ready", READY_SECONDS)
    async with in_background(waiting) as seen:
        await client.create(found)
        await seen
    secret = (await client.get(VirtualControlPlane, name, namespace)).status.kubeconfig_secret
    data = await client.request("GET", wire.path(_SECRETS, namespace, secret))
    connection = _connection(base64.b64decode(msgspec.json.decode(data)["data"][KUBECONFIG_KEY]))
    async with Client(connection, max_connections=1) as inside:
        await inside.request("GET", "/api/v1/namespaces/default/pods")
    return connection


def _is_ready(found: VirtualControlPlane) -> bool:
    return is_true(found.status.conditions, reasons.READY)


def _connection(text: bytes) -> Connection:
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        return kubeconfig.load([Path(file.name)]).detached()


async def _pods(
    client: Client, connection: Connection, namespace: str, run: str, count: int
) -> tuple[list[float], list[float]]:
    """Start pods on both sides in turns; return the seconds until each runs, direct and mirrored."""
    direct: list[float] = []
    mirrored: list[float] = []
    async with AsyncExitStack() as stack:
        inside = await stack.enter_async_context(Client(connection, max_connections=4))
        # The first of each side opens connections and creates the node inside; it does not count.
        for number in range(count + 1):
            direct.append(await _started(client, namespace, f"direct-{number}", run))
            mirrored.append(await _started(inside, "default", f"inside-{number}", run))
    return direct[1:], mirrored[1:]


async def _started(client: Client, namespace: str, name: str, run: str) -> float:
    path = wire.path(Pod.resource, namespace)
    meta = {"name": name, "namespace": namespace, "labels": {RUN_LABEL: run}}
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": _POD})
    selectors = {"fieldSelector": f"metadata.name={name},metadata.namespace={namespace},status.phase=Running"}
    waiting = first_seen(client, Pod, {f"{namespace}/{name}"}, lambda _: True, selectors, "running", RUN_SECONDS)
    async with in_background(waiting) as seen:
        began = time.perf_counter()
        await client.request("POST", path, body=body)
        took = next(iter((await seen).values())) - began
    await client.request("DELETE", wire.path(Pod.resource, namespace, name))
    return took

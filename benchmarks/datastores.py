"""Create DedicatedClusters without nodes one after the other, by datastore, and measure their control planes.

    .venv/bin/python benchmarks/datastores.py --count 5 --kinds SQLite OwnEtcd

Starts a throwaway local cluster of its own, and deletes it. Prints JSON for each kind: the median seconds from the POST
until the kubeconfig of the owners answers, and CPU seconds of the processes of the control plane and of the operator
until then; for the last one, its memory (PSS) and millicores at rest, and its memory with 2,000 ConfigMaps of 1 kB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import ClusterControlPlane, DedicatedCluster, DedicatedClusterSpec
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.model import Json, ObjectMeta, Resource
from tenantry.api.virtualcontrolplane import DatastoreKind, PlaneDatastore, VirtualControlPlane
from tenantry.bench.load import RUN_LABEL, create_tenants, first_seen, new_run, new_tenant, post, saturate
from tenantry.bench.planes.processes import process_cost
from tenantry.bench.planes.run import connection_of
from tenantry.cli.local.up import guard, install
from tenantry.engine.conditions import is_true
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.components import OPERATOR
from tenantry.local.progress import StreamProgress

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
OBJECTS = 2000
DATA = {"text": "x" * 1000}
READY_SECONDS = 120.0
REST_SECONDS, IDLE_SECONDS = 30.0, 60.0
QUOTA = {"cpu": "4000", "memory": "16000Gi", "pods": "20000"}


class Datastore(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one kind: medians of the clusters, and the memory of the last one in MiB by process."""

    kind: str
    answer_seconds: float
    answers: list[float]
    plane_cpu_seconds: float
    operator_cpu_seconds: float
    idle_mib: dict[str, float]
    idle_millicores: float
    loaded_mib: dict[str, float]
    load: float


async def measure(cluster: LocalCluster, kind: DatastoreKind, count: int) -> Datastore:
    """Create clusters of one kind, and return the result."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path]), max_connections=16) as client:
        run = new_run()
        tenant = f"store-{kind.lower()}-{run}"
        await create_tenants(client, [new_tenant(tenant, run, quota=QUOTA)])
        answers: list[float] = []
        planes: list[float] = []
        operators: list[float] = []
        name = "prod"
        for number in range(count):
            if number:
                await _delete(client, cluster, tenant, name)
            before = process_cost(_pids(cluster, OPERATOR)[OPERATOR]).cpu_seconds
            began = time.perf_counter()
            await client.create(_cluster(tenant, name, run, kind))
            await _answered(client, tenant, name)
            answers.append(round(time.perf_counter() - began, 2))
            planes.append(_cpu(cluster, f"{tenant}.{name}"))
            operators.append(process_cost(_pids(cluster, OPERATOR)[OPERATOR]).cpu_seconds - before)
        await asyncio.sleep(REST_SECONDS)
        idle, spent = _memory(cluster, f"{tenant}.{name}"), _cpu(cluster, f"{tenant}.{name}")
        await asyncio.sleep(IDLE_SECONDS)
        spent = _cpu(cluster, f"{tenant}.{name}") - spent
        async with Client(await connection_of(client, tenant, name), max_connections=16) as user:

            async def fill(number: int) -> None:
                value: Json = {
                    "metadata": {"name": f"fill-{number}", "namespace": "default"},
                    "data": {"a": "x" * 1000},
                }
                await post(user, CONFIG_MAPS, value)

            await saturate(fill, range(OBJECTS), connections=8)
        await asyncio.sleep(REST_SECONDS)
        loaded = _memory(cluster, f"{tenant}.{name}")
        await _delete(client, cluster, tenant, name)
    return Datastore(
        kind=kind.value,
        answer_seconds=statistics.median(answers),
        answers=answers,
        plane_cpu_seconds=round(statistics.median(planes), 2),
        operator_cpu_seconds=round(statistics.median(operators), 2),
        idle_mib=idle,
        idle_millicores=round(spent / IDLE_SECONDS * 1000, 1),
        loaded_mib=loaded,
        load=round(os.getloadavg()[0], 1),
    )


def _cluster(tenant: str, name: str, run: str, kind: DatastoreKind) -> DedicatedCluster:
    plane = ClusterControlPlane(datastore=PlaneDatastore(kind=kind))
    return DedicatedCluster(
        metadata=ObjectMeta(name=name, namespace=tenant, labels={RUN_LABEL: run}),
        spec=DedicatedClusterSpec(nodes=0, control_plane=plane),
    )


def _is_ready(found: VirtualControlPlane) -> bool:
    return is_true(found.status.conditions, reasons.READY)


async def _answered(client: Client, tenant: str, name: str) -> None:
    only = {"fieldSelector": f"metadata.namespace={tenant},metadata.name={name}"}
    await first_seen(client, VirtualControlPlane, {f"{tenant}/{name}"}, _is_ready, only, "Ready", READY_SECONDS)
    connection = await connection_of(client, tenant, name)
    async with Client(connection) as user:
        while True:
            try:
                await user.request("GET", wire.path(CONFIG_MAPS, "default"))
            except (Forbidden, NotFound):
                await asyncio.sleep(0.02)
            else:
                return


async def _delete(client: Client, cluster: LocalCluster, tenant: str, name: str) -> None:
    await client.delete(DedicatedCluster.resource, tenant, name)
    while _pids(cluster, f"{tenant}.{name}"):  # noqa: ASYNC110 - the state of the supervisor is a file
        await asyncio.sleep(0.2)
    await asyncio.sleep(1)


def _pids(cluster: LocalCluster, name: str) -> dict[str, int]:
    """Return the processes of the operator or of a control plane: hosted@NAME, and the etcd and so on of that name."""
    return {
        each.name: each.pid
        for each in cluster.status().components
        if each.pid and (each.name == name or each.name.partition("@")[2].startswith(name))
    }


def _cpu(cluster: LocalCluster, name: str) -> float:
    return sum(process_cost(pid).cpu_seconds for pid in _pids(cluster, name).values())


def _memory(cluster: LocalCluster, name: str) -> dict[str, float]:
    found = {each.partition("@")[0]: _pss(pid) for each, pid in _pids(cluster, name).items()}
    return {**found, "all": round(sum(found.values()), 1)}


def _pss(pid: int) -> float:
    """Return the proportional memory of a process in MiB; proc_pid_smaps(5)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024, 1)


async def main(count: int, kinds: list[DatastoreKind]) -> None:
    """Run the benchmark in a cluster of its own."""
    async with AsyncExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenantry-datastores-")))
        cluster = LocalCluster("stores", root=root)
        stack.push_async_callback(cluster.down, purge=True)
        # Not throwaway: etcd would leave out what it must do on other clusters.
        options = UpOptions(throwaway=False, operator=True, install=install, guard=guard, timeout_seconds=300.0)
        with StreamProgress() as progress:
            await cluster.up(options, progress)
        for kind in kinds:
            result = await measure(cluster, kind, count)
            sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
            sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5, help="Number of clusters of each kind.")
    parser.add_argument(
        "--kinds", nargs="+", type=DatastoreKind, default=[DatastoreKind.SQLITE, DatastoreKind.OWN_ETCD]
    )
    given = parser.parse_args()
    asyncio.run(main(given.count, given.kinds))

"""Create many DedicatedClusters with one simulated node each at once, and measure the operator beside them.

    .venv/bin/python benchmarks/clusters.py --clusters 10

Starts a throwaway local cluster of its own, and deletes it. Prints JSON: seconds from the first POST until the last
cluster is Ready, CPU seconds of the operator, of all hosted processes and of the host meanwhile, and the resident
memory of the operator before, and at rest afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import ObjectMeta
from tenantry.bench.load import RUN_LABEL, create_tenants, first_seen, new_run, new_tenant, of_run, saturate
from tenantry.bench.planes.processes import process_cost
from tenantry.cli.local.up import guard, install
from tenantry.engine.conditions import is_true
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.components import OPERATOR
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import StreamProgress

A_TENANT = 5
"""Clusters of one tenant; more would meet the standard limits of what a namespace may have."""

READY_SECONDS = 600.0
REST_SECONDS = 20.0
QUOTA = {"cpu": "4000", "memory": "16000Gi", "pods": "20000"}


class Clusters(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        ready_seconds: From the first POST until each cluster is Ready, the first and the last.
        cpu_seconds: Of the operator, of hosted processes and of the host's, from the first POST to the last Ready.
        operator_mib: Resident memory of the operator before.
        operator_added_mib: What it has more at rest, for each cluster.
        load: The load average of the machine at the start and at the end.
    """

    clusters: int
    ready_seconds: tuple[float, float]
    cpu_seconds: dict[str, float]
    operator_mib: float
    operator_added_mib: float
    load: tuple[float, float]


async def measure(cluster: LocalCluster, count: int) -> Clusters:
    """Create the clusters, and return the result."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path]), max_connections=32) as client:
        run = new_run()
        tenants = [f"many-{run}-{number}" for number in range(-(-count // A_TENANT))]
        await create_tenants(client, [new_tenant(name, run, quota=QUOTA) for name in tenants])
        found = [
            DedicatedCluster(
                metadata=ObjectMeta(
                    name=f"c{number}", namespace=tenants[number % len(tenants)], labels={RUN_LABEL: run}
                )
            )
            for number in range(count)
        ]
        load, before, memory = os.getloadavg()[0], _cpu(cluster), _rss(cluster)
        keys = {each.key for each in found}
        began = time.perf_counter()
        ready = asyncio.create_task(
            first_seen(client, DedicatedCluster, keys, _is_ready, of_run(run), "Ready", READY_SECONDS)
        )
        await saturate(client.create, found, connections=16)
        seen = sorted(at - began for at in (await ready).values())
        after = _cpu(cluster)
        await asyncio.sleep(REST_SECONDS)
        added = (_rss(cluster) - memory) / count
    return Clusters(
        clusters=count,
        ready_seconds=(round(seen[0], 1), round(seen[-1], 1)),
        cpu_seconds={name: round(after[name] - before.get(name, 0.0), 1) for name in sorted(after)},
        operator_mib=round(memory, 1),
        operator_added_mib=round(added, 2),
        load=(round(load, 1), round(os.getloadavg()[0], 1)),
    )


def _is_ready(found: DedicatedCluster) -> bool:
    return is_true(found.status.conditions, reasons.READY)


def _cpu(cluster: LocalCluster) -> dict[str, float]:
    sums: dict[str, float] = {}
    for each in cluster.status().components:
        if each.pid:
            name = each.name.partition("@")[0] if "@" in each.name else each.name
            sums[name] = sums.get(name, 0.0) + process_cost(each.pid).cpu_seconds
    return sums


def _rss(cluster: LocalCluster) -> float:
    """Return the resident memory of the operator in MiB; proc_pid_status(5)."""
    pid = next(each.pid for each in cluster.status().components if each.name == OPERATOR)
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


async def main(count: int) -> None:
    """Run the benchmark in a cluster of its own."""
    async with AsyncExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenantry-clusters-")))
        cluster = LocalCluster("many", root=root)
        stack.push_async_callback(cluster.down, purge=True)
        nodes = NodePlan(groups=(NodeGroup(name="w", count=count + 2),))
        options = UpOptions(
            throwaway=True, operator=True, install=install, guard=guard, nodes=nodes, timeout_seconds=300.0
        )
        with StreamProgress() as progress:
            await cluster.up(options, progress)
        result = await measure(cluster, count)
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=10, help="Number of clusters.")
    asyncio.run(main(parser.parse_args().clusters))

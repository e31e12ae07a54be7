"""Compare the first thousand tenants with the last one, next to raw writes, and restart with all of them.

    .venv/bin/python benchmarks/scale.py --tenants 10000

Starts two throwaway clusters of its own, one after the other (with the operator, then without), and deletes both.
Prints JSON: seconds for each thousand on both sides; for the restart the seconds until the caches are in step, and the
writes until the queue is empty; what a scrape of /metrics costs. Takes about ten minutes for 10,000 tenants on two
cores.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import aiohttp
import msgspec
import uvloop

from tenantry.api.kubernetes import Namespace
from tenantry.bench.establish import create, write_alone
from tenantry.bench.hold import leading_operator
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster

BLOCK = 1000
MIB = 1024 * 1024
SCRAPES = 30
SCRAPE_INTERVAL_SECONDS = 30
"""The interval of Prometheus for which the share of a processor is given."""


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of the operator.

    Args:
        rss_mib: After all tenants were made.
        restarted_rss_mib: After the restart.
        restart_seconds: From starting its process until its caches are in step.
        settled_seconds: From there until every tenant was looked at.
        restart_writes: Requests other than GET that it sent until then.
    """

    rss_mib: float
    restarted_rss_mib: float
    restart_seconds: float
    settled_seconds: float
    restart_writes: int


class Scrapes(msgspec.Struct, frozen=True, kw_only=True):
    """What /metrics costs, series of tenants included.

    Args:
        p50_milliseconds: The median of one scrape.
        longest_milliseconds: The longest scrape.
        mib: The size of the page.
        cpu_percent: Share of one processor with a scrape every 30 s.
    """

    p50_milliseconds: float
    longest_milliseconds: float
    mib: float
    cpu_percent: float


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        established_seconds: For each thousand, until all are Ready.
        raw_seconds: For each thousand, the same objects written with no operator.
        established_growth: The last thousand's seconds by the first's.
        raw_growth: The same for raw writes.
        operator: The operator itself.
        scrapes: Scrapes of its metrics.
    """

    tenants: int
    established_seconds: list[float]
    raw_seconds: list[float]
    established_growth: float
    raw_growth: float
    operator: Operator
    scrapes: Scrapes


def say(text: str) -> None:
    """Print the progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def blocks(tenants: int) -> list[list[str]]:
    """Return the tenants' names in blocks of a thousand."""
    names = [f"scale-{number}" for number in range(tenants)]
    return [names[at : at + BLOCK] for at in range(0, tenants, BLOCK)]


async def metrics(cluster: LocalCluster) -> dict[str, float]:
    """Return the operator's metrics by name and labels."""
    url = f"http://127.0.0.1:{cluster.spec().ports.operator}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        lines = (await response.text()).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


async def scraped(cluster: LocalCluster) -> Scrapes:
    """Scrape /metrics of an operator that has nothing else to do."""
    url = f"http://127.0.0.1:{cluster.spec().ports.operator}/metrics"
    before = (await metrics(cluster))["process_cpu_seconds_total"]
    seconds: list[float] = []
    size = 0
    async with aiohttp.ClientSession() as session:
        for _ in range(SCRAPES):
            began = time.perf_counter()
            async with session.get(url) as response:
                size = len(await response.read())
            seconds.append(time.perf_counter() - began)
    # The page that ends the measurement is a scrape, too, and its own CPU is not in it.
    used = (await metrics(cluster))["process_cpu_seconds_total"] - before
    return Scrapes(
        p50_milliseconds=round(1000 * statistics.median(seconds), 1),
        longest_milliseconds=round(1000 * max(seconds), 1),
        mib=round(size / MIB, 2),
        cpu_percent=round(100 * used / SCRAPES / SCRAPE_INTERVAL_SECONDS, 2),
    )


async def with_operator(cluster: LocalCluster, tenants: int) -> tuple[list[float], Operator, Scrapes]:
    """Create the tenants a thousand at a time, restart the operator, and return the seconds and the other figures."""
    seconds: list[float] = []
    async with Client(kubeconfig.load([cluster.kubeconfig_path]), field_manager="tenantry-bench") as client:
        await leading_operator(client)
        await create(client, "warm", ["scale-warm"])
        for names in blocks(tenants):
            seconds.append(round((await create(client, names[0], names)).seconds, 2))
            say(f"established: {names[-1]} after {seconds[-1]} s")
    rss = (await metrics(cluster))["process_resident_memory_bytes"] / MIB
    await cluster.stop_component("operator")
    began = time.perf_counter()
    await cluster.start_component("operator", timeout_seconds=120)
    # /metrics and /readyz cannot be watched, only asked again.
    while not await leads(cluster):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    in_step = time.perf_counter() - began
    while looked_at(now := await metrics(cluster)) < tenants:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    settled = time.perf_counter() - began - in_step
    writes = sum(
        value for name, value in now.items() if name.startswith("rest_client_requests_total") and '"GET"' not in name
    )
    made = Operator(
        rss_mib=round(rss, 1),
        restarted_rss_mib=round(now["process_resident_memory_bytes"] / MIB, 1),
        restart_seconds=round(in_step, 2),
        settled_seconds=round(settled, 2),
        restart_writes=int(writes),
    )
    return seconds, made, await scraped(cluster)


def looked_at(now: dict[str, float]) -> float:
    """Return how many tenants were reconciled."""
    labels = ('controller="tenant"', 'result="success"')
    counted = (each for each in now if each.startswith("controller_runtime_reconcile_total{"))
    return sum(now[each] for each in counted if all(label in each for label in labels))


async def leads(cluster: LocalCluster) -> bool:
    """Return whether the operator leads and its caches are in step."""
    if not (await metrics(cluster)).get('leader_election_master_status{name="tenantry-operator"}'):
        return False
    url = f"http://127.0.0.1:{cluster.spec().ports.operator}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.ok


async def alone(cluster: LocalCluster, tenants: int) -> list[float]:
    """Write the same objects a thousand tenants at a time."""
    seconds: list[float] = []
    async with Client(kubeconfig.load([cluster.kubeconfig_path]), field_manager="tenantry-bench") as client:
        uid = (await client.get(Namespace, "kube-system")).metadata.uid
        for names in blocks(tenants):
            seconds.append(round(await write_alone(client, names[0], names, uid), 2))
            say(f"raw: {names[-1]} after {seconds[-1]} s")
    return seconds


@contextmanager
def cluster(name: str, *flags: str) -> Generator[LocalCluster]:
    """Run a throwaway cluster while the context is open."""
    command = [sys.executable, "-m", "tenantry"]
    subprocess.run([*command, "up", "--cluster", name, "--throwaway", *flags], check=True)
    try:
        yield LocalCluster(name)
    finally:
        subprocess.run([*command, "down", "--cluster", name, "--purge", "--yes"], check=True)


def main(tenants: int) -> Scale:
    """Run both sides."""
    with cluster("scale") as established_cluster:
        established, operator, scrapes = uvloop.run(with_operator(established_cluster, tenants))
    with cluster("scale-raw", "--no-operator") as raw_cluster:
        raw = uvloop.run(alone(raw_cluster, tenants))
    return Scale(
        tenants=tenants,
        established_seconds=established,
        raw_seconds=raw,
        established_growth=round(established[-1] / established[0], 2),
        raw_growth=round(raw[-1] / raw[0], 2),
        operator=operator,
        scrapes=scrapes,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=10_000, help="a multiple of 1000")
    print(msgspec.json.encode(main(parser.parse_args().tenants)).decode())

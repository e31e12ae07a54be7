"""How fast the operator establishes tenants, beside how fast the same objects can be written without an operator.

    round:  operator leads ─► POST N Tenants ─► watch until all are Ready ─► delete, wait until gone
            we hold its lease ─► POST the same objects ourselves ─► delete, wait until gone

Both sides use the same HTTP client, connections and credentials, in interleaved rounds. The ratio of their medians is
what the operator adds, whatever load the machine has.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject
from tenantry.api.tenant import Tenant
from tenantry.bench.figures import median, median_of, percentile
from tenantry.bench.hold import held_operator, leading_operator
from tenantry.bench.load import Progress, clean_up, new_run, new_tenant, saturate, tenants_ready
from tenantry.bench.probe import OperatorMetrics, ProcessUsage, measured
from tenantry.controllers.tenant.desired import children
from tenantry.engine.tasks import in_background
from tenantry.kube.client import Client

QUOTA = {"cpu": "4", "memory": "8Gi", "pods": "100"}


class Latency(msgspec.Struct, frozen=True):
    """Seconds from a Tenant's POST until it was seen Ready."""

    p50: float
    p95: float
    max: float


class EstablishResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result: seconds are medians over the rounds.

    Args:
        tenants: How many tenants each round created.
        rounds: How many rounds there were.
        established_seconds: From the first POST until the last tenant was Ready.
        raw_seconds: To write the same objects without an operator.
        ratio: raw_seconds / established_seconds; 1 is as fast as writing alone.
        tenants_per_second: tenants / established_seconds.
        latency_seconds: Latencies of the median round.
        objects_per_tenant: The Tenant and its children.
        operator_cpu_seconds: CPU time of the operator in a round; null if its metrics cannot be read.
        operator_rss_mib: The operator's largest resident memory after a round; null if it cannot be read.
        deleted_seconds: From the first DELETE until the last namespace of an established round was gone.
    """

    tenants: int
    rounds: int
    established_seconds: float
    raw_seconds: float
    ratio: float
    tenants_per_second: float
    latency_seconds: Latency
    objects_per_tenant: int
    operator_cpu_seconds: float | None
    operator_rss_mib: float | None
    deleted_seconds: float


class Established(msgspec.Struct, frozen=True):
    """Tenants that were created and are Ready.

    Args:
        seconds: From the first POST until the last was seen Ready.
        latencies: For each tenant, from its own POST.
    """

    seconds: float
    latencies: list[float]


class _Round(msgspec.Struct, frozen=True):
    established: Established
    usage: ProcessUsage | None
    deleted_seconds: float


async def establish(  # noqa: PLR0917 - the flags of the command
    client: Client,
    tenants: int,
    spread_seconds: float,
    rounds: int,
    metrics: OperatorMetrics | None,
    progress: Progress,
) -> EstablishResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client, with `load.POOL` connections.
        tenants: How many tenants to create in each round.
        spread_seconds: Seconds over which to spread their creation; 0 creates all at once.
        rounds: How many times each side is measured.
        metrics: The operator's metrics; None if they cannot be read.
        progress: Receives a line after each step.

    Raises:
        RetryableError: The tenants are not Ready, or not gone, in time.
    """
    cluster_uid = (await client.get(Namespace, "kube-system")).metadata.uid
    run = new_run()
    per_tenant = 1 + len(children(_tenant("bench-0", run), cluster_uid))
    names = [f"bench-{run}-{number}" for number in range(tenants)]
    done: list[_Round] = []
    raw: list[float] = []
    try:
        for number in range(1, rounds + 1):
            await leading_operator(client)
            # One tenant first: caches are in step then, and connections are open on all sides.
            await create(client, run, [f"bench-{run}-warm"])
            await clean_up(client, run)
            established, usage = await measured(metrics, create(client, run, names, spread_seconds=spread_seconds))
            done.append(_Round(established, usage, await clean_up(client, run)))
            deleted = f"gone in {done[-1].deleted_seconds:.1f} s"
            progress(f"{number}/{rounds}: {tenants} Ready in {established.seconds:.2f} s, {deleted}")
            async with held_operator(client):
                raw.append(await write_alone(client, run, names, cluster_uid))
                await clean_up(client, run)
            progress(f"{number}/{rounds}: the same {tenants * per_tenant} objects written alone in {raw[-1]:.2f} s")
    finally:
        await clean_up(client, run)
    middle = sorted(done, key=lambda each: each.established.seconds)[len(done) // 2].established.latencies
    usages = [each.usage for each in done if each.usage is not None]
    seconds, raw_seconds = median((each.established.seconds for each in done), 9), median(raw, 9)
    return EstablishResult(
        tenants=tenants,
        rounds=rounds,
        established_seconds=round(seconds, 3),
        raw_seconds=round(raw_seconds, 3),
        ratio=round(raw_seconds / seconds, 3),
        tenants_per_second=round(tenants / seconds, 1),
        latency_seconds=Latency(percentile(middle, 0.5), percentile(middle, 0.95), percentile(middle, 1)),
        objects_per_tenant=per_tenant,
        operator_cpu_seconds=median_of(usages, lambda each: each.cpu_seconds) if usages else None,
        operator_rss_mib=round(max(each.rss_mib for each in usages), 1) if usages else None,
        deleted_seconds=median_of(done, lambda each: each.deleted_seconds, 1),
    )


def _tenant(name: str, run: str) -> Tenant:
    return new_tenant(name, run, quota=QUOTA)


async def create(client: Client, run: str, names: Sequence[str], *, spread_seconds: float = 0.0) -> Established:
    """Create tenants, at once or spread evenly, and wait until an operator has made all of them Ready.

    Raises:
        RetryableError: They are not Ready in time.
    """
    posted: dict[str, float] = {}
    tenants = [_tenant(name, run) for name in names]
    async with in_background(tenants_ready(client, tenants)) as ready:
        began = time.perf_counter()

        async def post(number: int) -> None:
            if spread_seconds:
                await asyncio.sleep(max(0.0, began + spread_seconds * number / len(names) - time.perf_counter()))
            posted[names[number]] = time.perf_counter()
            await client.create(tenants[number])

        await saturate(post, range(len(names)))
        seen = await ready
    return Established(max(seen.values()) - began, [seen[name] - posted[name] for name in names])


async def write_alone(client: Client, run: str, names: Sequence[str], cluster_uid: str) -> float:
    """Write tenants and their children as fast as the client can, and return the seconds spent writing.

    Preparing the objects is not counted.
    """
    made: list[Tenant] = []

    async def post(name: str) -> None:
        made.append(client.decode(Tenant, await client.create(_tenant(name, run))))

    seconds = await saturate(post, names)
    everything = [child for tenant in made for child in children(tenant, cluster_uid)]
    for wave in sorted({child.wave for child in everything}):
        objects: list[KubernetesObject] = [child.object for child in everything if child.wave == wave]
        seconds += await saturate(client.create, objects)
    return seconds

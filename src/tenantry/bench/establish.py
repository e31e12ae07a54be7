"""How fast tenants are made, beside how fast the very same objects can be written with no operator at all.

    round:  operator leads ─► POST N Tenants ─► watch until all are Ready ─► delete, wait until gone
            we hold its lease ─► POST the same objects ourselves ─► delete, wait until gone

Both sides use the same HTTP client, connections and credentials, in interleaved rounds, so that the ratio of their
medians says what the operator adds, whatever the machine is doing.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.bench.hold import held_operator, leading_operator
from tenantry.bench.load import ask, clean_up, tenant_named, write_alone
from tenantry.bench.probe import Probe, Usage
from tenantry.controllers.tenant.desired import children
from tenantry.kube.client import Client

Talk = Callable[[str], None]


class Latency(msgspec.Struct, frozen=True):
    """Seconds from a Tenant's POST until it was seen Ready."""

    p50: float
    p95: float
    max: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; seconds, medians over the rounds.

    Args:
        tenants: How many were asked for in each round.
        rounds: How many rounds there were.
        established_seconds: From the first POST until the last tenant was Ready.
        raw_seconds: To write the same objects with no operator.
        ratio: raw_seconds / established_seconds; 1 is as fast as writing itself.
        tenants_per_second: tenants / established_seconds.
        latency_seconds: Of the round in the middle.
        objects_per_tenant: The Tenant and what it is made of.
        operator_cpu_seconds: What the operator's process used for a round; null where its metrics cannot be read.
        operator_rss_mib: Its largest resident memory after a round; null likewise.
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


class _Round(msgspec.Struct, frozen=True):
    seconds: float
    latencies: list[float]
    usage: Usage | None
    deleted_seconds: float


async def establish(
    client: Client, *, tenants: int, spread_seconds: float, rounds: int, probe: Probe | None, talk: Talk
) -> Result:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's, with `load.CONNECTIONS` connections.
        tenants: How many to make in each round.
        spread_seconds: Over how many seconds to ask for them; 0 asks for all at once.
        rounds: How many times each side is measured.
        probe: Reads the operator's CPU and memory; None where its metrics cannot be reached.
        talk: Told what happens, for a person.

    Raises:
        RetryableError: The tenants do not become ready, or do not go away, in time.
    """
    cluster_uid = (await client.get(Namespace, "kube-system")).metadata.uid
    run = f"{int(time.time()):x}"
    per_tenant = 1 + len(children(tenant_named("bench-0", run), cluster_uid))
    names = [f"bench-{run}-{number}" for number in range(tenants)]
    established: list[_Round] = []
    raw: list[float] = []
    try:
        for number in range(1, rounds + 1):
            await leading_operator(client)
            await _warm_up(client, run)
            done = await _established_round(client, run, names, spread_seconds, probe)
            established.append(done)
            talk(f"{number}/{rounds}: {tenants} Ready in {done.seconds:.2f} s, gone in {done.deleted_seconds:.1f} s")
            async with held_operator(client):
                seconds = await write_alone(client, run, names, cluster_uid)
                await clean_up(client, run)
            raw.append(seconds)
            talk(f"{number}/{rounds}: the same {tenants * per_tenant} objects written alone in {seconds:.2f} s")
    finally:
        await asyncio.shield(clean_up(client, run))
    middle = sorted(established, key=lambda done: done.seconds)[len(established) // 2]
    usages = [done.usage for done in established if done.usage is not None]
    established_seconds = statistics.median(done.seconds for done in established)
    raw_seconds = statistics.median(raw)
    return Result(
        tenants=tenants,
        rounds=rounds,
        established_seconds=round(established_seconds, 3),
        raw_seconds=round(raw_seconds, 3),
        ratio=round(raw_seconds / established_seconds, 3),
        tenants_per_second=round(tenants / established_seconds, 1),
        latency_seconds=_latency(middle.latencies),
        objects_per_tenant=per_tenant,
        operator_cpu_seconds=round(statistics.median(u.cpu_seconds for u in usages), 3) if usages else None,
        operator_rss_mib=round(max(u.rss_mib for u in usages), 1) if usages else None,
        deleted_seconds=round(statistics.median(done.deleted_seconds for done in established), 1),
    )


def _latency(seconds: list[float]) -> Latency:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    return Latency(p50=at(0.5), p95=at(0.95), max=round(ordered[-1], 3))


async def _warm_up(client: Client, run: str) -> None:
    """Make one tenant, so that caches are in step and connections are open on all sides."""
    await ask(client, run, [f"bench-{run}-warm"])
    await clean_up(client, run)


async def _established_round(
    client: Client, run: str, names: Sequence[str], spread_seconds: float, probe: Probe | None
) -> _Round:
    before = await probe.read() if probe is not None else None
    asked = await ask(client, run, names, spread_seconds=spread_seconds)
    after = await probe.read() if probe is not None else None
    return _Round(
        seconds=asked.seconds,
        latencies=asked.latencies,
        usage=after.since(before) if before is not None and after is not None else None,
        deleted_seconds=await clean_up(client, run),
    )

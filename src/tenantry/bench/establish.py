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
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import Gone, NotFound, RetryableError, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject, ObjectMeta
from tenantry.api.tenant import Owner, OwnerKind, Quota, Tenant, TenantSpec
from tenantry.bench.hold import held_operator, leading_operator
from tenantry.bench.probe import Probe, Usage
from tenantry.controllers.tenant.desired import children
from tenantry.engine.conditions import is_true
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch

T = TypeVar("T")

CONNECTIONS = 64
READY_SECONDS = 600.0
GONE_SECONDS = 1800.0
RUN_LABEL = "tenantry-bench"
"""On every Tenant of a run, with the run's id; not one of Tenantry's own marks."""

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
        client: An administrator's, with `CONNECTIONS` connections.
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
    per_tenant = 1 + len(children(_tenant("bench-0", run), cluster_uid))
    established: list[_Round] = []
    raw: list[float] = []
    try:
        for number in range(1, rounds + 1):
            await leading_operator(client)
            await _warm_up(client, run)
            done = await _established_round(client, run, tenants, spread_seconds, probe)
            established.append(done)
            talk(f"{number}/{rounds}: {tenants} Ready in {done.seconds:.2f} s, gone in {done.deleted_seconds:.1f} s")
            async with held_operator(client):
                seconds = await _raw_round(client, run, tenants, cluster_uid)
                await _clean_up(client, run)
            raw.append(seconds)
            talk(f"{number}/{rounds}: the same {tenants * per_tenant} objects written alone in {seconds:.2f} s")
    finally:
        await asyncio.shield(_clean_up(client, run))
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


def _tenant(name: str, run: str) -> Tenant:
    return Tenant(
        metadata=ObjectMeta(name=name, labels={RUN_LABEL: run}),
        spec=TenantSpec(
            owners=(Owner(kind=OwnerKind.USER, name="bench"),),
            quota=Quota(hard={"cpu": "4", "memory": "8Gi", "pods": "100"}),
        ),
    )


def _selector(run: str) -> dict[str, str]:
    return {"labelSelector": f"{RUN_LABEL}={run}"}


# -- the operator's side --------------------------------------------------------------------------


async def _warm_up(client: Client, run: str) -> None:
    """Make one tenant, so that caches are in step and connections are open on all sides."""
    name = f"bench-{run}-warm"
    async with _ready_times(client, run) as ready:
        await client.create(_tenant(name, run))
        await ready.wait_for([name])
    await _clean_up(client, run)


async def _established_round(
    client: Client, run: str, count: int, spread_seconds: float, probe: Probe | None
) -> _Round:
    names = [f"bench-{run}-{number}" for number in range(count)]
    asked: dict[str, float] = {}
    before = await probe.read() if probe is not None else None
    async with _ready_times(client, run) as ready:
        began = time.perf_counter()

        async def ask(number: int) -> None:
            if spread_seconds:
                await asyncio.sleep(max(0.0, began + spread_seconds * number / count - time.perf_counter()))
            asked[names[number]] = time.perf_counter()
            await client.create(_tenant(names[number], run))

        await _saturate(ask, range(count))
        times = await ready.wait_for(names)
    seconds = max(times.values()) - began
    after = await probe.read() if probe is not None else None
    deleted_seconds = await _clean_up(client, run)
    return _Round(
        seconds=seconds,
        latencies=[times[name] - asked[name] for name in names],
        usage=after.since(before) if before is not None and after is not None else None,
        deleted_seconds=deleted_seconds,
    )


class _ReadyTimes:
    """When each tenant was first seen Ready."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.changed = asyncio.Event()

    async def wait_for(self, names: list[str]) -> dict[str, float]:
        """Return the times, once all are there."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                while any(name not in self.times for name in names):
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError as error:
            missing = [name for name in names if name not in self.times]
            raise RetryableError(
                f"{len(missing)} of {len(names)} tenants are not Ready after {READY_SECONDS:.0f} s, {missing[0]!r}"
                " is one; see `tenantry describe tenant` and the operator's log"
            ) from error
        return self.times


@asynccontextmanager
async def _ready_times(client: Client, run: str) -> AsyncGenerator[_ReadyTimes]:
    ready = _ReadyTimes()
    version = ""
    async for page in client.pages(Tenant.resource, msgspec.Raw, selectors=_selector(run)):
        version = page.metadata.resource_version
    task = asyncio.create_task(_follow(client, run, version, ready))
    try:
        yield ready
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _follow(client: Client, run: str, version: str, ready: _ReadyTimes) -> None:
    decode = msgspec.json.Decoder(Tenant).decode
    while True:
        try:
            stream = watch(client, Tenant.resource, resource_version=version, selectors=_selector(run))
            async for events in stream:
                now = time.perf_counter()
                for event in events:
                    if event.type not in {EventType.ADDED, EventType.MODIFIED}:
                        continue
                    tenant = decode(event.object)
                    version = tenant.metadata.resource_version
                    if is_true(tenant.status.conditions, reasons.READY):
                        ready.times.setdefault(tenant.metadata.name, now)
                ready.changed.set()
        except Unreachable:
            continue  # the watch goes on from the last version seen


# -- the other side -------------------------------------------------------------------------------


async def _raw_round(client: Client, run: str, count: int, cluster_uid: str) -> float:
    """Write the same objects as fast as the client can; preparing them is not counted."""
    tenants = [_tenant(f"bench-{run}-{number}", run) for number in range(count)]
    made: list[Tenant] = []

    async def make(tenant: Tenant) -> None:
        made.append(msgspec.json.decode(await client.create(tenant), type=Tenant))

    began = time.perf_counter()
    await _saturate(make, tenants)
    seconds = time.perf_counter() - began
    everything = [child for tenant in made for child in children(tenant, cluster_uid)]
    for wave in sorted({child.wave for child in everything}):
        objects: list[KubernetesObject] = [child.object for child in everything if child.wave == wave]
        began = time.perf_counter()
        await _saturate(client.create, objects)
        seconds += time.perf_counter() - began
    return seconds


async def _saturate(write: Callable[[T], Awaitable[object]], items: Iterable[T]) -> None:
    """Keep every connection busy until all items are written."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await write(item)

    await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))


# -- cleaning up ----------------------------------------------------------------------------------


async def _clean_up(client: Client, run: str) -> float:
    """Delete the run's tenants, wait until their namespaces are gone, and return how many seconds that took."""
    began = time.perf_counter()
    names = {tenant.metadata.name for tenant in await client.list(Tenant, selectors=_selector(run))}

    async def delete(name: str) -> None:
        try:
            await client.delete(Tenant.resource, "", name)
        except NotFound:
            return

    await _saturate(delete, names)
    try:
        async with asyncio.timeout(GONE_SECONDS):
            await _wait_until_gone(client, names)
    except TimeoutError as error:
        raise RetryableError(
            f"namespaces of the benchmark are still there after {GONE_SECONDS:.0f} s; they have the label"
            f" {marks.TENANT} with a value beginning bench-{run}"
        ) from error
    return time.perf_counter() - began


async def _wait_until_gone(client: Client, names: set[str]) -> None:
    ours = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}
    while True:
        left: set[str] = set()
        version = ""
        async for page in client.pages(Namespace.resource, Namespace, selectors=ours):
            left |= {found.metadata.name for found in page.items} & names
            version = page.metadata.resource_version
        try:
            if not left:
                return
            async for events in watch(client, Namespace.resource, resource_version=version, selectors=ours):
                for event in events:
                    if event.type is EventType.DELETED:
                        left.discard(msgspec.json.decode(event.object, type=Namespace).metadata.name)
                if not left:
                    return
        except (Gone, Unreachable):
            continue

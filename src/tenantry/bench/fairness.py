"""How a quiet tenant's reads fare while another floods the API server, with our priority level and without (H06).

    round:  in tenantry-tenants:  the quiet one reads alone ─► the other floods, the quiet one reads
            in global-default:    the same, as it would be without Tenantry

Nothing that is in force for others is touched: for its second half a FlowSchema of the benchmark's own sends its two
users, and nobody else, where Kubernetes would have them. It belongs to one of the two tenants and goes with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

import msgspec

from tenantry.api.errors import RetryableError, TooManyRequests
from tenantry.api.flowcontrol import PriorityLevelConfiguration
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import Tenant, TenantSpec
from tenantry.bench.flood import Flood, Flooded
from tenantry.bench.levels import routed, served_at, uid
from tenantry.bench.load import RUN_LABEL, clean_up, ready_times, saturate
from tenantry.bench.objects import CONFIG_MAPS, post
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

Talk = Callable[[str], None]
Issue = Callable[[str], Awaitable[Connection]]
"""From a user's name to its connection."""

OURS = "tenantry-tenants"
KUBERNETES = "global-default"

QUIET_OBJECTS = 10
OBJECT_BYTES = 1000
PAUSE_SECONDS = 0.005
"""Between two reads of the quiet tenant."""

SETTLE_SECONDS = 1.0
"""How long a flood rises before anything is measured."""


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What the quiet tenant's reads took, in seconds: medians over the rounds."""

    p50_seconds: float
    p99_seconds: float
    max_seconds: float


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured at one priority level.

    Args:
        level: Its name.
        alone: With nobody else there.
        flooded: While the other tenant floods.
        ratio: flooded.p99_seconds / alone.p99_seconds, the median over the rounds; 1 is as if nobody flooded.
        exempt_ratio: The same of an administrator's reads in the same time, which wait in no queue: what the flood
            costs by its use of the machine, whatever the queues do.
        flood_per_second: How many requests of the flood were answered.
        flood_refused: How many were turned away with 429, in all rounds.
    """

    level: str
    alone: Reads
    flooded: Reads
    ratio: float
    exempt_ratio: float
    flood_per_second: float
    flood_refused: int


class FairnessResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured.

    Args:
        ratio: Of the p99 of reads, flooded to alone, with Tenantry's level.
        ratio_without: The same without it.
        with_level: All of the first.
        without_level: All of the second.
        connections: Of the flood.
        objects: In each collection that it lists.
        rounds: How many there were.
        seconds: How long each part of a round went on.
    """

    ratio: float
    ratio_without: float
    with_level: Side
    without_level: Side
    connections: int
    objects: int
    rounds: int
    seconds: float


class _Both(msgspec.Struct, frozen=True):
    """Reads of the quiet tenant, and of an administrator in the same time."""

    quiet: Reads
    exempt: Reads


class _Half(msgspec.Struct, frozen=True):
    alone: _Both
    flooded: _Both
    flood: Flooded


async def fairness(
    client: Client, *, issue: Issue, connections: int, objects: int, rounds: int, seconds: float, talk: Talk
) -> FairnessResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's.
        issue: Makes a user's credentials; see `Issue`.
        connections: How many the flood has.
        objects: How many ConfigMaps of `OBJECT_BYTES` it lists.
        rounds: How many times each side is measured.
        seconds: How long each of the four parts of a round goes on.
        talk: Told what happens, for a person.

    Raises:
        RetryableError: The tenants do not become ready, or the level is not in force, in time.
    """
    run = f"{int(time.time()):x}"
    quiet, loud = (f"bench-{run}-{what}" for what in ("quiet", "loud"))
    levels = {name: await uid(client, PriorityLevelConfiguration.resource, name) for name in (OURS, KUBERNETES)}
    halves: dict[str, list[_Half]] = {name: [] for name in levels}
    try:
        await _tenants(client, run, (quiet, loud))
        await _fill(client, quiet, QUIET_OBJECTS)
        await _fill(client, loud, objects)
        loudly = Flood(connection=await issue(loud), namespace=loud, connections=connections)
        async with Client(await issue(quiet), max_connections=1) as reader:
            for number in range(1, rounds + 1):
                for level, level_uid in levels.items():
                    # At Tenantry's own they are served anyway.
                    elsewhere = routed(client, quiet, (quiet, loud), level) if level != OURS else nullcontext()
                    async with elsewhere:
                        await served_at(reader, wire.path(CONFIG_MAPS, quiet), level_uid)
                        half = await _half(reader, client, quiet, loudly, seconds)
                    halves[level].append(half)
                    talk(
                        f"{number}/{rounds}: {level}: p99 {1000 * half.alone.quiet.p99_seconds:.1f} ms alone,"
                        f" {1000 * half.flooded.quiet.p99_seconds:.1f} ms flooded"
                    )
    finally:
        await asyncio.shield(clean_up(client, run))
    ours, theirs = (_side(level, found) for level, found in halves.items())
    return FairnessResult(
        ratio=ours.ratio,
        ratio_without=theirs.ratio,
        with_level=ours,
        without_level=theirs,
        connections=connections,
        objects=objects,
        rounds=rounds,
        seconds=seconds,
    )


def _side(level: str, halves: list[_Half]) -> Side:
    flooded = sum(half.flood.seconds for half in halves)
    ratio = statistics.median(half.flooded.quiet.p99_seconds / half.alone.quiet.p99_seconds for half in halves)
    exempt = statistics.median(half.flooded.exempt.p99_seconds / half.alone.exempt.p99_seconds for half in halves)
    return Side(
        level=level,
        alone=_middle([half.alone.quiet for half in halves]),
        flooded=_middle([half.flooded.quiet for half in halves]),
        ratio=round(ratio, 2),
        exempt_ratio=round(exempt, 2),
        flood_per_second=round(sum(half.flood.answered for half in halves) / flooded, 1),
        flood_refused=sum(half.flood.refused for half in halves),
    )


def _middle(reads: list[Reads]) -> Reads:
    return Reads(
        p50_seconds=statistics.median(each.p50_seconds for each in reads),
        p99_seconds=statistics.median(each.p99_seconds for each in reads),
        max_seconds=max(each.max_seconds for each in reads),
    )


def summary(latencies: list[float]) -> Reads:
    """Return what is told of latencies in seconds, at least one."""
    ordered = sorted(latencies)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 6)

    return Reads(p50_seconds=at(0.5), p99_seconds=at(0.99), max_seconds=round(ordered[-1], 6))


# -- one half of a round --------------------------------------------------------------------------


async def _half(reader: Client, client: Client, namespace: str, flood: Flood, seconds: float) -> _Half:
    alone = await _read(reader, client, namespace, seconds)
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(_flooding(flood))
        await asyncio.sleep(SETTLE_SECONDS)
        flooded = await _read(reader, client, namespace, seconds)
        return _Half(alone, flooded, await _end(process))


async def _read(reader: Client, client: Client, namespace: str, seconds: float) -> _Both:
    """Read one object and the whole collection in turns, each as the tenant and as an administrator."""
    collection = wire.path(CONFIG_MAPS, namespace)
    quiet: list[float] = []
    exempt: list[float] = []
    end = time.perf_counter() + seconds
    while not quiet or time.perf_counter() < end:
        for path in (f"{collection}/c0", collection):
            quiet.append(await _once(reader, path))
            exempt.append(await _once(client, path))
    return _Both(summary(quiet), summary(exempt))


async def _once(reader: Client, path: str) -> float:
    """Return how long a read took, waits after a 429 included."""
    began = time.perf_counter()
    with contextlib.suppress(TooManyRequests):  # it gave up in the end: that it took so long is the result
        await reader.request("GET", path)
    took = time.perf_counter() - began
    await asyncio.sleep(PAUSE_SECONDS)
    return took


@asynccontextmanager
async def _flooding(flood: Flood) -> AsyncGenerator[Process]:
    """Flood while the context is open."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tenantry.bench.flood", stdin=PIPE, stdout=PIPE
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both are pipes")
        process.stdin.write(msgspec.json.encode(flood) + b"\n")
        if not await process.stdout.readline():
            raise RetryableError("the process that floods ended at once; see what it said above")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.shield(process.wait())


async def _end(process: Process) -> Flooded:
    said, _ = await process.communicate(b"")  # with None, Python 3.11 leaves stdin open
    return msgspec.json.decode(said, type=Flooded)


# -- what there is to read ------------------------------------------------------------------------


async def _tenants(client: Client, run: str, names: tuple[str, str]) -> None:
    async with ready_times(client, run) as ready:
        for name in names:
            owner = Owner(kind=OwnerKind.USER, name=name)
            metadata = ObjectMeta(name=name, labels={RUN_LABEL: run})
            await client.create(Tenant(metadata=metadata, spec=TenantSpec(owners=(owner,))))
        await ready.wait_for(names)


async def _fill(client: Client, namespace: str, count: int) -> None:
    async def make(number: int) -> None:
        value = {"metadata": {"name": f"c{number}", "namespace": namespace}, "data": {"text": "x" * OBJECT_BYTES}}
        await post(client, CONFIG_MAPS, value)

    await saturate(make, range(count))

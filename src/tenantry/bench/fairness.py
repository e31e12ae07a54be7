"""How fast a quiet tenant's reads are while another tenant floods the API server, with our priority level and without.

    round:  in tenantry-tenants:  the quiet tenant reads alone ─► the other floods, the quiet tenant reads
            in global-default:    the same, as without Tenantry

Objects in force for others stay untouched: in the second half, a FlowSchema of the benchmark routes its two users to
the level where Kubernetes alone would serve them. One of the two tenants owns it, so it is deleted with the tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import msgspec

from tenantry.api.errors import TooManyRequests
from tenantry.api.flowcontrol import PriorityLevelConfiguration
from tenantry.bench.figures import median_of, percentile
from tenantry.bench.flood import Flood, FloodKind, FloodResult, flooding
from tenantry.bench.levels import routed, served_at, uid
from tenantry.bench.load import Progress, clean_up, create_tenants, new_run, new_tenant, post, saturate
from tenantry.bench.objects import CONFIG_MAPS
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

Issue = Callable[[str], Awaitable[Connection]]
"""From a user's name to the user's connection."""

OURS = "tenantry-tenants"
KUBERNETES = "global-default"

QUIET_OBJECTS = 10
OBJECT_BYTES = 1000
PAUSE_SECONDS = 0.005
"""Between two reads of the quiet tenant."""

SETTLE_SECONDS = 1.0
"""How long a flood runs before anything is measured."""

PROCESS_SECONDS = 60.0
"""How long the flooding process may take to start, and to end."""


class ReadLatency(msgspec.Struct, frozen=True, kw_only=True):
    """The quiet tenant's read latencies in seconds: medians over the rounds."""

    p50_seconds: float
    p99_seconds: float
    max_seconds: float


class LevelResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result at one priority level.

    Args:
        level: The level's name.
        alone: Without a flood.
        flooded: While the other tenant floods.
        ratio: flooded.p99_seconds / alone.p99_seconds, the median over the rounds; 1 is as without a flood.
        exempt_ratio: The same for an administrator's reads at the same time, which wait in no queue: what the flood
            costs by its load on the machine, whatever the queues do.
        flood_per_second: How many requests of the flood succeeded per second.
        flood_refused: How many the server rejected with 429, in all rounds.
    """

    level: str
    alone: ReadLatency
    flooded: ReadLatency
    ratio: float
    exempt_ratio: float
    flood_per_second: float
    flood_refused: int


class FairnessResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        ratio: The p99 of reads, flooded to alone, with Tenantry's level.
        ratio_without: The same without it.
        with_level: The details with Tenantry's level.
        without_level: The details without it.
        connections: How many connections the flood had.
        objects: How many objects each list of the flood returned.
        rounds: How many rounds there were.
        seconds: How long each part of a round lasted.
    """

    ratio: float
    ratio_without: float
    with_level: LevelResult
    without_level: LevelResult
    connections: int
    objects: int
    rounds: int
    seconds: float


class _Part(msgspec.Struct, frozen=True):
    """Read latencies of the quiet tenant, and of an administrator at the same time."""

    quiet: ReadLatency
    exempt: ReadLatency


class _Half(msgspec.Struct, frozen=True):
    alone: _Part
    flooded: _Part
    flood: FloodResult


async def fairness(
    client: Client, *, issue: Issue, connections: int, objects: int, rounds: int, seconds: float, progress: Progress
) -> FairnessResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client.
        issue: Issues a user's credentials; see `Issue`.
        connections: How many connections the flood has.
        objects: How many ConfigMaps of `OBJECT_BYTES` it lists.
        rounds: How many times each level is measured.
        seconds: How long each of the four parts of a round lasts.
        progress: Receives a line after each half of a round.

    Raises:
        RetryableError: The tenants are not Ready, or the level is not in force, in time.
    """
    run = new_run()
    quiet, loud = (f"bench-{run}-{what}" for what in ("quiet", "loud"))
    levels = {name: await uid(client, PriorityLevelConfiguration.resource, name) for name in (OURS, KUBERNETES)}
    halves: dict[str, list[_Half]] = {name: [] for name in levels}
    try:
        await create_tenants(client, [new_tenant(name, run, user=name) for name in (quiet, loud)])
        await _fill(client, quiet, QUIET_OBJECTS)
        await _fill(client, loud, objects)
        kind = FloodKind(path=wire.path(CONFIG_MAPS, loud), value={"apiVersion": "v1", "kind": "ConfigMap"})
        flood = Flood(connection=(await issue(loud)).detached(), kinds=(kind,), connections=connections)
        async with Client(await issue(quiet), max_connections=1) as reader:
            for number in range(1, rounds + 1):
                for level, level_uid in levels.items():
                    # Tenantry's own FlowSchema serves them at its own level already.
                    elsewhere = routed(client, quiet, (quiet, loud), level) if level != OURS else nullcontext()
                    async with elsewhere:
                        await served_at(reader, wire.path(CONFIG_MAPS, quiet), level_uid)
                        half = await _half(reader, client, quiet, flood, seconds)
                    halves[level].append(half)
                    progress(
                        f"{number}/{rounds}: {level}: p99 {1000 * half.alone.quiet.p99_seconds:.1f} ms alone,"
                        f" {1000 * half.flooded.quiet.p99_seconds:.1f} ms flooded"
                    )
    finally:
        await clean_up(client, run)
    ours, theirs = (_result(level, found) for level, found in halves.items())
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


def _result(level: str, halves: list[_Half]) -> LevelResult:
    seconds = sum(half.flood.seconds for half in halves)
    return LevelResult(
        level=level,
        alone=_medians([half.alone.quiet for half in halves]),
        flooded=_medians([half.flooded.quiet for half in halves]),
        ratio=median_of(halves, lambda half: half.flooded.quiet.p99_seconds / half.alone.quiet.p99_seconds, 2),
        exempt_ratio=median_of(halves, lambda half: half.flooded.exempt.p99_seconds / half.alone.exempt.p99_seconds, 2),
        flood_per_second=round(sum(half.flood.answered for half in halves) / seconds, 1),
        flood_refused=sum(half.flood.refused for half in halves),
    )


def _medians(parts: list[ReadLatency]) -> ReadLatency:
    return ReadLatency(
        p50_seconds=median_of(parts, lambda each: each.p50_seconds, 6),
        p99_seconds=median_of(parts, lambda each: each.p99_seconds, 6),
        max_seconds=max(each.max_seconds for each in parts),
    )


def _latency(seconds: list[float]) -> ReadLatency:
    return ReadLatency(
        p50_seconds=percentile(seconds, 0.5, 6), p99_seconds=percentile(seconds, 0.99, 6), max_seconds=max(seconds)
    )


# -- one half of a round --------------------------------------------------------------------------


async def _half(reader: Client, client: Client, namespace: str, flood: Flood, seconds: float) -> _Half:
    alone = await _read(reader, client, namespace, seconds)
    async with flooding(flood) as running:
        await asyncio.sleep(SETTLE_SECONDS)
        flooded = await _read(reader, client, namespace, seconds)
        flooded_by = await running.end()
    return _Half(alone, flooded, flooded_by)


async def _read(reader: Client, client: Client, namespace: str, seconds: float) -> _Part:
    """Read one object and the whole collection in turns, each as the tenant and as an administrator."""
    collection = wire.path(CONFIG_MAPS, namespace)
    quiet: list[float] = []
    exempt: list[float] = []
    end = time.perf_counter() + seconds
    while not quiet or time.perf_counter() < end:
        for path in (f"{collection}/c0", collection):
            quiet.append(await _once(reader, path))
            exempt.append(await _once(client, path))
    return _Part(_latency(quiet), _latency(exempt))


async def _once(reader: Client, path: str) -> float:
    """Return how long a read took, waits after a 429 included."""
    began = time.perf_counter()
    with contextlib.suppress(TooManyRequests):  # the client gave up: the time until then is the result
        await reader.request("GET", path)
    took = time.perf_counter() - began
    await asyncio.sleep(PAUSE_SECONDS)
    return took


async def _fill(client: Client, namespace: str, count: int) -> None:
    async def create(number: int) -> None:
        value = {"metadata": {"name": f"c{number}", "namespace": namespace}, "data": {"text": "x" * OBJECT_BYTES}}
        await post(client, CONFIG_MAPS, value)

    await saturate(create, range(count))

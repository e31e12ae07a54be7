"""How fast claims get their nodes, when many are made at once, and how long a selection takes.

    round:  POST N claims over N/10 tenants ─► until each is Bound or Reserved ─► delete, wait until no node is taken

The claims ask together for all nodes but those that stay everybody's. The oldest claim of a tenant is the one that its
namespace uses, so one in ten is Bound and the others stay Reserved.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress

import msgspec

from tenantry.api.errors import InputError, NotFound
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quantity
from tenantry.api.slice import SliceClaim, SliceClaimSpec, SliceState, Users
from tenantry.api.tenant import Tenant, TenantQuota, TenantSpec
from tenantry.bench.load import GONE_SECONDS, RUN_LABEL, clean_up, ready_times, saturate
from tenantry.bench.objects import deadline, events
from tenantry.controllers.nodes.controller import Node
from tenantry.controllers.slices import desired
from tenantry.controllers.slices.gather import slice_defaults
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType
from tenantry.world.slices.selection import NodeFacts, select

Talk = Callable[[str], None]

CLAIMS_OF_A_TENANT = 10
SETTLE_SECONDS = 600.0
SELECTIONS = 20
PLENTY: dict[str, Quantity] = {"cpu": "100k", "memory": "1Pi", "pods": "1M"}

_HAS_NODES = {SliceState.BOUND, SliceState.RESERVED}


class SlicesResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; medians over the rounds.

    Args:
        settled_seconds: From the first POST until the last claim had its nodes.
        latency_p50_seconds: Of one claim, from its own POST.
        latency_p95_seconds: Likewise.
        released_seconds: From the first DELETE until no node was taken any more.
        selection_milliseconds: To choose a claim's nodes among all nodes, in this process.
        claims: How many at once.
        nodes: How many the claims had together.
        quota: Whether the tenants had a quota, which claims are charged against.
        rounds: How many there were.
    """

    settled_seconds: float
    latency_p50_seconds: float
    latency_p95_seconds: float
    released_seconds: float
    selection_milliseconds: float
    claims: int
    nodes: int
    quota: bool
    rounds: int


class _Round(msgspec.Struct, frozen=True):
    seconds: float
    latencies: list[float]
    released: float


async def slices(client: Client, *, claims: int, quota: bool, rounds: int, talk: Talk) -> SlicesResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's, with some connections beside `CONNECTIONS`.
        claims: How many at once.
        quota: The tenants have a quota.
        rounds: How many times.
        talk: Told what happens, for a person.

    Raises:
        InputError: There are fewer free nodes than claims.
        RetryableError: Something takes too long.
    """
    shared = (await slice_defaults(client)).shared_nodes
    free = await _free(client, shared)
    if len(free) < claims:
        raise InputError(
            f"--claims {claims} are more than the {len(free)} nodes that can be taken; on a local cluster"
            f" `tenantry up --nodes {claims + shared}` makes enough"
        )
    run = f"{int(time.time()):x}"
    names = [f"bench-{run}-{number}" for number in range(-(-claims // CLAIMS_OF_A_TENANT))]
    made: list[_Round] = []
    try:
        await _tenants(client, run, names, quota=quota)
        for number in range(1, rounds + 1):
            wanted = _claims(names, f"{run}-{number}", _sizes(len(free), claims))
            one = await _round(client, f"{run}-{number}", wanted)
            made.append(one)
            talk(f"{number}/{rounds}: {claims} claims have their nodes after {one.seconds:.1f} s")
    finally:
        await asyncio.shield(clean_up(client, run))
    return SlicesResult(
        settled_seconds=_middle([each.seconds for each in made]),
        latency_p50_seconds=_middle([statistics.median(each.latencies) for each in made]),
        latency_p95_seconds=_middle([sorted(each.latencies)[int(0.95 * claims)] for each in made]),
        released_seconds=_middle([each.released for each in made]),
        selection_milliseconds=round(_selection(free), 2),
        claims=claims,
        nodes=sum(_sizes(len(free), claims)),
        quota=quota,
        rounds=rounds,
    )


def _middle(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


async def _free(client: Client, shared: int) -> list[NodeFacts]:
    """Return the nodes that a claim could take, where so many stay everybody's."""
    found = [desired.facts(node, 0) for node in await client.list(Node)]
    choice = select(SliceClaimSpec(), found, shared=shared)
    # One is taken; the others are refused for that alone.
    fits = {*choice.nodes, *(name for name, why in choice.refused.items() if why.startswith("others"))}
    return [each for each in found if each.name in fits]


def _selection(free: Sequence[NodeFacts]) -> float:
    """Return how many milliseconds a selection among these nodes takes: the median of some."""
    spec = SliceClaimSpec(count=min(5, len(free)), per_node={"cpu": "1"}, total={"memory": "1Gi"})
    took: list[float] = []
    for _ in range(SELECTIONS):
        began = time.perf_counter()
        select(spec, free)
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)


def _sizes(nodes: int, claims: int) -> list[int]:
    """Return how many nodes each claim asks for: all of them together, some claims one more than others."""
    return [nodes // claims + (number < nodes % claims) for number in range(claims)]


def _claims(names: Sequence[str], batch: str, sizes: Sequence[int]) -> list[SliceClaim]:
    made: list[SliceClaim] = []
    for number, size in enumerate(sizes):
        meta = ObjectMeta(name=f"c-{number}", namespace=names[number % len(names)], labels={RUN_LABEL: batch})
        made.append(SliceClaim(metadata=meta, spec=SliceClaimSpec(count=size, users=Users.EVERYBODY)))
    return made


async def _tenants(client: Client, run: str, names: Sequence[str], *, quota: bool) -> None:
    limits = TenantQuota(hard=PLENTY) if quota else TenantQuota()
    spec = TenantSpec(owners=(Owner(kind=OwnerKind.USER, name="bench"),), quota=limits)

    async def make(name: str) -> None:
        await client.create(Tenant(metadata=ObjectMeta(name=name, labels={RUN_LABEL: run}), spec=spec))

    async with ready_times(client, run) as ready:
        await saturate(make, names)
        await ready.wait_for(names)


# -- one round ------------------------------------------------------------------------------------


async def _round(client: Client, batch: str, wanted: Sequence[SliceClaim]) -> _Round:
    """Make claims, wait until they have nodes, delete them, and wait until no node is taken."""
    posted: dict[str, float] = {}
    watching = asyncio.create_task(_settled(client, batch, len(wanted)))

    async def post(claim: SliceClaim) -> None:
        posted[claim.key] = time.perf_counter()
        await client.create(claim)

    try:
        began = time.perf_counter()
        await saturate(post, wanted)
        seen = await watching
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    released = await _release(client, wanted)
    return _Round(max(seen.values()) - began, [seen[key] - posted[key] for key in seen], released)


async def _settled(client: Client, batch: str, count: int) -> dict[str, float]:
    """Return when each claim was first seen with its nodes."""
    seen: dict[str, float] = {}
    only = {"labelSelector": f"{RUN_LABEL}={batch}"}
    async with (
        deadline(SETTLE_SECONDS, f"not all of {count} claims have nodes"),
        aclosing(events(client, SliceClaim.resource, only)) as stream,
    ):
        async for type_, body in stream:
            if type_ in {EventType.ADDED, EventType.MODIFIED}:
                claim = msgspec.json.decode(body, type=SliceClaim)
                if claim.status.state in _HAS_NODES:
                    seen.setdefault(claim.key, time.perf_counter())
            if len(seen) == count:
                break
    return seen


async def _release(client: Client, made: Sequence[SliceClaim]) -> float:
    """Delete claims, and return how many seconds it took until no node had one of their slices."""

    async def delete(claim: SliceClaim) -> None:
        with suppress(NotFound):
            await client.delete(SliceClaim.resource, claim.metadata.namespace, claim.metadata.name)

    places = {each.metadata.namespace for each in made}
    began = time.perf_counter()
    await saturate(delete, made)
    taken: set[str] = set()
    async with (
        deadline(GONE_SECONDS, "nodes of the benchmark are still taken"),
        aclosing(events(client, Node.resource, {})) as stream,
    ):
        is_listed = False
        async for type_, body in stream:
            if type_ is EventType.BOOKMARK:
                is_listed = True
            else:
                node = msgspec.json.decode(body, type=Node)
                place = node.metadata.annotations.get(desired.SLICE_CLAIM, "").partition("/")[0]
                is_taken = type_ is not EventType.DELETED and place in places
                (taken.add if is_taken else taken.discard)(node.metadata.name)
            if is_listed and not taken:
                break
    return time.perf_counter() - began

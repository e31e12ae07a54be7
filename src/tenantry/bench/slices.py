"""How fast claims get their nodes when many are created at once, and how long one selection takes.

    round:  POST N claims over N/10 tenants ─► until each is Bound or Reserved ─► delete, wait until no node is taken

Together the claims ask for all nodes but the shared ones. A namespace uses the oldest claim of its tenant, so one claim
in ten is Bound and the others stay Reserved.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node
from tenantry.api.quota import Quantity
from tenantry.api.slice import SliceClaim, SliceClaimSpec, SliceState, Users
from tenantry.bench.figures import median, median_of, percentile
from tenantry.bench.load import (
    GONE_SECONDS,
    RUN_LABEL,
    Progress,
    clean_up,
    create_tenants,
    deadline,
    delete,
    events,
    first_seen,
    new_run,
    new_tenant,
    of_run,
    saturate,
)
from tenantry.controllers.slices import nodes as marking
from tenantry.controllers.slices.gather import slice_defaults
from tenantry.engine.reader import Reader
from tenantry.engine.tasks import in_background
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType
from tenantry.world.slices.selection import NodeFacts, select

CLAIMS_PER_TENANT = 10
SETTLE_SECONDS = 600.0
SELECTIONS = 20
PLENTY: dict[str, Quantity] = {"cpu": "100k", "memory": "1Pi", "pods": "1M"}


class SlicesResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result: medians over the rounds.

    Args:
        settled_seconds: From the first POST until the last claim had its nodes.
        latency_p50_seconds: Of one claim, from its own POST.
        latency_p95_seconds: The same, 95th percentile.
        released_seconds: From the first DELETE until no node was taken any more.
        selection_milliseconds: To select a claim's nodes among all nodes, in this process.
        claims: How many claims were created at once.
        nodes: How many nodes the claims had together.
        quota: Whether the tenants had a quota, which claims are charged against.
        rounds: How many rounds there were.
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


async def slices(client: Client, *, claims: int, quota: bool, rounds: int, progress: Progress) -> SlicesResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client, with `load.POOL` connections.
        claims: How many claims to create at once.
        quota: The tenants have a quota.
        rounds: How many rounds to run.
        progress: Receives a line after each round.

    Raises:
        InputError: There are fewer free nodes than claims.
        RetryableError: A step takes too long.
    """
    shared = (await slice_defaults(Reader(client))).shared_nodes
    free = await _free(client, shared)
    if len(free) < claims:
        raise InputError(
            f"--claims {claims} are more than the {len(free)} nodes that can be taken; on a local cluster"
            f" `tenantry up --nodes {claims + shared}` makes enough"
        )
    run = new_run()
    names = [f"bench-{run}-{number}" for number in range(-(-claims // CLAIMS_PER_TENANT))]
    sizes = [len(free) // claims + (number < len(free) % claims) for number in range(claims)]
    done: list[_Round] = []
    try:
        await create_tenants(client, [new_tenant(name, run, quota=PLENTY if quota else {}) for name in names])
        for number in range(1, rounds + 1):
            done.append(await _round(client, f"{run}-{number}", names, sizes))
            progress(f"{number}/{rounds}: {claims} claims have their nodes after {done[-1].seconds:.1f} s")
    finally:
        await clean_up(client, run)
    return SlicesResult(
        settled_seconds=median_of(done, lambda each: each.seconds),
        latency_p50_seconds=median_of(done, lambda each: median(each.latencies)),
        latency_p95_seconds=median_of(done, lambda each: percentile(each.latencies, 0.95)),
        released_seconds=median_of(done, lambda each: each.released),
        selection_milliseconds=_selection(free),
        claims=claims,
        nodes=sum(sizes),
        quota=quota,
        rounds=rounds,
    )


async def _free(client: Client, shared: int) -> list[NodeFacts]:
    """Return the nodes that a claim could take if so many stay shared."""
    found = [marking.facts(node, 0) for node in await client.list(Node)]
    choice = select(SliceClaimSpec(), found, shared=shared)
    # The selection takes one node, and refuses the others that fit for that reason alone.
    fits = {*choice.nodes, *(name for name, why in choice.refused.items() if why.startswith("others"))}
    return [each for each in found if each.name in fits]


def _selection(free: Sequence[NodeFacts]) -> float:
    """Return the median of how many milliseconds a selection among these nodes takes."""
    spec = SliceClaimSpec(count=min(5, len(free)), per_node={"cpu": "1"}, total={"memory": "1Gi"})
    took: list[float] = []
    for _ in range(SELECTIONS):
        began = time.perf_counter()
        select(spec, free)
        took.append(1000 * (time.perf_counter() - began))
    return median(took, 2)


# -- one round ------------------------------------------------------------------------------------


async def _round(client: Client, batch: str, names: Sequence[str], sizes: Sequence[int]) -> _Round:
    """Create claims, wait until they have nodes, delete them, and wait until no node is taken."""
    claims = [_claim(names[number % len(names)], batch, number, size) for number, size in enumerate(sizes)]
    keys = {each.key for each in claims}
    posted: dict[str, float] = {}

    async def post(claim: SliceClaim) -> None:
        posted[claim.key] = time.perf_counter()
        await client.create(claim)

    waiting = first_seen(client, SliceClaim, keys, _has_nodes, of_run(batch), "bound", SETTLE_SECONDS)
    async with in_background(waiting) as settled:
        began = time.perf_counter()
        await saturate(post, claims)
        seen = await settled
    released = await _release(client, claims)
    return _Round(max(seen.values()) - began, [seen[key] - posted[key] for key in seen], released)


def _claim(namespace: str, batch: str, number: int, size: int) -> SliceClaim:
    meta = ObjectMeta(name=f"c-{number}", namespace=namespace, labels={RUN_LABEL: batch})
    return SliceClaim(metadata=meta, spec=SliceClaimSpec(count=size, users=Users.EVERYBODY))


def _has_nodes(claim: SliceClaim) -> bool:
    return claim.status.state in {SliceState.BOUND, SliceState.RESERVED}


async def _release(client: Client, claims: Sequence[SliceClaim]) -> float:
    """Delete claims, and return how many seconds it took until no node had one of their slices."""
    namespaces = {each.metadata.namespace for each in claims}
    began = time.perf_counter()
    await saturate(
        lambda each: delete(client, SliceClaim.resource, each.metadata.name, each.metadata.namespace), claims
    )
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
                node = client.decode(Node, body)
                namespace = node.metadata.annotations.get(marking.SLICE_CLAIM, "").partition("/")[0]
                is_taken = type_ is not EventType.DELETED and namespace in namespaces
                (taken.add if is_taken else taken.discard)(node.metadata.name)
            if is_listed and not taken:
                break
    return time.perf_counter() - began

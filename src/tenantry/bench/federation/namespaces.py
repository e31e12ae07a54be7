"""Namespaces at peers, beside the same writes alone, and what each costs when there are more of them.

    mapped:  POST of NamespaceOffloadings ─► operator: NamespaceMaps, Subnamespaces at the peers ─► Ready at home
    raw:     the same Subnamespaces by this client, until all are Ready; then the writes of the home, each object once:
             NamespaceOffloadings with finalizer and status, and the maps with spec and status

The operator of the home pauses during the raw writes. The operators of the peers work the same on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.offloading import FINALIZER, NamespaceMap, NamespaceOffloading
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.peercluster import tenant_name
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceSpec
from tenantry.bench.federation.sides import (
    SHARE,
    BenchFederation,
    Measured,
    measured,
    offload,
    offloading,
    tenant_of_run,
)
from tenantry.bench.figures import median, median_of
from tenantry.bench.hold import held_operator, leading_operator
from tenantry.bench.load import RUN_LABEL, Progress, first_seen, of_run, saturate
from tenantry.engine.conditions import is_true
from tenantry.engine.tasks import all_of, in_background
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH, Client

READY_SECONDS = 300.0
CONNECTIONS = 16
"""To each peer, as the operator has."""


class FederationNamespacesResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        peers: How many peers there were.
        peer_form: What they consist of.
        namespaces: How many namespaces were offloaded to each of them.
        rounds: How many times each side was measured.
        mapped_seconds: From the first POST at home until the last NamespaceOffloading is Ready; the median.
        raw_seconds: The same writes by one client; the median.
        ratio: The median of raw seconds divided by mapped seconds of a round.
        home_cpu_ratio: CPU of the operator and of this client, divided by that of the client for the raw writes.
        operator_milliseconds: CPU of the operator for each namespace at a peer.
        raw_client_milliseconds: CPU of the client for the raw writes of one.
        server_cpu_ratio: CPU of the API server of the home, mapped divided by raw.
    """

    peers: int
    peer_form: str
    namespaces: int
    rounds: int
    mapped_seconds: float
    raw_seconds: float
    ratio: float
    home_cpu_ratio: float
    operator_milliseconds: float
    raw_client_milliseconds: float
    server_cpu_ratio: float


class NamespaceCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one namespace at one peer costs, the median.

    Args:
        namespaces: How many namespaces were offloaded together.
        peers: To how many peers each.
        milliseconds: Of wall time.
        operator_milliseconds: CPU of the operator of the home.
        server_milliseconds: CPU of the API server of the home.
        peer_operator_milliseconds: CPU of the operators of the peers.
        peer_server_milliseconds: CPU of the API servers of the peers.
    """

    namespaces: int
    peers: int
    milliseconds: float
    operator_milliseconds: float
    server_milliseconds: float
    peer_operator_milliseconds: float
    peer_server_milliseconds: float


class FederationGrowthResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result: 1.0 is linear.

    Args:
        peer_form: What the peers consist of.
        rounds: How many times each side was measured.
        few: The cost with few namespaces or peers.
        many: The cost with many.
        ratio: Wall time for each with many, divided by that with few.
        operator_ratio: The same of the operator's CPU.
        server_ratio: The same of the API server's CPU.
        peer_operator_ratio: The same of the CPU of the peers' operators; None if they have none.
    """

    peer_form: str
    rounds: int
    few: NamespaceCost
    many: NamespaceCost
    ratio: float
    operator_ratio: float
    server_ratio: float
    peer_operator_ratio: float | None


async def namespaces(bench: BenchFederation, count: int, rounds: int, progress: Progress) -> FederationNamespacesResult:
    """Run the benchmark and clean up after it.

    Args:
        bench: The clusters; operators run in all peers.
        count: How many namespaces to offload to each peer.
        rounds: How many times each side is measured.
        progress: Receives a line after each step.

    Raises:
        RetryableError: Something is not Ready in time.
    """
    mapped: list[Measured] = []
    raw: list[Measured] = []
    for number in range(1, rounds + 1):
        await leading_operator(bench.home)
        async with tenant_of_run(bench, most=count + 1) as tenant:
            home, run = tenant.metadata.name, tenant.metadata.labels[RUN_LABEL]
            names = await home_namespaces(bench, home, run, [f"n{each}" for each in range(count + 1)])
            # The first one opens connections and watches on all sides; it does not count.
            await offload(bench, run, names[:1])
            mapped.append(await measured(bench, offload(bench, run, names[1:])))
            written = await all_of(_written(client, peer.guest) for peer, client in bench.peers)
        async with tenant_of_run(bench, most=count) as tenant:
            home, run = tenant.metadata.name, tenant.metadata.labels[RUN_LABEL]
            names = await home_namespaces(bench, home, run, [f"n{each}" for each in range(count)])
            async with held_operator(bench.home):
                raw.append(await measured(bench, _raw(bench, run, names, [each[:count] for each in written])))
                await _remove_raw(bench, run)
        progress(
            f"{number}/{rounds}: {count} namespaces at {len(bench.peers)} peers in {mapped[-1].seconds:.2f} s, the"
            f" writes alone in {raw[-1].seconds:.2f} s"
        )
    each = 1000 / (count * len(bench.peers))
    pairs = list(zip(mapped, raw, strict=True))
    return FederationNamespacesResult(
        peers=len(bench.peers),
        peer_form=bench.form,
        namespaces=count,
        rounds=rounds,
        mapped_seconds=median_of(mapped, lambda side: side.seconds),
        raw_seconds=median_of(raw, lambda side: side.seconds),
        ratio=median(alone.seconds / side.seconds for side, alone in pairs),
        home_cpu_ratio=median((side.cost.operator + side.cost.client) / alone.cost.client for side, alone in pairs),
        operator_milliseconds=median_of(mapped, lambda side: each * side.cost.operator),
        raw_client_milliseconds=median_of(raw, lambda side: each * side.cost.client),
        server_cpu_ratio=median(side.cost.server / alone.cost.server for side, alone in pairs),
    )


async def growth(
    bench: BenchFederation, few: tuple[int, int], many: tuple[int, int], rounds: int, progress: Progress
) -> FederationGrowthResult:
    """Measure what a namespace at a peer costs if there are few, and if there are many; clean up afterwards.

    Args:
        bench: The clusters.
        few: How many namespaces, at how many peers.
        many: The same, larger.
        rounds: How many times each side is measured, in turns.
        progress: Receives a line after each step.

    Raises:
        RetryableError: Something is not Ready in time.
    """
    found: tuple[list[Measured], list[Measured]] = [], []
    for number in range(1, rounds + 1):
        for (count, peers), seconds in zip((few, many), found, strict=True):
            part = bench.first(peers)
            async with tenant_of_run(part, most=count + 1) as tenant:
                home, run = tenant.metadata.name, tenant.metadata.labels[RUN_LABEL]
                names = await home_namespaces(part, home, run, [f"n{each}" for each in range(count + 1)])
                await offload(part, run, names[:1])
                seconds.append(await measured(part, offload(part, run, names[1:])))
            progress(f"{number}/{rounds}: {count} namespaces at {peers} peers in {seconds[-1].seconds:.2f} s")
    less, more = (_cost(size, each) for size, each in zip((few, many), found, strict=True))
    has_operators = less.peer_operator_milliseconds > 0
    return FederationGrowthResult(
        peer_form=bench.form,
        rounds=rounds,
        few=less,
        many=more,
        ratio=round(more.milliseconds / less.milliseconds, 3),
        operator_ratio=round(more.operator_milliseconds / less.operator_milliseconds, 3),
        server_ratio=round(more.server_milliseconds / less.server_milliseconds, 3),
        peer_operator_ratio=round(more.peer_operator_milliseconds / less.peer_operator_milliseconds, 3)
        if has_operators
        else None,
    )


def _cost(size: tuple[int, int], found: Sequence[Measured]) -> NamespaceCost:
    each = 1000 / (size[0] * size[1])
    return NamespaceCost(
        namespaces=size[0],
        peers=size[1],
        milliseconds=median_of(found, lambda one: each * one.seconds),
        operator_milliseconds=median_of(found, lambda one: each * one.cost.operator),
        server_milliseconds=median_of(found, lambda one: each * one.cost.server),
        peer_operator_milliseconds=median_of(found, lambda one: each * one.cost.peer_operators),
        peer_server_milliseconds=median_of(found, lambda one: each * one.cost.peer_servers),
    )


async def home_namespaces(bench: BenchFederation, tenant: str, run: str, names: Sequence[str]) -> list[str]:
    """Create Subnamespaces of a tenant of the home; return their namespaces once they are Ready."""
    owner = Owner(kind=OwnerKind.USER, name="bench")
    wanted = [_workspace(tenant, name, run, (owner,), {}) for name in names]
    await _ready(bench.home, wanted, run)
    found = {each.metadata.name: each for each in await bench.home.list(Subnamespace, namespace=tenant)}
    return [found[name].status.namespace for name in names]


def _workspace(namespace: str, name: str, run: str, owners: tuple[Owner, ...], hard: dict[str, str]) -> Subnamespace:
    spec = SubnamespaceSpec(mode=Mode.WORKSPACE, owners=owners, quota=Quota(hard=dict(hard)))
    return Subnamespace(metadata=ObjectMeta(name=name, namespace=namespace, labels={RUN_LABEL: run}), spec=spec)


async def _ready(client: Client, wanted: Sequence[Subnamespace], run: str) -> None:
    """Create Subnamespaces of a run, and wait until all are Ready."""
    keys = {each.key for each in wanted}
    seen = first_seen(
        client,
        Subnamespace,
        keys,
        lambda each: is_true(each.status.conditions, reasons.READY),
        of_run(run),
        "Ready",
        READY_SECONDS,
    )
    async with in_background(seen) as waiting:
        await saturate(client.create, wanted, connections=CONNECTIONS)
        await waiting


# -- the writes alone -----------------------------------------------------------------------------


async def _written(client: Client, guest: str) -> list[Subnamespace]:
    """Return what the operator of the home has written at a peer, the deepest level only."""
    core = tenant_name(guest)
    below = {core}
    found = await client.list(Subnamespace)
    below |= {each.status.namespace for each in found if each.metadata.namespace == core}
    ours = [each for each in found if each.metadata.namespace in below]
    parents = {each.metadata.namespace for each in ours}
    return [each for each in ours if each.status.namespace not in parents]


async def _raw(
    bench: BenchFederation, run: str, names: Sequence[str], written: Sequence[Sequence[Subnamespace]]
) -> None:
    """Write the same as the operator: at the peers, and each object of the home once."""

    async def at_peer(guest: str, client: Client, like: Sequence[Subnamespace]) -> None:
        wanted = [
            Subnamespace(
                metadata=ObjectMeta(
                    name=f"raw-{number}",
                    namespace=tenant_name(guest),
                    labels={RUN_LABEL: run},
                    # The peer checks that the name of the namespace belongs to this cluster.
                    annotations=each.metadata.annotations,
                ),
                spec=replace(each.spec),
            )
            for number, each in enumerate(like)
        ]
        await _ready(client, wanted, run)

    await all_of(at_peer(peer.guest, client, like) for (peer, client), like in zip(bench.peers, written, strict=True))
    await saturate(lambda name: _offloading(bench, run, name), names)
    for peer in bench.names:
        entry = {"name": "x", "hard": dict(SHARE)}
        desired = {f"{run}-{name}": {**entry, "name": name} for name in names}
        current = {name: {"peerNamespace": name, "uid": name, "phase": "Accepted"} for name in desired}
        await _patch(bench.home, peer, {"spec": {"desired": desired}})
        await _patch(bench.home, peer, {"status": {"current": current}}, subresource="/status")


async def _offloading(bench: BenchFederation, run: str, name: str) -> None:
    made = offloading(name, run)
    client, url = bench.home, wire.path(NamespaceOffloading.resource, name, made.metadata.name)
    await client.create(made)
    finalizers: Json = {"metadata": {"finalizers": [FINALIZER]}}
    await client.request("PATCH", url, body=msgspec.json.encode(finalizers), content_type=MERGE_PATCH)
    clusters = [{"name": peer, "namespace": name, "phase": "Accepted"} for peer in bench.names]
    status: Json = {"status": {"observedGeneration": 1, "clusters": clusters}}
    await client.request("PATCH", f"{url}/status", body=msgspec.json.encode(status), content_type=MERGE_PATCH)


async def _patch(client: Client, peer: str, patch: Json, *, subresource: str = "") -> None:
    url = f"{wire.path(NamespaceMap.resource, '', peer)}{subresource}"
    await client.request("PATCH", url, body=msgspec.json.encode(patch), content_type=MERGE_PATCH)


async def _remove_raw(bench: BenchFederation, run: str) -> None:
    """Delete what `_raw` has written, before the operator of the home goes on."""
    for found in await bench.home.list(NamespaceOffloading, selectors=of_run(run)):
        url = wire.path(NamespaceOffloading.resource, found.metadata.namespace, found.metadata.name)
        none: Json = {"metadata": {"finalizers": None}}
        await bench.home.request("PATCH", url, body=msgspec.json.encode(none), content_type=MERGE_PATCH)
        await bench.home.delete(NamespaceOffloading.resource, found.metadata.namespace, found.metadata.name)
    for found in await bench.home.list(NamespaceMap):
        if found.metadata.name in bench.names:
            gone = {name: None for name in found.spec.desired if name.startswith(f"{run}-")}
            await _patch(bench.home, found.metadata.name, {"spec": {"desired": gone}})
            await _patch(bench.home, found.metadata.name, {"status": {"current": gone}}, subresource="/status")

    async def empty(client: Client) -> None:
        for each in await client.list(Subnamespace, selectors=of_run(run)):
            await client.delete(Subnamespace.resource, each.metadata.namespace, each.metadata.name)

    await all_of(empty(client) for _, client in bench.peers)

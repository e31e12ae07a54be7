"""Pods at peers, beside the same writes alone.

mirrored:  POST at home ─► scheduler: binding ─► operator: POST at the peer ─► Running there ─► Running at home
raw:       POST and binding at home, POST at the peer, PATCH of the status at home (sent), at the peer, and at home

The raw pods at home have no scheduler and are bound to a Node that stands for nothing, and those at the peers are in
namespaces of no tenant of the home, so that the operator leaves them alone. At peers without nodes, the benchmark sets
the status of pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import cycle

import msgspec

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.node import Node
from tenantry.api.peercluster import PEER, PREFIX
from tenantry.bench.federation.player import PODS, run_pod
from tenantry.bench.federation.sides import (
    WIDE_SHARE,
    BenchFederation,
    Measured,
    measured,
    namespaces_at_peers,
    offload,
    tenant_of_run,
)
from tenantry.bench.figures import median, median_of
from tenantry.bench.load import RUN_LABEL, Progress, first_seen, of_run, saturate
from tenantry.bench.pods import remove_pods
from tenantry.controllers.slices.pods import Pod
from tenantry.engine.tasks import all_of, in_background
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH, Client

CONNECTIONS = 32
RUN_SECONDS = 300.0
REST_SECONDS = 30.0
"""Between rounds: the writes to a peer are limited over time, and each round begins with the whole allowance."""


class FederationPodsResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result.

    Args:
        peers: How many peers there were.
        peer_form: What they consist of.
        pods: How many pods were started in each round, over all peers.
        rounds: How many times each side was measured.
        mirrored_seconds: From the first POST at home until the last pod runs there; the median.
        raw_seconds: The same writes by one client; the median.
        ratio: The median of raw seconds divided by mirrored seconds of a round; 1 is as fast as the writes alone.
        home_cpu_ratio: CPU of the operator and of this client, divided by that of the client for the raw writes.
        operator_milliseconds: CPU of the operator for each pod.
        client_milliseconds: CPU of this client for each pod, mirrored.
        raw_client_milliseconds: The same, raw.
        server_cpu_ratio: CPU of the API server of the home, mirrored divided by raw.
    """

    peers: int
    peer_form: str
    pods: int
    rounds: int
    mirrored_seconds: float
    raw_seconds: float
    ratio: float
    home_cpu_ratio: float
    operator_milliseconds: float
    client_milliseconds: float
    raw_client_milliseconds: float
    server_cpu_ratio: float


async def pods(bench: BenchFederation, count: int, rounds: int, progress: Progress) -> FederationPodsResult:
    """Run the benchmark and clean up after it.

    Args:
        bench: The clusters.
        count: How many pods.
        rounds: How many times each side is measured.
        progress: Receives a line after each step.

    Raises:
        RetryableError: The namespace is not Ready at all peers, or a pod does not run, in time.
    """
    mirrored: list[Measured] = []
    raw: list[Measured] = []
    async with tenant_of_run(bench) as tenant:
        namespace, run = tenant.metadata.name, tenant.metadata.labels[RUN_LABEL]
        await offload(bench, run, [namespace], WIDE_SHARE)
        await namespaces_at_peers(bench, namespace)
        async with _raw_places(bench, f"{namespace}-raw", run):
            # The first pods open connections and watches on all sides; they do not count.
            await _mirrored(bench, namespace, run, [f"warm-{number}" for number in range(2 * len(bench.peers))])
            await remove_pods(bench.home, [namespace])
            for number in range(1, rounds + 1):
                await asyncio.sleep(REST_SECONDS)
                names = [f"pod-{number}-{each}" for each in range(count)]
                mirrored.append(await measured(bench, _mirrored(bench, namespace, run, names)))
                await remove_pods(bench.home, [namespace])
                raw.append(await measured(bench, _raw(bench, namespace, f"{namespace}-raw", run, names)))
                await remove_pods(bench.home, [namespace])
                await all_of(remove_pods(client, [f"{namespace}-raw"]) for _, client in bench.peers)
                progress(
                    f"{number}/{rounds}: {count} pods at {len(bench.peers)} peers in {mirrored[-1].seconds:.2f} s, the"
                    f" writes alone in {raw[-1].seconds:.2f} s"
                )
    return _result(bench, count, mirrored, raw)


def _result(
    bench: BenchFederation, count: int, mirrored: Sequence[Measured], raw: Sequence[Measured]
) -> FederationPodsResult:
    pairs = list(zip(mirrored, raw, strict=True))

    def each(seconds: float) -> float:
        return 1000 * seconds / count

    return FederationPodsResult(
        peers=len(bench.peers),
        peer_form=bench.form,
        pods=count,
        rounds=len(pairs),
        mirrored_seconds=median_of(mirrored, lambda side: side.seconds),
        raw_seconds=median_of(raw, lambda side: side.seconds),
        ratio=median(alone.seconds / side.seconds for side, alone in pairs),
        home_cpu_ratio=median((side.cost.operator + side.cost.client) / alone.cost.client for side, alone in pairs),
        operator_milliseconds=median_of(mirrored, lambda side: each(side.cost.operator)),
        client_milliseconds=median_of(mirrored, lambda side: each(side.cost.client)),
        raw_client_milliseconds=median_of(raw, lambda side: each(side.cost.client)),
        server_cpu_ratio=median(side.cost.server / alone.cost.server for side, alone in pairs),
    )


def _pod(name: str, namespace: str, run: str, **placement: object) -> Json:
    container: Json = {
        "name": "main",
        "image": "registry.example.com/bench:1",
        "resources": {
            "requests": {"cpu": "10m", "memory": "16Mi"},
            "limits": {"cpu": "10m", "memory": "16Mi"},
        },
    }
    spec: Json = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "automountServiceAccountToken": False,
        **placement,
    }
    meta = {"name": name, "namespace": namespace, "labels": {RUN_LABEL: run}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def _post(client: Client, value: Json) -> None:
    await client.request("POST", wire.path(PODS, value["metadata"]["namespace"]), body=msgspec.json.encode(value))


async def _bind(client: Client, namespace: str, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    value = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await client.request("POST", f"{wire.path(PODS, namespace, name)}/binding", body=msgspec.json.encode(value))


async def _sent(client: Client, namespace: str, name: str) -> None:
    condition = {"type": f"{PREFIX}/Mirrored", "status": "True", "reason": "Sent"}
    body = msgspec.json.encode({"status": {"conditions": [condition]}})
    await client.request("PATCH", f"{wire.path(PODS, namespace, name)}/status", body=body, content_type=MERGE_PATCH)


async def _mirrored(bench: BenchFederation, namespace: str, run: str, names: Sequence[str]) -> None:
    """Create pods at home, for the Nodes of the peers in turn, and wait until all of them run there."""
    selectors = {**of_run(run), "fieldSelector": f"metadata.namespace={namespace},status.phase=Running"}
    keys = {f"{namespace}/{name}" for name in names}
    turns = zip(names, cycle(bench.names), strict=False)
    wanted = [_pod(name, namespace, run, nodeSelector={PEER: peer}) for name, peer in turns]
    seen = first_seen(bench.home, Pod, keys, lambda _: True, selectors, "running", RUN_SECONDS)
    async with in_background(seen) as waiting:
        await saturate(lambda value: _post(bench.home, value), wanted, connections=CONNECTIONS)
        await waiting


async def _raw(bench: BenchFederation, namespace: str, there: str, run: str, names: Sequence[str]) -> None:
    """Write the same by this client: for each pod, four times at home and twice at a peer."""
    turns = cycle(bench.peers)

    async def write(turn: tuple[str, bool, Client]) -> None:
        name, is_played, client = turn
        await _post(bench.home, _pod(name, namespace, run, schedulerName=there))
        await _bind(bench.home, namespace, name, there)
        await _post(client, _pod(name, there, run))
        # The operator records at once that a pod was sent, so that it never has two.
        await _sent(bench.home, namespace, name)
        if is_played:
            await run_pod(client, there, name)
        await run_pod(bench.home, namespace, name)

    wanted = [(name, not peer.has_nodes, client) for name, (peer, client) in zip(names, turns, strict=False)]
    await saturate(write, wanted, connections=CONNECTIONS)


@asynccontextmanager
async def _raw_places(bench: BenchFederation, name: str, run: str) -> AsyncGenerator[None]:
    """Make a Node at home that stands for nothing, and a namespace at each peer; delete both at the end."""
    labels: Mapping[str, str] = {RUN_LABEL: run}
    # Kubernetes deletes pods that are bound to a Node that does not exist.
    await bench.home.create(Node(metadata=ObjectMeta(name=name, labels=dict(labels))))
    try:
        for _, client in bench.peers:
            await client.create(Namespace(metadata=ObjectMeta(name=name, labels=dict(labels))))
        yield
    finally:
        await bench.home.delete(Node.resource, "", name)
        for _, client in bench.peers:
            await client.delete(Namespace.resource, "", name)

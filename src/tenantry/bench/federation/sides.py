"""The clusters of a benchmark of peers, and the tenant that uses them.

home ─► Tenant of the run, which may use the peers ─► NamespaceOffloading ─► a namespace at each peer
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.offloading import OFFLOADING, NamespaceMap, NamespaceOffloading, NamespaceOffloadingSpec
from tenantry.api.quota import Quota
from tenantry.api.tenant import Federation, Tenant
from tenantry.bench.federation.player import PlayedPeer
from tenantry.bench.load import (
    POOL,
    RUN_LABEL,
    clean_up,
    create_tenants,
    first_seen,
    new_run,
    new_tenant,
    of_run,
    saturate,
)
from tenantry.bench.planes.processes import process_cost
from tenantry.engine.conditions import is_true
from tenantry.engine.tasks import in_background
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

READY_SECONDS = 300.0
SHARE: Mapping[str, str] = {"cpu": "1", "memory": "4Gi", "pods": "10"}
WIDE_SHARE: Mapping[str, str] = {"cpu": "500", "memory": "2000Gi", "pods": "5000"}
"""What each of many namespaces gets at a peer, and what a single one gets there."""


class BenchPeer(msgspec.Struct, frozen=True, kw_only=True):
    """A peer.

    Args:
        name: Its name at home.
        guest: The name of the home at the peer.
        form: Whole or Light.
        has_operator: Whether an operator runs in it; the benchmark makes the namespaces otherwise.
        has_nodes: Whether pods run there; the benchmark sets their status otherwise.
        connection: Its administrator's.
        processes: The pids of its components by name.
        namespace_of: Returns a namespace of the home there and the RoleBinding in it, by the uid of the namespace
            kube-system there and the name.
    """

    name: str
    guest: str
    form: str
    has_operator: bool
    has_nodes: bool
    connection: Connection
    processes: Callable[[], Mapping[str, int]]
    namespace_of: Callable[[str, str], Sequence[Json]]


class BenchCost(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds of processes, from one reading to another.

    Args:
        client: The benchmark's own.
        operator: The operator of the home.
        server: The API server of the home.
        peer_operators: The operators of all peers.
        peer_servers: The API servers of all peers.
    """

    client: float
    operator: float
    server: float
    peer_operators: float
    peer_servers: float

    def since(self, before: BenchCost) -> BenchCost:
        """Return what was used since another reading."""
        pairs = {name: getattr(self, name) - getattr(before, name) for name in self.__struct_fields__}
        return BenchCost(**pairs)


class Measured(msgspec.Struct, frozen=True):
    """One measurement: seconds of wall time, and CPU."""

    seconds: float
    cost: BenchCost


class BenchFederation(msgspec.Struct, frozen=True):
    """The home and its peers, with open clients.

    Args:
        home: An administrator's client of the home.
        processes: The pids of the home's components by name.
        peers: The peers that take part, each with an administrator's client.
    """

    home: Client
    processes: Callable[[], Mapping[str, int]]
    peers: Sequence[tuple[BenchPeer, Client]]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the peers."""
        return tuple(peer.name for peer, _ in self.peers)

    @property
    def form(self) -> str:
        """Return what the peers consist of, for the result."""
        return form_of([peer for peer, _ in self.peers])

    def first(self, count: int) -> BenchFederation:
        """Return the home with its first peers."""
        return BenchFederation(self.home, self.processes, self.peers[:count])

    def cost(self) -> BenchCost:
        """Return the CPU time of all processes until now."""
        home = self.processes()
        peers = [peer.processes() for peer, _ in self.peers]
        return BenchCost(
            client=time.process_time(),
            operator=_cpu(home, "operator"),
            server=_cpu(home, "kube-apiserver"),
            peer_operators=sum(_cpu(each, "operator") for each in peers),
            peer_servers=sum(_cpu(each, "kube-apiserver") for each in peers),
        )


async def measured(bench: BenchFederation, work: Awaitable[object]) -> Measured:
    """Return how long some work takes, and the CPU of all processes meanwhile."""
    before, began = bench.cost(), time.perf_counter()
    await work
    return Measured(time.perf_counter() - began, bench.cost().since(before))


def form_of(peers: Sequence[BenchPeer]) -> str:
    """Return what peers consist of, as in "Light, without an operator"."""
    words = {each.form if each.has_operator else f"{each.form}, without an operator" for each in peers}
    return " and ".join(sorted(words))


def _cpu(processes: Mapping[str, int], name: str) -> float:
    pid = processes.get(name, 0)
    return process_cost(pid).cpu_seconds if pid else 0.0


@asynccontextmanager
async def opened(
    home: Client, processes: Callable[[], Mapping[str, int]], peers: Sequence[BenchPeer]
) -> AsyncGenerator[BenchFederation]:
    """Open clients of the peers, and play what those without an operator lack, while the context is open.

    Raises:
        InputError: There is no peer.
    """
    if not peers:
        raise InputError("the cluster has no peers: start some with `tenantry up --peers N`")
    async with AsyncExitStack() as stack:
        found: list[tuple[BenchPeer, Client]] = []
        for peer in peers:
            client = await stack.enter_async_context(Client(peer.connection, max_connections=POOL))
            found.append((peer, client))
            uid = (await client.get(Namespace, "kube-system")).metadata.uid
            played = PlayedPeer(client, partial(peer.namespace_of, uid))
            if not peer.has_operator:
                await stack.enter_async_context(in_background(played.make_namespaces()))
            if not peer.has_nodes:
                await stack.enter_async_context(in_background(played.run_pods()))
        yield BenchFederation(home, processes, found)


@asynccontextmanager
async def tenant_of_run(bench: BenchFederation, *, most: int = 0) -> AsyncGenerator[Tenant]:
    """Create a tenant that may use the peers; at the end, delete it with all that it has.

    Args:
        bench: The clusters.
        most: How many Subnamespaces it may have.
    """
    run = new_run()
    made = new_tenant(f"bench-{run}", run, max_count=most, max_depth=1)
    access = msgspec.structs.replace(made.spec.isolation, federation=Federation(peers=bench.names))
    tenant = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, isolation=access))
    try:
        await create_tenants(bench.home, [tenant])
        yield tenant
    finally:
        await clean_up(bench.home, run)


def offloading(namespace: str, run: str, share: Mapping[str, str] = SHARE) -> NamespaceOffloading:
    """Return the NamespaceOffloading of a namespace to all peers that its tenant may use."""
    meta = ObjectMeta(name=OFFLOADING, namespace=namespace, labels={RUN_LABEL: run})
    spec = NamespaceOffloadingSpec(quota=Quota(hard=dict(share)))
    return NamespaceOffloading(metadata=meta, spec=spec)


async def offload(
    bench: BenchFederation, run: str, namespaces: Sequence[str], share: Mapping[str, str] = SHARE
) -> dict[str, float]:
    """Create the NamespaceOffloadings of namespaces; return when each was first seen Ready."""
    wanted = [offloading(each, run, share) for each in namespaces]
    seen = first_seen(
        bench.home,
        NamespaceOffloading,
        {each.key for each in wanted},
        lambda each: is_true(each.status.conditions, reasons.READY),
        of_run(run),
        "Ready",
        READY_SECONDS,
    )
    async with in_background(seen) as waiting:
        await saturate(bench.home.create, wanted)
        return await waiting


async def namespaces_at_peers(bench: BenchFederation, namespace: str) -> dict[str, str]:
    """Return the namespace at each peer of a namespace of the home."""
    maps = {each.metadata.name: each for each in await bench.home.list(NamespaceMap)}
    return {name: maps[name].status.current[namespace].peer_namespace for name in bench.names}

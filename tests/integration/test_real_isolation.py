"""Who reaches whom on real nodes: two tenants, containers and sandboxes, on one node and across two.

It needs what `test_real_nodes` needs, and is asked for in the same way: TENANTRY_TEST_REAL=1.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.model import Resource
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.real.network import Addresses
from tenantry.testing.api import Api
from tenantry.testing.fixtures import install
from tenantry.testing.realpods import PORT, RealPods, Spot, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Json = dict[str, Any]
SERVICES = Resource("", "v1", "services", "Service")
NODES = ("real-1", "real-2")
RUNTIMES = ("runc", "gvisor")
METADATA = "169.254.169.254"
LIKE_SSH = 2222


@pytest_asyncio.fixture(scope="module")
async def pods(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPods]:
    """A cluster with Tenantry and two real nodes."""
    cluster = LocalCluster("isolation", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=2, install=install, operator=True, timeout_seconds=180.0))
    try:
        async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
            made = RealPods(cluster, Api(client))
            await made.load_image(tmp_path_factory.mktemp("images"))
            yield made
    finally:
        await cluster.down(purge=True)


async def make_tenant(pods: RealPods) -> str:
    """Make a tenant of alice's whose network is closed, and which may choose its runtimes."""
    name = f"t{uuid.uuid4().hex[:8]}"
    await pods.api.make_tenant(name, isolation={"network": "Isolated", "runtime": "Shared"})
    return name


async def make_pods(pods: RealPods, namespace: str) -> list[Spot]:
    """Make a pod of each runtime on each node, and a Service of all of them."""
    ports = [{"port": 80, "targetPort": PORT, "protocol": "TCP"}]
    spec = {"selector": {"side": namespace}, "ports": ports}
    await pods.api.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec}, namespace)
    spots = await asyncio.gather(
        *(pods.make(namespace, f"{runtime}-{place}", place, runtime) for place in NODES for runtime in RUNTIMES)
    )
    return list(spots)


async def service_address(pods: RealPods, namespace: str) -> str:
    return str((await pods.api.get(SERVICES, "web", namespace))["spec"]["clusterIP"])


class Listeners:
    """Servers at addresses of nodes and of this machine, which no pod of a tenant is to reach."""

    def __init__(self, pods: RealPods) -> None:
        self._pods = pods
        self._servers: list[asyncio.Server] = []

    async def open(self, place: str, address: str, port: int) -> int:
        """Answer by HTTP in the network namespace of a node, "" for this machine; the port is returned."""

        def listening() -> socket.socket:
            found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((address, port))
            return found

        found = self._pods.inside(place, listening) if place else listening()
        self._servers.append(await asyncio.start_server(self._answer, sock=found))
        return int(found.getsockname()[1])

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhere")
        writer.close()

    async def close(self) -> None:
        for server in self._servers:
            server.close()


@pytest_asyncio.fixture
async def listeners(pods: RealPods) -> AsyncIterator[Listeners]:
    made = Listeners(pods)
    yield made
    await made.close()


async def test_nothing_passes_between_tenants_nor_to_nodes_and_machine(pods: RealPods, listeners: Listeners) -> None:
    """H06: pods, Services, names, nodes, kubelets, the machine, the API server, metadata; both runtimes, all ways."""
    ours, theirs = await make_tenant(pods), await make_tenant(pods)
    addresses = Addresses(pods.cluster.real().block)
    own, others = await asyncio.gather(make_pods(pods, ours), make_pods(pods, theirs))
    # In a namespace of no tenant, where no policy is: what it reaches is there to be reached.
    plain = await pods.make("default", f"plain-{ours}", NODES[0], "runc")
    for place in NODES:
        await listeners.open(place, "0.0.0.0", LIKE_SSH)  # noqa: S104 - in the node's own namespace
        pods.run(place, "ip", "addr", "replace", f"{METADATA}/32", "dev", "lo")
        await listeners.open(place, METADATA, 80)
    machine = await listeners.open("", "0.0.0.0", 0)  # noqa: S104 - it is what no pod is to reach
    nodes = [addresses.node(number) for number in (1, 2)]
    reachable = [
        *((node, port) for node in nodes for port in (LIKE_SSH, 10250)),
        (METADATA, 80),
        (addresses.bridge, pods.cluster.spec().ports.apiserver),
        ("10.96.0.1", 443),
    ]
    rows: list[tuple[Spot, str, int, str, bool]] = [(plain, *each, "http", True) for each in reachable]
    rows.append((plain, addresses.bridge, machine, "http", False))
    for mine, their in ((own, others), (others, own)):
        here, there = mine[0].namespace, their[0].namespace
        own_service, service = await service_address(pods, here), await service_address(pods, there)
        for spot in mine:
            rows += [
                *((spot, *each, "http", False) for each in (*reachable, (addresses.bridge, machine))),
                *((spot, each.address, PORT, word, False) for each in their for word in ("http", "udp")),
                (spot, service, 80, "http", False),
                (spot, f"web.{there}.svc.cluster.local", 80, "http", False),
                *((spot, each.address, PORT, word, True) for each in mine for word in ("http", "udp")),
                (spot, own_service, 80, "http", True),
                (spot, "web", 80, "http", True),
                (spot, f"web.{here}.svc.cluster.local", 80, "http", True),
            ]
    rows += [(plain, each.address, PORT, "http", False) for each in (*own, *others)]

    assert await pods.mismatches(rows) == []

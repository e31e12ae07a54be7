"""Real nodes of a cluster with several replicas, the first of which stays away; see test_real_clusters.py."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import ApiError
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import hostedfolders, hostedprocess
from tenantry.local.cluster import LocalCluster
from tenantry.local.real import memberships
from tenantry.local.state import Phase, read_state
from testkit import realhosts
from testkit.api import Api, until
from testkit.kubectl import Kubectl
from testkit.planes import command
from testkit.realpods import RealPods, connects, missing

pytest_plugins = ["testkit.fixtures"]
pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing()), pytest.mark.timeout(1800)]

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SERVICES = Resource("", "v1", "services", "Service")
SECONDS = 240.0


@pytest_asyncio.fixture(scope="module")
async def host(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RealPods]:
    """A cluster with two real nodes and the operator: one node stays shared."""
    async with realhosts.hosting("realreplicas", tenantry_home, tmp_path_factory.mktemp("images"), nodes=2) as found:
        yield found


@asynccontextmanager
async def away(cluster: LocalCluster, name: str) -> AsyncGenerator[None]:
    """Kill a process of a control plane, and again as soon as the supervisor has started it."""

    async def kill() -> None:
        while True:
            state = read_state(cluster.paths)
            found = state.component(name) if state is not None else None
            if found is not None and found.phase in (Phase.STARTING, Phase.READY) and found.pid:
                with suppress(ProcessLookupError):
                    os.kill(found.pid, signal.SIGKILL)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(kill())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()


async def test_nodes_and_pods_reach_the_other_processes_and_the_only_one(host: RealPods, tmp_path: Path) -> None:
    """H02: leases are renewed, and the Service `kubernetes` answers, at the same address; no more ports are open."""
    name, kind = "web", DedicatedCluster.resource
    await host.api.make_tenant(name)
    await host.api.open(name)
    spec = {"nodes": 1, "controlPlane": {"replicas": 3}}
    await host.api.create(kind, {"metadata": {"name": name}, "spec": spec}, name)
    code, _, err = await command(host.cluster, "cluster", "wait", name, "--timeout", "240s")
    assert code == 0, err
    code, text, err = await command(host.cluster, "cluster", "kubeconfig", name)
    assert code == 0, err
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    uid = (await host.api.get(VirtualControlPlane.resource, name, name))["metadata"]["uid"]
    process = hostedprocess.known(hostedfolders.of(host.cluster.paths, uid))
    assert process is not None
    (node,) = memberships.away(host.cluster.paths)
    async with Client(kubeconfig.load([file])) as client:
        inside = RealPods(host.cluster, Api(client))
        await inside.make("default", "web", node, "runc")
        address = (await inside.api.get(SERVICES, "kubernetes", "default"))["spec"]["clusterIP"]

        async def renewed() -> str:
            try:
                return (await inside.api.get(LEASES, node, "kube-node-lease"))["spec"]["renewTime"]
            except ApiError:
                return ""  # a connection to the process that was killed

        async def pods_find_it() -> bool:
            connect = ("exec", "web", "--", "/agnhost", "connect", "--timeout=5s", f"{address}:443")
            return not (await Kubectl(file).run(*connect)).returncode

        async def goes_on() -> None:
            for _ in range(3):
                before = await until(renewed, "the node has a lease", seconds=SECONDS)

                async def later(before: str = before) -> bool:
                    return await renewed() > before

                await until(later, "the lease is renewed", seconds=SECONDS)
            await until(pods_find_it, "a pod reaches the Service", seconds=SECONDS)
            conditions = (await inside.api.get(Node.resource, node))["status"]["conditions"]
            assert [each["status"] for each in conditions if each["type"] == "Ready"] == ["True"]

        async with away(host.cluster, f"hosted@{process.name}"):
            await goes_on()
        bridge = memberships.read(host.cluster.paths, node)
        assert bridge is not None
        at = bridge.server.removeprefix("https://").partition(":")[0]
        assert inside.inside(node, lambda: connects(at, process.internal))
        for port in (process.port, process.operator, *process.others):
            assert not inside.inside(node, lambda port=port: connects(at, port))
        # Nodes that have joined keep the address when one process is left.
        await host.api.patch(kind, name, {"spec": {"controlPlane": {"replicas": 1}}}, name)

        async def is_alone() -> bool:
            found = hostedprocess.known(hostedfolders.of(host.cluster.paths, uid))
            return found is not None and not found.of_any

        await until(is_alone, "one process is left", seconds=SECONDS)
        await goes_on()
        assert not inside.inside(node, lambda: connects(at, process.of_any))

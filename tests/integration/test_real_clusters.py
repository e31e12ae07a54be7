"""Machines of real nodes that leave the host for the cluster of a tenant, and return; see test_real_nodes.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import SliceClaim
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build, hostedversions
from tenantry.local.process import start_ticks
from tenantry.local.real import cgroups, kubelets, loops, memberships, network, planebridges
from testkit import realhosts
from testkit.api import PODS, Api, until
from testkit.kubectl import Kubectl
from testkit.planes import command
from testkit.realpods import PORT, RealPods, connects, missing

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

CLUSTER = "realclusters"
EARLIER, LATER = hostedversions.known()[-2:]
_IS_BUILT = bool(build.built(hostedversions.product(EARLIER.name)) and kubelets.folder(EARLIER.name))
SECONDS = 240.0
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)


@pytest_asyncio.fixture(scope="module")
async def host(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RealPods]:
    """A cluster with three real nodes and the operator: one node stays shared."""
    async with realhosts.hosting(CLUSTER, tenantry_home, tmp_path_factory.mktemp("images"), nodes=3) as found:
        yield found


async def _tenantry(host: RealPods, *arguments: str) -> str:
    code, out, err = await command(host.cluster, *arguments)
    assert not code, f"{arguments}: {err}"
    return out


async def _is_ready(host: RealPods, name: str) -> bool:
    conditions = (await host.api.get(Node.resource, name))["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _keeps_data(inside: RealPods, users: Kubectl, place: str, folder: Path) -> None:
    """A claim of a pod gets a volume on the machine, whose data the next pod finds, and which ends with the claim."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    await inside.api.create(CLAIMS, {"metadata": {"name": "data"}, "spec": claim}, "default")
    more = {
        "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    }
    await inside.make("default", "writer", place, "runc", **more)
    said = await users.run("exec", "writer", "--", "/agnhost", "mounttest", "--new_file_0644=/data/f")
    assert not said.returncode, said.stderr
    await inside.api.delete(PODS, "writer", "default")
    await inside.api.gone(PODS, "writer", "default")
    await inside.make("default", "reader", place, "runc", **more)
    said = await users.run("exec", "reader", "--", "/agnhost", "mounttest", "--file_content=/data/f")
    assert "mount-tester new file" in said.stdout, said.stderr
    (image,) = await asyncio.to_thread(lambda: [*folder.glob("pvc-*.img")])
    await inside.api.delete(PODS, "reader", "default")
    await inside.api.delete(CLAIMS, "data", "default")

    async def is_gone() -> bool:
        return not await inside.api.list(VOLUMES) and not image.exists() and not loops.below(folder)

    await until(is_gone, "the volume, its image and its device are gone", seconds=SECONDS)


async def test_machines_serve_the_cluster_of_a_tenant_and_return(host: RealPods, tmp_path: Path) -> None:
    """H04, H05: pods, logs and exec inside; nothing of the host on the machine; nothing of the tenant afterwards."""
    paths = host.cluster.paths
    await _tenantry(host, "cluster", "create", "acme", "--nodes", "2", "--wait", "--timeout", "240s")
    uid = (await host.api.get(VirtualControlPlane.resource, "acme", "acme"))["metadata"]["uid"]
    bridge = planebridges.find(paths.folder / "hosted" / uid)
    assert bridge is not None
    # One node, of all three, stays with the host.
    first, second = sorted(memberships.away(paths))
    assert bridge.block != host.cluster.real().block
    file = tmp_path / "acme.kubeconfig"
    file.write_text(await _tenantry(host, "cluster", "kubeconfig", "acme"))
    async with Client(kubeconfig.load([file])) as client:
        inside = RealPods(host.cluster, Api(client))
        spots = [await inside.make("default", f"web-{place}", place, "runc") for place in (first, second)]
        assert not await inside.mismatches([(spots[0], spots[1].address, PORT, "http", True)]), "across both machines"
        users = Kubectl(file)
        said = await users.run("exec", f"web-{first}", "--", "/agnhost", "connect", "--timeout=5s", f"127.0.0.1:{PORT}")
        assert not said.returncode, said.stderr
        said = await users.run("logs", f"web-{first}")
        assert "HTTP server" in said.stdout, said.stderr
        await _keeps_data(inside, users, first, memberships.folder_in(paths, uid, first) / "disks")
        # Of this machine, only the endpoint for nodes is open at the bridge.
        address, port = bridge.addresses.bridge, host.cluster.spec().ports.apiserver
        assert inside.inside(first, lambda: connects(address, bridge.port))
        assert not inside.inside(first, lambda: connects(address, port))
        assert not inside.inside(first, lambda: connects("10.255.0.1", 443))
    left = {each.name for each in memberships.host_folder(paths, first).iterdir()}
    assert left <= {"volumes", "disks"}, "no identity and no images of the host"

    await _tenantry(host, "cluster", "delete", "acme", "--yes", "--timeout", "240s")
    for name in (first, second):
        await until(lambda name=name: _is_ready(host, name), f"{name} is Ready for the host", seconds=SECONDS)
        spot = await host.make("default", f"back-{name}", name, "runc")
        assert spot.node == name
    assert not await host.api.list(NodeHandover.resource)
    assert not [*(paths.folder / "machines").glob("*.json")]
    assert not (paths.folder / "hosted" / uid).exists()
    assert not network.is_laid(planebridges.name(paths.folder / "hosted" / uid))


async def test_a_cluster_with_a_machine_that_hangs_ends(host: RealPods) -> None:
    """H04: the end does not wait for what a machine that does not answer would have to confirm; it is wiped, too."""
    paths, own = host.cluster.paths, network.identity(host.cluster.paths.folder)
    await _tenantry(host, "cluster", "create", "dead", "--nodes", "2", "--wait", "--timeout", "240s")
    uid = (await host.api.get(VirtualControlPlane.resource, "dead", "dead"))["metadata"]["uid"]
    dead, alive = sorted(memberships.away(paths))
    for each in _processes(own, dead):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGSTOP)

    async def is_lost() -> bool:
        found = await host.api.get(NodeHandover.resource, dead)
        return found["status"]["stage"] != "Joined"

    await until(is_lost, "the node is not Ready inside", seconds=SECONDS)
    began = time.monotonic()
    await _tenantry(host, "cluster", "delete", "dead", "--yes", "--timeout", "240s")
    print(f"deleted with a machine that hangs after {time.monotonic() - began:.1f} s")
    assert not (paths.folder / "hosted" / uid).exists()
    assert not network.is_laid(planebridges.name(paths.folder / "hosted" / uid))
    for name in (dead, alive):
        await until(lambda name=name: _is_ready(host, name), f"{name} is Ready for the host", seconds=SECONDS)

    async def is_over() -> bool:
        return not await host.api.list(NodeHandover.resource) and not await host.api.list(SliceClaim.resource)

    await until(is_over, "its nodes and its claims are back", seconds=SECONDS)
    assert not [*(paths.folder / "machines").glob("*.json")]


def _processes(cluster: str, name: str) -> list[int]:
    """Return the processes of a machine."""
    return sorted(
        {
            int(line)
            for each in cgroups.hierarchies()
            for file in (each.root / cluster / name).rglob("cgroup.procs")
            for line in file.read_text().split()
        }
    )


@pytest.mark.skipif(not _IS_BUILT, reason="`tenantry local build --with-nodes --hosted-version` has not been run")
async def test_machines_are_rebuilt_with_the_kubelet_of_the_next_version(host: RealPods) -> None:
    """H04: a machine leaves with the kubelet of before, is wiped, and joins with that of the control plane."""
    name = "old"
    await _tenantry(host, "cluster", "create", name, "--version", EARLIER.name, "--wait", "--timeout", "240s")
    (before,) = await host.api.list(NodeHandover.resource)
    assert before["status"]["kubelet"] == f"v{EARLIER.kubernetes}"
    await host.api.patch(DedicatedCluster.resource, name, {"spec": {"upgrade": {"soakSeconds": 2}}}, name)
    told = await _tenantry(host, "cluster", "upgrade", name, "--plan")
    assert "its nodes are rebuilt" in told
    began = time.monotonic()
    await _tenantry(host, "cluster", "upgrade", name, "--yes", "--timeout", "600s")
    status: dict[str, object] = {}

    async def is_rebuilt() -> bool:
        nonlocal status
        status = (await host.api.get(DedicatedCluster.resource, name, name))["status"]
        versions = {"controlPlane": LATER.kubernetes, "oldestNode": LATER.kubernetes, "newestNode": LATER.kubernetes}
        return status["readyNodes"] == "1/1" and status["versions"] == versions

    await until(is_rebuilt, "its node has the next version", seconds=SECONDS, seen=lambda: status)
    print(f"upgraded with its node after {time.monotonic() - began:.1f} s")
    (after,) = await host.api.list(NodeHandover.resource)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["version"] == LATER.name
    assert after["status"]["kubelet"] == f"v{LATER.kubernetes}"
    await _tenantry(host, "cluster", "delete", name, "--yes", "--timeout", "240s")


async def test_nothing_is_left_of_a_cluster_that_ends_with_its_machines_away(host: RealPods) -> None:
    """H05: machines, bridges and cgroups end with the host, also those of tenants."""
    paths = host.cluster.paths
    await _tenantry(host, "cluster", "create", "shop", "--nodes", "1", "--wait", "--timeout", "240s")
    uid = (await host.api.get(VirtualControlPlane.resource, "shop", "shop"))["metadata"]["uid"]
    bridge = planebridges.name(paths.folder / "hosted" / uid)
    away = next(iter(memberships.away(paths)))
    pid = host.pid(away)
    assert network.is_laid(bridge)
    await host.cluster.down()
    assert not network.is_laid(bridge)
    assert not start_ticks(pid)
    own = network.identity(paths.folder)
    assert not [each for each in cgroups.hierarchies() if (each.root / own).exists()]
    # Other tests of this file may come later, and need the machines.
    await realhosts.start(host.cluster, nodes=3)
    await _tenantry(host, "cluster", "delete", "shop", "--yes", "--timeout", "240s")

"""A real node joins a running cluster with a token alone, and leaves it; see test_real_nodes.py for where."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.errors import Forbidden
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.nodeview import NodeView
from tenantry.api.slice import SliceClaim
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.real import node as real_node
from tenantry.local.real import settings
from tenantry.world.netpol.objects import NAMESPACES as SPACES
from tenantry.world.netpol.objects import POLICIES
from tenantry.world.netpol.services import ENDPOINT_SLICES as SLICES
from tenantry.world.netpol.services import SERVICES
from tenantry.world.netpol.view import decoded
from testkit.api import PODS, Api, until
from testkit.installation import install
from testkit.pool import claim, give_every_node, slice_marks, state
from testkit.realpods import PORT, RealPods, missing

pytest_plugins = ["testkit.fixtures"]

CLUSTER = "joined"
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
SECONDS = 120.0
OWN_RUNTIME = {"network": "Isolated", "runtime": "Shared"}


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest_asyncio.fixture(scope="module")
async def cluster(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster with two real nodes and the operator: one runs the cluster's DNS, so no slice gets it."""
    local = LocalCluster(CLUSTER, root=tenantry_home)
    await local.up(UpOptions(throwaway=True, install=install, operator=True, real_nodes=2, timeout_seconds=240.0))
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="module")
async def api(cluster: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of it."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        api = Api(client)
        await give_every_node(api)
        yield api


async def command(*arguments: str) -> str:
    """Run a command of `tenantry`; its stdout is returned."""
    code, out, err = await outcome(*arguments)
    assert code == 0, err
    return out


async def outcome(*arguments: str) -> tuple[int | None, str, str]:
    """Run a command of `tenantry`; its exit code, stdout and stderr are returned."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    return child.returncode, out.decode(), err.decode()


async def test_a_real_node_joins_and_is_taken_back(cluster: LocalCluster, api: Api, name: str) -> None:
    """E19, E20: by what `contribute` prints it is Ready, labelled and its tenant's first; then it is taken back."""
    await api.make_tenant(name)
    about = (f"--tenant={name}", "--owner=ada", "--location=rome", "--device=laptop")
    said = (await command("node", "contribute", f"--cluster={CLUSTER}", *about)).split()
    assert said[:3] == ["tenantry", "node", "join"]
    joined = (await command(*said[1:], "--timeout=240s")).strip()
    # Nothing was given to it but the token.
    folder = real_node.folder_of(cluster.paths, joined) / "node"
    given = {each.name for each in await asyncio.to_thread(lambda: list(folder.iterdir()))}
    assert "bootstrap.kubeconfig" in given
    assert not given & {"kubelet.key", "kubelet.kubeconfig", "kube-proxy.kubeconfig"}

    async def labelled() -> bool:
        labels = (await api.get(Node.resource, joined))["metadata"]["labels"]
        wanted = {marks.CONTRIBUTED_BY: name, marks.OWNER: "ada", marks.LOCATION: "rome", marks.DEVICE: "laptop"}
        return {key: labels.get(key) for key in wanted} == wanted

    await until(labelled, "the node says whose it is")

    async def served() -> bool:
        # Its kubelet serves under a certificate that the cluster's authority has signed.
        done: subprocess.CompletedProcess[str] = await asyncio.to_thread(
            cluster.kubectl, "get", "--raw", f"/api/v1/nodes/{joined}/proxy/healthz"
        )
        return done.stdout == "ok"

    await until(served, "the API server reaches the kubelet", seconds=SECONDS)
    await claim(api, name, "web", users="Everybody", gracePeriodSeconds=0)
    assert (await state(api, name, "web", "Bound"))["status"]["nodes"] == [joined]

    async def has_cleaner() -> bool:
        return marks.NODE_AGENT in (await api.get(Node.resource, joined))["metadata"]["annotations"]

    await until(has_cleaner, "the node has an agent", seconds=SECONDS)
    await command("node", "take-back", f"--cluster={CLUSTER}", joined, "--timeout=240s")
    assert await api.find(Node.resource, joined) is None

    async def replaced() -> bool:
        return any([slice_marks(await api.get(Node.resource, f"real-{number}"))[1] for number in (1, 2)])

    await until(replaced, "the slice has the other node")
    await api.delete(SliceClaim.resource, "web", name)
    await command("node", "delete", f"--cluster={CLUSTER}", joined)


@pytest.mark.usefixtures("cluster")
async def test_up_with_a_number_of_nodes_means_the_kind_that_the_cluster_has(api: Api) -> None:
    """H06: without --runtime, nodes of a real cluster stay real."""
    code, _, err = await outcome("up", f"--cluster={CLUSTER}", "--nodes=2")
    assert code == 0, err
    nodes = await api.list(Node.resource)
    assert {each["metadata"]["name"] for each in nodes} >= {"real-1", "real-2"}
    assert all(each["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://") for each in nodes)


async def test_the_identity_of_a_node_ends_when_it_is_taken_back(cluster: LocalCluster, api: Api) -> None:
    """E19: pods of DaemonSets leave first, its kubelet does not register again, and no command waits for the node."""
    said = (await command("node", "contribute", f"--cluster={CLUSTER}")).split()
    joined = (await command(*said[1:], "--timeout=240s")).strip()
    await run_everywhere(api, joined)
    await command("node", "take-back", f"--cluster={CLUSTER}", joined, "--timeout=240s")
    assert await api.find(Node.resource, joined) is None
    assert not [each for each in await api.list(PODS, "kube-system") if each["spec"].get("nodeName") == joined]
    # Its kubelet starts with a valid certificate, and does not get in; no command waits for it.
    await cluster.restart_component(joined, timeout_seconds=SECONDS)
    added = (await command("node", "create", f"--cluster={CLUSTER}", "--timeout=120s")).strip()
    await command("node", "delete", f"--cluster={CLUSTER}", added)
    assert await api.find(Node.resource, joined) is None
    code, _, said = await outcome("node", "restart", f"--cluster={CLUSTER}", joined, "--timeout=120s")
    assert (code, f"tenantry node delete {joined}" in said) == (2, True), said
    await command("node", "delete", f"--cluster={CLUSTER}", joined)


async def test_a_contributed_node_sees_only_what_runs_on_it(
    cluster: LocalCluster, api: Api, name: str, tmp_path: Path
) -> None:
    """E19, H06: its certificate reads its view, and its pods have Services, names and NetworkPolicies from that."""
    other = f"{name}-o"
    await asyncio.gather(*(api.make_tenant(each, isolation=OWN_RUNTIME) for each in (name, other)))
    said = (await command("node", "contribute", f"--cluster={CLUSTER}", f"--tenant={name}")).split()
    joined = (await command(*said[1:], "--timeout=240s")).strip()
    pods = RealPods(cluster, api)
    await pods.load_image(tmp_path)
    await make_services(api, name, other)
    visiting = {"key": marks.CONTRIBUTED_BY, "operator": "Equal", "value": name, "effect": "NoSchedule"}
    own, far, foreign = await asyncio.gather(
        pods.make(name, "own", joined, "runc", spec={"tolerations": [visiting]}),
        pods.make(name, "far", "real-1", "runc"),
        pods.make(other, "foreign", "real-1", "runc"),
    )
    address = (await api.get(SERVICES, "far", name))["spec"]["clusterIP"]
    # kube-proxy loads its rules once a second.
    await until(lambda: pods.reaches(own, address, 80), "the node has the Service", seconds=SECONDS)
    rows = [
        (own, far.address, PORT, "http", True),
        (own, address, 80, "http", True),
        (own, f"far.{name}.svc.cluster.local", 80, "http", True),
        (far, own.address, PORT, "http", True),
        (own, foreign.address, PORT, "http", False),
        (foreign, own.address, PORT, "http", False),
    ]
    assert await pods.mismatches(rows) == []
    # With what is on its disk, its owner reads no more than that.
    async with Client(of_node(cluster, joined)) as client:
        itself = Api(client)
        view = decoded((await client.get(NodeView, joined)).spec)
        assert {each["metadata"]["name"] for each in view.services} == {"far", "kube-dns", "kubernetes"}
        assert other not in str(msgspec.json.encode(view))
        assert foreign.address not in str(msgspec.json.encode(view))
        # Kubernetes lets every kubelet list Services, for the environment of containers.
        for resource in (PODS, SPACES, Node.resource, POLICIES, SLICES):
            with pytest.raises(Forbidden):
                await itself.list(resource)
            if resource.namespaced:
                with pytest.raises(Forbidden):
                    await itself.list(resource, other)
        with pytest.raises(Forbidden):
            await itself.get(PODS, "foreign", other)
        with pytest.raises(Forbidden):
            await itself.list(NodeView.resource)
    await api.delete(PODS, "far", name)
    again = await pods.make(name, "far", "real-2", "runc")
    await until(lambda: pods.reaches(own, address, 80), "the node has the new endpoint", seconds=SECONDS)
    assert await pods.mismatches([(own, again.address, PORT, "http", True)]) == []
    # A pod without a controller would keep its node for the grace period of a minute.
    await api.delete(PODS, "own", name)
    await command("node", "take-back", f"--cluster={CLUSTER}", joined, "--timeout=240s")

    async def forgotten() -> bool:
        return await api.find(NodeView.resource, joined) is None

    await until(forgotten, "the view is gone with the node")
    await command("node", "delete", f"--cluster={CLUSTER}", joined)


async def make_services(api: Api, *namespaces: str) -> None:
    """Make a Service of the pod "far" in each namespace."""
    ports = [{"port": 80, "targetPort": PORT, "protocol": "TCP"}]
    for namespace in namespaces:
        spec = {"selector": {"app": "far"}, "ports": ports}
        await api.create(SERVICES, {"metadata": {"name": "far"}, "spec": spec}, namespace)


def of_node(cluster: LocalCluster, node: str) -> Connection:
    """Return the connection of a joined node, with the certificate that its kubelet has."""
    # "kubelet-client-current.pem" is a link to a path in the node's own mount namespace.
    found = sorted((real_node.folder_of(cluster.paths, node) / "kubelet/pki").glob("kubelet-client-2*.pem"))
    whole = found[-1].read_bytes()
    return msgspec.structs.replace(kubeconfig.load([cluster.kubeconfig_path]), certificate=whole, key=whole)


async def run_everywhere(api: Api, node: str) -> None:
    """Run a DaemonSet of the cluster's administrator, and wait for its pod on a node."""
    labels = {"app": "everywhere"}
    container = {"name": "pause", "image": settings.PAUSE, "imagePullPolicy": "IfNotPresent"}
    # As DaemonSets of every cluster: they tolerate more taints than other pods, and cordons do not concern them.
    spec = {"containers": [container], "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    whole = {"metadata": {"name": "everywhere"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    await api.create(DAEMON_SETS, whole, "kube-system")

    async def runs() -> bool:
        found = await api.list(PODS, "kube-system")
        return any(each["spec"].get("nodeName") == node and each["status"]["phase"] == "Running" for each in found)

    await until(runs, "the DaemonSet has a pod on the node", seconds=SECONDS)

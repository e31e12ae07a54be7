"""Virtual control planes in Pods of a cluster with real nodes, as on a cluster that Tenantry did not create.

The operator runs in Pods, too, with the rights that `tenantry install --virtual-control-planes` gives it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import ApiError
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE, PlanePhase, VirtualControlPlane
from tenantry.controllers.virtualcontrolplane.shards import Shard, lease_name
from tenantry.engine.lease import Lease
from tenantry.hostedpods import jobs, objects, seenpods, sharedetcd, versionimages
from tenantry.hosting import sidecar, stores
from tenantry.install import planeproxy, planestore
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build, hostedversions
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.files import write_private
from tenantry.local.real import loading
from tenantry.local.real.network import NodeAddresses
from testkit.api import PODS, SECRETS, Api, until
from testkit.etcdaccess import opens_only_its_prefix
from testkit.kubectl import Kubectl
from testkit.outsidemachine import OutsideMachine, kubelet
from testkit.planes import Planes, ready
from testkit.podplanes import (
    EARLIER,
    EARLIER_IMAGE,
    are_asked_for,
    asked,
    entered,
    has_audit_log,
    images_in,
    installed,
    is_ready,
    is_rotated,
    kubeconfig_of,
    names,
    run_deployment,
    the_pod,
    the_pods,
    the_proxy,
)
from testkit.realpods import START_SECONDS, RealPods, Spot, connects, missing

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Json = dict[str, Any]
IN_SANDBOX: Json = {"runtime": "Sandboxed", "datastore": {"kind": "OwnEtcd"}}


def upgrades() -> bool:
    """Return whether the program of the earlier version is there, or is built for the release tests."""
    is_built = build.built(hostedversions.product(EARLIER.name)) is not None
    return is_built or os.environ.get("TENANTRY_TEST_REAL") == "1"


@pytest_asyncio.fixture(scope="module")
async def pods(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPods]:
    """The host's pods of a cluster with two real nodes, in which Tenantry is installed as in any other cluster."""
    folder = tmp_path_factory.mktemp("images")
    written = await asyncio.to_thread(images_in, folder, has_earlier=upgrades())
    cluster = LocalCluster("podplanes", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=2, timeout_seconds=180.0))
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        found = RealPods(cluster, Api(client))
        await found.load_image(folder)
        real = cluster.real()
        names = [each.name for each in real.nodes]
        for reference, file in written.items():
            await loading.load(cluster.paths, real.binaries, names, file, reference)
        await asyncio.to_thread(installed, cluster.kubeconfig_path, EARLIER_IMAGE if EARLIER_IMAGE in written else "")
        yield found
    await cluster.down(purge=True)


@pytest.fixture(scope="module")
def planes(pods: RealPods, tmp_path_factory: pytest.TempPathFactory) -> Planes:
    """Virtual control planes of this cluster."""
    return Planes(pods.api, tmp_path_factory.mktemp("planes"))


async def test_a_control_plane_in_a_pod_works_and_leaves_nothing(pods: RealPods, planes: Planes, name: str) -> None:
    """H01: logs, exec and metrics go through the sidecar; a Pod that is replaced is found again, with its objects."""
    host = planes.host
    await host.make_tenant(name, isolation={"runtime": "Shared"})
    spec = {"audit": {"level": "Metadata"}}
    await host.create(VirtualControlPlane.resource, {"metadata": {"name": "web"}, "spec": spec}, name)
    await is_ready(host, name)
    uid = (await host.get(VirtualControlPlane.resource, "web", name))["metadata"]["uid"]
    kubectl = Kubectl(await kubeconfig_of(planes, name, uid))
    await run_deployment(planes, kubectl, name)
    await kubectl.out("expose", "deployment", "web", "--port=8080")

    async def logged() -> bool:
        return "Started HTTP server" in await kubectl.out("logs", "deployment/web")

    await until(logged, "the server has said that it listens")
    assert await kubectl.out("exec", "deployment/web", "--", "/agnhost", "help")
    await has_audit_log(pods.cluster, name)
    await are_asked_for(host, kubectl)
    kubectl = await is_rotated(planes, name, uid)
    before = await the_pod(host, uid)
    own, proxy = Spot.of(before), Spot.of(await the_proxy(host))
    (lower,) = [each for each in await host.list(PODS, name) if each["status"]["phase"] == "Running"]
    theirs = Spot.of(lower)
    variables = {each["name"]: each.get("value") for each in lower["spec"]["containers"][0]["env"]}
    attempts: list[tuple[str, Spot, str, int, bool]] = [
        ("a pod of the tenant to its API server", theirs, variables["KUBERNETES_SERVICE_HOST"], 443, True),
        ("a pod of the tenant to the tunnel", theirs, own.address, sidecar.TUNNEL_PORT, False),
        ("a pod of the tenant past the proxy", theirs, own.address, sidecar.API_PORT, False),
        ("a pod of the tenant to the channel of operators", theirs, proxy.address, planeproxy.CONTROL_PORT, False),
        ("the Pod to the channel of operators", own, proxy.address, planeproxy.CONTROL_PORT, False),
        ("the proxy to the tunnel", proxy, own.address, sidecar.TUNNEL_PORT, False),
        ("the proxy to the host's Service", proxy, "10.96.0.1", 443, False),
        ("the Pod to itself", own, "127.0.0.1", sidecar.INTERNAL_PORT, True),
        ("the Pod to the host's API server", own, bridge_of(pods), pods.cluster.spec().ports.apiserver, False),
        ("the Pod to the host's Service", own, "10.96.0.1", 443, False),
        ("the Pod to a pod of the tenant", own, theirs.address, 8080, False),
    ]
    tried = await asyncio.gather(*(pods.inside_pod(each[1], partial(connects, each[2], each[3])) for each in attempts))
    assert [(each[0], found) for each, found in zip(attempts, tried, strict=True) if found is not each[4]] == []
    await host.delete(PODS, before["metadata"]["name"], PROCESS_NAMESPACE)

    async def moved() -> bool:
        found = await the_pods(host, uid)
        return any(
            each["metadata"]["uid"] != before["metadata"]["uid"] and seenpods.seen(each).is_ready for each in found
        )

    await until(moved, "the Pod is replaced", seconds=START_SECONDS)
    await is_ready(host, name)
    kubectl = Kubectl(await kubeconfig_of(planes, name, uid))

    async def connected() -> bool:
        # A Service is created on the host first, by the admission step.
        return (await kubectl.run("create", "service", "clusterip", "later", "--tcp=80")).returncode == 0

    await until(connected, "the operator is connected to the new Pod", seconds=START_SECONDS)
    assert "web" in await kubectl.out("get", "deployments", "-o", "name")
    # The replica that serves it ends, and another one takes its shard.
    shard = next(each for each in (Shard(0, 2), Shard(1, 2)) if each.has(uid))
    lease = await host.get(Lease.resource, lease_name(shard.index), SYSTEM_NAMESPACE)
    replica = lease["spec"]["holderIdentity"].partition("_")[0]
    await host.delete(PODS, replica, SYSTEM_NAMESPACE)

    async def taken() -> bool:
        found = await host.get(Lease.resource, lease_name(shard.index), SYSTEM_NAMESPACE)
        return (found["spec"].get("holderIdentity") or replica).partition("_")[0] != replica

    await until(taken, "another replica has the shard", seconds=START_SECONDS)
    await kubectl.out("delete", "service", "later")
    await until(connected, "the other replica is connected", seconds=START_SECONDS)
    await planes.delete(name, "web")
    kinds = (objects.SECRETS, objects.SERVICES, objects.STATEFUL_SETS, PODS)
    left = [each["metadata"]["name"] for kind in kinds for each in await host.list(kind, PROCESS_NAMESPACE)]
    assert [each for each in left if uid in each] == []
    await host.gone(objects.CLAIMS, objects.name(uid), PROCESS_NAMESPACE)


async def is_in_sandbox(pods: RealPods, uid: str) -> None:
    """Check that nothing of the Pod of a control plane is a process on the kernel of its node."""
    own = await the_pod(pods.api, uid)
    assert own["spec"]["runtimeClassName"] == "gvisor"
    assert await pods.programs(Spot.of(own)) == {"runsc"}


async def test_a_control_plane_in_a_sandbox_serves_its_users(pods: RealPods, planes: Planes, name: str) -> None:
    """H04: kubectl, logs, exec, admission on the host and the audit log go on as on the kernel of a node."""
    host = planes.host
    await host.make_tenant(name, isolation={"runtime": "Shared"})
    spec = {**IN_SANDBOX, "audit": {"level": "Metadata"}}
    await host.create(VirtualControlPlane.resource, {"metadata": {"name": "web"}, "spec": spec}, name)
    await is_ready(host, name)
    uid = (await host.get(VirtualControlPlane.resource, "web", name))["metadata"]["uid"]
    await is_in_sandbox(pods, uid)
    kubectl = Kubectl(await kubeconfig_of(planes, name, uid))
    await run_deployment(planes, kubectl, name)
    # A Service is created on the host first, by the admission step.
    await kubectl.out("expose", "deployment", "web", "--port=8080")
    assert "Started HTTP server" in await kubectl.out("logs", "deployment/web")
    assert await kubectl.out("exec", "deployment/web", "--", "/agnhost", "help")
    await has_audit_log(pods.cluster, name)
    await are_asked_for(host, kubectl)
    await planes.delete(name, "web")


async def test_a_machine_from_outside_joins_a_cluster_in_a_pod(planes: Planes, name: str, tmp_path: Path) -> None:
    """H04: at the port for machines of the Service; the API server reaches its kubelet through the tunnel alone."""
    host, node, address = planes.host, "outside-a1b2c3", "192.168.77.5"
    await host.make_tenant(name)
    entry: Json = {"name": node, "addresses": [address], "podRange": "10.200.7.0/24"}
    body: Json = {"metadata": {"name": "web"}, "spec": {"nodes": 0, "contributed": [entry]}}
    await host.create(DedicatedCluster.resource, body, name)
    seen: Json = {}

    async def has_token() -> bool:
        found = await host.get(DedicatedCluster.resource, "web", name)
        listed: list[Json] = found.get("status", {}).get("contributed") or [{}]
        seen.update(listed[0])
        return bool(seen.get("token"))

    await until(has_token, "the machine has a token", seconds=START_SECONDS, seen=lambda: seen)
    uid = (await host.get(VirtualControlPlane.resource, "web", name))["metadata"]["uid"]
    service = await host.get(objects.SERVICES, objects.name(uid), PROCESS_NAMESPACE)
    assert seen["server"] == f"https://{service['spec']['clusterIP']}:{sidecar.INTERNAL_PORT}"
    (port,) = (each["targetPort"] for each in service["spec"]["ports"] if each["name"] == objects.NODES)
    users = kubeconfig.load([await kubeconfig_of(planes, name, uid)])
    async with Client(users) as client:
        inside = Api(client)
        data = (await inside.get(SECRETS, f"bootstrap-token-{seen['token']}", "kube-system"))["data"]
        # As `kubeconfig_of`: this machine has no way to addresses of Services.
        server = f"https://{objects.at_port((await the_proxy(host))['status']['podIP'], port)}"
        token = f"{seen['token']}.{base64.b64decode(data['token-secret']).decode()}"
        first = replace(users, server=server, certificate=None, key=None, token=token)
        machine = await OutsideMachine.join(first, node, address)
        async with Client(machine.connection) as own, kubelet(machine, tmp_path) as local:
            await Api(own).create(Node.resource, {"metadata": {"name": node}})
            status: Json = {
                "addresses": [{"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            await client.merge_patch(Node.resource, "", node, {"status": status}, subresource="status")

            async def is_open() -> bool:
                try:
                    async with machine.tunnel(local):
                        return True
                except ApiError:  # the aggregated API is not available yet
                    return False

            await until(is_open, "the tunnel can be opened", seconds=START_SECONDS)
            async with machine.tunnel(local):

                async def answered() -> bool:
                    path = f"/api/v1/nodes/{node}/proxy/healthz"
                    try:
                        return await client.request("GET", path, attempts=1) == b"through"
                    except ApiError:  # the operator has not seen the tunnel yet
                        return False

                await until(answered, "the kubelet answers through the tunnel", seconds=START_SECONDS)
            assert set(machine.dialled) == {(address, 10250)}
    await host.delete(DedicatedCluster.resource, "web", name)
    await host.gone(DedicatedCluster.resource, "web", name)


async def test_a_template_with_a_sandbox_has_the_clusters_in_it(pods: RealPods, planes: Planes, name: str) -> None:
    """H04: a cluster does not ask for it; SQLite is refused; owners are administrators inside."""
    host = planes.host
    await host.make_tenant(name)
    spec: Json = {"versions": [versionimages.DEFAULT.name], "runtime": "Sandboxed"}
    await host.create(ClusterTemplate.resource, {"metadata": {"name": name}, "spec": spec})
    wanted: Json = {"template": name, "nodes": 0, "controlPlane": {"runtime": "Shared"}}
    unsafe = {**wanted, "controlPlane": {"datastore": {"kind": "SQLite"}}}
    for each, of in (("web", wanted), ("unsafe", unsafe)):
        await host.create(DedicatedCluster.resource, {"metadata": {"name": each}, "spec": of}, name)
    seen: Json = {}

    async def is_refused() -> bool:
        seen.update(ready(await host.get(DedicatedCluster.resource, "unsafe", name)))
        return "with the datastore OwnEtcd, SharedEtcd or External" in seen.get("message", "")

    await until(is_refused, "SQLite is refused", seconds=START_SECONDS, seen=lambda: seen)

    async def is_there() -> bool:
        seen.update(ready(await host.get(DedicatedCluster.resource, "web", name)))
        return seen.get("status") == "True"

    await until(is_there, "the cluster is ready", seconds=START_SECONDS, seen=lambda: seen)
    uid = (await host.get(VirtualControlPlane.resource, "web", name))["metadata"]["uid"]
    await is_in_sandbox(pods, uid)
    kubectl = Kubectl(await kubeconfig_of(planes, name, uid))
    await kubectl.out("create", "namespace", "shop")
    await kubectl.out("create", "deployment", "web", "--image=web", "--namespace=shop")

    async def is_controlled() -> bool:
        return "pod/web-" in await kubectl.out("get", "pods", "--namespace=shop", "-o", "name")

    await until(is_controlled, "its controllers work", seconds=START_SECONDS)
    for each in ("web", "unsafe"):
        await host.delete(DedicatedCluster.resource, each, name)
    for each in ("web", "unsafe"):
        await host.gone(DedicatedCluster.resource, each, name)
    await host.delete(ClusterTemplate.resource, name)


async def the_etcd(host: Api) -> Json:
    """Return the Pod of the etcd that control planes share."""
    found = await host.list(PODS, PROCESS_NAMESPACE)
    (own,) = [each for each in found if planestore.SELECTOR.items() <= each["metadata"]["labels"].items()]
    return own


async def opens_no_other_prefix(pods: RealPods, own: Spot, uid: str, address: str) -> None:
    """Use the certificate of a control plane from its Pod: another prefix is refused."""
    forwarder, hosted = build.built(build.ENDPOINT_PROXY), build.built(build.HOSTED)
    assert forwarder is not None
    assert hosted is not None
    files = objects.files_of(await pods.api.get(SECRETS, objects.name(uid), PROCESS_NAMESPACE))
    with tempfile.TemporaryDirectory(prefix="etcd-") as name:
        folder = Path(name)
        for each in (f"{stores.ETCD_AUTHORITY}.crt", f"{stores.ETCD_CLIENT}.crt", f"{stores.ETCD_CLIENT}.key"):
            write_private(folder / each, files[each])
        access = folder / "access.json"
        way = stores.access(str(folder), stores.ETCD_AUTHORITY, stores.ETCD_CLIENT)
        write_private(access, msgspec.json.encode(way))
        command = (forwarder.endpoint_proxy, "datastore", folder / stores.ETCD_SOCKET, address)
        process = await pods.inside_pod(own, partial(subprocess.Popen[bytes], command))
        try:

            async def listens() -> bool:
                return await asyncio.to_thread((folder / stores.ETCD_SOCKET).exists)

            await until(listens, "the way to the etcd is there")
            await opens_only_its_prefix(hosted.hosted, access, uid)
        finally:
            process.kill()
            process.wait()


async def has_two_pods(planes: Planes, namespace: str, uid: str) -> None:
    """Give a control plane a second Pod, and take the first one: the other one serves, with the same objects."""
    host = planes.host
    await host.patch(VirtualControlPlane.resource, "web", {"spec": {"replicas": 2}}, namespace)

    async def ready_pods() -> list[Json]:
        found = await host.list(PODS, PROCESS_NAMESPACE)
        mine = [each for each in found if each["metadata"]["labels"].get(objects.UID_LABEL) == uid]
        return mine if len(mine) == 2 and all(seenpods.seen(each).is_ready for each in mine) else []

    first, _ = sorted(await until(ready_pods, "two Pods are ready", seconds=START_SECONDS), key=by_name)
    path = await kubeconfig_of(planes, namespace, uid)
    await host.delete(PODS, first["metadata"]["name"], PROCESS_NAMESPACE)
    kubectl = Kubectl(path)
    assert "mine" in await kubectl.out("get", "configmaps", "-o", "name")

    async def connected() -> bool:
        # A Service is created on the host first, by the admission step.
        return (await kubectl.run("create", "service", "clusterip", "later", "--tcp=80")).returncode == 0

    await until(connected, "the operator serves the second Pod", seconds=START_SECONDS)
    await until(ready_pods, "two Pods are ready again", seconds=START_SECONDS)


def by_name(pod: Json) -> str:
    """Return the name of a Pod."""
    return str(pod["metadata"]["name"])


async def test_a_control_plane_in_a_pod_shares_an_etcd_and_reaches_nothing_else(
    pods: RealPods, planes: Planes, name: str
) -> None:
    """H03: objects survive the Pod; only the port of the etcd is open, and only its own prefix; nothing is left."""
    host = planes.host
    await host.make_tenant(name, isolation={"runtime": "Shared"})
    wanted: Json = {"metadata": {"name": "web"}, "spec": {"datastore": {"kind": "SharedEtcd"}}}
    await host.create(VirtualControlPlane.resource, wanted, name)
    await is_ready(host, name)
    uid = (await host.get(VirtualControlPlane.resource, "web", name))["metadata"]["uid"]
    await Kubectl(await kubeconfig_of(planes, name, uid)).out("create", "configmap", "mine", "--from-literal=a=b")
    assert await host.find(objects.CLAIMS, objects.name(uid), PROCESS_NAMESPACE) is None
    before, etcd = await the_pod(host, uid), Spot.of(await the_etcd(host))
    own = Spot.of(before)
    service = await host.get(objects.SERVICES, planestore.NAME, PROCESS_NAMESPACE)
    address = service["spec"]["clusterIP"]
    attempts: list[tuple[str, Spot, str, int, bool]] = [
        ("the Pod to the Service of the etcd", own, address, planestore.CLIENT_PORT, True),
        ("the Pod to the etcd", own, etcd.address, planestore.CLIENT_PORT, True),
        ("the Pod to the keeper", own, etcd.address, planestore.KEEPER_PORT, False),
        ("the Pod to the host's Service", own, "10.96.0.1", 443, False),
        ("the Pod to the host's API server", own, bridge_of(pods), pods.cluster.spec().ports.apiserver, False),
        ("the etcd to the tunnel of the Pod", etcd, own.address, sidecar.TUNNEL_PORT, False),
        ("the etcd to the host's Service", etcd, "10.96.0.1", 443, False),
    ]
    tried = await asyncio.gather(*(pods.inside_pod(each[1], partial(connects, each[2], each[3])) for each in attempts))
    assert [(each[0], found) for each, found in zip(attempts, tried, strict=True) if found is not each[4]] == []
    await opens_no_other_prefix(pods, own, uid, objects.at_port(address, planestore.CLIENT_PORT))
    # The Pods of both are replaced.
    for each in (own, etcd):
        await host.delete(PODS, each.name, PROCESS_NAMESPACE)

    async def back() -> bool:
        found = await host.list(PODS, PROCESS_NAMESPACE)
        mine = [each for each in found if each["metadata"]["labels"].get(objects.UID_LABEL) == uid]
        return any(
            each["metadata"]["uid"] != before["metadata"]["uid"] and seenpods.seen(each).is_ready for each in mine
        )

    await until(back, "the Pod is replaced", seconds=START_SECONDS)
    await is_ready(host, name)
    kubectl = Kubectl(await kubeconfig_of(planes, name, uid))
    assert "mine" in await kubectl.out("get", "configmaps", "-o", "name")
    await has_two_pods(planes, name, uid)
    await planes.delete(name, "web")
    kinds = (objects.SECRETS, objects.SERVICES, objects.STATEFUL_SETS, PODS)
    left = [each["metadata"]["name"] for kind in kinds for each in await host.list(kind, PROCESS_NAMESPACE)]
    assert [each for each in left if uid in each] == []
    kept = objects.files_of(await host.get(SECRETS, sharedetcd.KEYS, PROCESS_NAMESPACE))
    assert [each for each in kept if uid in each] == []


def bridge_of(pods: RealPods) -> str:
    """Return the address of this machine, as its nodes reach it."""
    return NodeAddresses(pods.cluster.real().block).bridge


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"datastore": {"kind": "SQLite"}}, id="SQLite"),
        pytest.param({"datastore": {"kind": "OwnEtcd"}}, id="OwnEtcd"),
        pytest.param(IN_SANDBOX, id="sandbox", marks=pytest.mark.long),
    ],
)
async def test_snapshots_are_kept_in_the_volume_and_in_a_claim(planes: Planes, name: str, spec: Json) -> None:
    """H02: both restore; the claim has a folder for each control plane, which no Pod of another one mounts."""
    host = planes.host
    await host.make_tenant(name, isolation={"runtime": "Shared"})
    await host.create(VirtualControlPlane.resource, {"metadata": {"name": "web"}, "spec": spec}, name)
    await is_ready(host, name)
    uid = (await host.get(VirtualControlPlane.resource, "web", name))["metadata"]["uid"]
    kubectl = await entered(planes, name)
    await kubectl.out("create", "configmap", "first")
    kept = await asked(planes, name, "request", "1")
    await kubectl.out("create", "configmap", "second")
    room: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await host.create(objects.CLAIMS, {"metadata": {"name": "archive"}, "spec": room}, PROCESS_NAMESPACE)
    places: Json = {"snapshotDestinations": [{"name": "archive", "claim": {"name": "archive"}}]}
    defaults: Json = {"metadata": {"name": "default"}, "spec": {"virtualControlPlanes": places}}
    await host.create(TenancyDefaults.resource, defaults)
    destination: Json = {"spec": {"snapshots": {"destination": "archive"}}}
    await host.patch(VirtualControlPlane.resource, "web", destination, name)
    archived = await asked(planes, name, "request", "2")
    listed = (await host.get(VirtualControlPlane.resource, "web", name))["status"]["snapshots"]
    assert [each["name"] for each in listed] == [archived["snapshot"]]
    await kubectl.out("create", "configmap", "third")
    await asked(planes, name, "restore", f"{archived['snapshot']}@1")
    kubectl = await entered(planes, name)
    assert await names(kubectl) == {"first", "second"}
    await host.patch(VirtualControlPlane.resource, "web", {"spec": {"snapshots": {"destination": None}}}, name)
    await asked(planes, name, "restore", f"{kept['snapshot']}@2")
    assert await names(await entered(planes, name)) == {"first"}
    await planes.delete(name, "web")
    for kind in (jobs.JOBS, PODS, SECRETS, objects.CLAIMS):

        async def gone(kind: Resource = kind) -> bool:
            left = await host.list(kind, PROCESS_NAMESPACE)
            return not [each for each in left if uid in each["metadata"]["name"]]

        await until(gone, f"no {kind.plural} are left", seconds=START_SECONDS)
    await host.delete(TenancyDefaults.resource, "default")
    await host.delete(objects.CLAIMS, "archive", PROCESS_NAMESPACE)


@pytest.mark.parametrize(
    "spec", [pytest.param({}, id="SQLite"), pytest.param(IN_SANDBOX, id="sandbox", marks=pytest.mark.long)]
)
async def test_a_control_plane_in_a_pod_sleeps_while_its_pods_run(
    pods: RealPods, planes: Planes, name: str, spec: Json
) -> None:
    """H01: its Pod ends, its pods run on; the first request wakes it and is answered; suspended, it answers 503."""
    host, kind = planes.host, VirtualControlPlane.resource
    await host.make_tenant(name, isolation={"runtime": "Shared"})
    sleepless = {**spec, "sleep": {"afterIdleSeconds": 0}}
    await host.create(kind, {"metadata": {"name": "web"}, "spec": sleepless}, name)
    await is_ready(host, name)
    uid = (await host.get(kind, "web", name))["metadata"]["uid"]
    kubectl = Kubectl(await kubeconfig_of(planes, name, uid))
    await run_deployment(planes, kubectl, name)
    # Not before: the wait for the rollout would be ended by a sleep.
    await host.patch(kind, "web", {"spec": {"sleep": {"afterIdleSeconds": 10}}}, name)
    seen: Json = {}

    async def sleeps() -> bool:
        seen.clear()
        seen.update((await host.get(kind, "web", name))["status"])
        return seen.get("phase") == PlanePhase.ASLEEP and not seen.get("charged")

    await until(sleeps, "the control plane sleeps", seconds=START_SECONDS, seen=lambda: seen)
    left = [each["metadata"]["name"] for each in await host.list(PODS, PROCESS_NAMESPACE)]
    assert [each for each in left if uid in each] == []
    (lower,) = await host.list(PODS, name)
    assert lower["status"]["phase"] == "Running"
    variables = {each["name"]: each.get("value") for each in lower["spec"]["containers"][0]["env"]}
    to_server = partial(connects, variables["KUBERNETES_SERVICE_HOST"], 443)
    assert await pods.inside_pod(Spot.of(lower), to_server)
    assert "deployment.apps/web" in await kubectl.out("get", "deployments", "-o", "name")
    await is_ready(host, name)
    woken = (await host.get(kind, "web", name))["status"]
    assert (woken["phase"], woken["wakes"]) == (PlanePhase.AWAKE, 1)
    await host.patch(Tenant.resource, name, {"spec": {"suspended": True}})

    async def refused() -> bool:
        done = await kubectl.run("get", "deployments")
        return done.returncode != 0 and "(ServiceUnavailable)" in done.stderr

    await until(refused, "its clients are refused", seconds=START_SECONDS)
    await host.patch(Tenant.resource, name, {"spec": {"suspended": False}})

    async def served() -> bool:
        return (await kubectl.run("get", "deployments")).returncode == 0

    await until(served, "its clients are served again", seconds=START_SECONDS)
    await planes.delete(name, "web")


@pytest.mark.skipif(not upgrades(), reason="`make test-release` upgrades control planes")
async def test_an_upgrade_takes_a_snapshot_first_and_a_restore_leads_back(planes: Planes, name: str) -> None:
    """X11: each version has an image; objects stay, and the way back is the snapshot of the upgrade."""
    host = planes.host
    await host.make_tenant(name, isolation={"runtime": "Shared"})
    spec: Json = {"version": EARLIER.name}
    await host.create(VirtualControlPlane.resource, {"metadata": {"name": "web"}, "spec": spec}, name)
    await is_ready(host, name)
    kubectl = await entered(planes, name)
    assert f"v{EARLIER.kubernetes}" in await kubectl.out("get", "--raw", "/version")
    await kubectl.out("create", "configmap", "first")
    later = versionimages.DEFAULT
    await host.patch(VirtualControlPlane.resource, "web", {"spec": {"version": later.name}}, name)
    seen: Json = {}

    async def upgraded() -> bool:
        seen.update((await host.get(VirtualControlPlane.resource, "web", name))["status"])
        return bool(seen.get("lastUpgrade", {}).get("completed"))

    await until(upgraded, "it is upgraded", seconds=START_SECONDS, seen=lambda: seen)
    snapshot = seen["lastUpgrade"]["snapshot"]
    assert snapshot.endswith(f"-before-{later.kubernetes}.snapshot")
    kubectl = await entered(planes, name)
    assert f"v{later.kubernetes}" in await kubectl.out("get", "--raw", "/version")
    assert await names(kubectl) == {"first"}
    await kubectl.out("create", "configmap", "second")
    await asked(planes, name, "restore", f"{snapshot}@1", version=EARLIER.name)
    kubectl = await entered(planes, name)
    assert f"v{EARLIER.kubernetes}" in await kubectl.out("get", "--raw", "/version")
    assert await names(kubectl) == {"first"}
    await planes.delete(name, "web")

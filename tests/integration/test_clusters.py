"""DedicatedClusters on a real cluster with simulated nodes: from one command to a pod that runs, and back (H04)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import Forbidden, Invalid, ServerError, Unauthorized, Unreachable
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import authorityobjects
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.local import build, hostedfolders, hostedprocess, ports
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.control import SupervisorRequest, order
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit.api import CONFIG_MAPS, PODS, SECONDS, SECRETS, Api, until
from testkit.installation import install
from testkit.load import Load
from testkit.planes import Planes, awakened, command
from testkit.refusals import refusal
from testkit.shell import ROOT

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
CLUSTERS = DedicatedCluster.resource
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SERVICES = Resource("", "v1", "services", "Service")
SCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
QUEUE: Json = {"metric": {"name": "queue"}, "describedObject": {"kind": "Service", "name": "q", "apiVersion": "v1"}}
NETWORK: Json = {"podRange": "10.72.0.0/16", "serviceRange": "10.74.0.0/20", "dnsDomain": "prod.example"}
BOX: Json = {"containers": [{"name": "c", "image": "busybox"}]}


@pytest_asyncio.fixture(scope="session")
async def host_cluster(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A local cluster with the operator and four simulated nodes, of which one stays shared."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("clusters", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="w", count=4),))
    await local.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture
async def host(host_cluster: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of the cluster."""
    async with Client(kubeconfig.load([host_cluster.kubeconfig_path])) as client:
        yield Api(client)


def condition(found: Json, type_: str = "Ready") -> Json:
    """Return a condition of an object; {} if it has none."""
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    none: Json = {}
    return next((each for each in conditions if each["type"] == type_), none)


async def left(host: Api, name: str) -> list[Json]:
    """Return what is there of the clusters of a namespace."""
    return [
        *await host.list(CLUSTERS, name),
        *await host.list(VirtualControlPlane.resource, name),
        *await host.list(SliceClaim.resource, name),
        *[each for each in await host.list(Slice.resource) if each["spec"]["tenant"] == name],
        *[each for each in await host.list(NodeHandover.resource) if each["spec"]["plane"]["namespace"] == name],
    ]


async def free_nodes(host: Api) -> list[str]:
    """Return the nodes that pods of all tenants can run on."""
    nodes = [msgspec.convert(each, Node) for each in await host.list(Node.resource)]
    return sorted(
        each.metadata.name for each in nodes if each.is_ready and not each.spec.unschedulable and not each.spec.taints
    )


async def test_one_command_ends_with_a_pod_that_runs_and_another_one_with_nothing(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H04: the tenant is created on the way, nodes leave the host and return, and the quota with them."""
    code, out, err = await command(
        host_cluster, "cluster", "create", name, "--nodes", "2", "--wait", "--timeout", "3m", "-o", "json"
    )
    assert code == 0, err
    assert msgspec.json.decode(out)["metadata"]["namespace"] == name
    assert f"tenant.tenantry.dev/{name} created: its owner is User" in err
    met = (reasons.READY, reasons.CONTROL_PLANE_READY, reasons.NODES_READY, reasons.ADD_ONS_READY)

    async def has_all() -> bool:
        found = await host.get(CLUSTERS, name, name)
        told = {each["type"]: each["status"] for each in found["status"]["conditions"]}
        return (told, found["status"]["readyNodes"]) == (dict.fromkeys(met, "True"), "2/2")

    # The command waits for the first three.
    await until(has_all, "its conditions are met, and it has both nodes")
    (claim,) = await host.list(SliceClaim.resource, name)
    assert not set(claim["status"]["nodes"]) & set(await free_nodes(host))
    code, text, err = await command(host_cluster, "cluster", "kubeconfig", name)
    assert code == 0, err
    (tmp_path / "kubeconfig").write_text(text)
    async with Client(kubeconfig.load([tmp_path / "kubeconfig"])) as client:
        inside = Api(client)
        await _runs(host, inside, claim["status"]["nodes"], name)
        code, _, err = await command(
            host_cluster, "cluster", "scale", name, "--nodes", "1", "--wait", "--timeout", "3m"
        )
        assert code == 0, err
        assert len(await inside.list(Node.resource)) == 1
        await until(lambda: _free(host, claim["status"]["nodes"], 1), "the host has one of the nodes again")
    code, out, err = await command(host_cluster, "cluster", "delete", name, "--yes", "--timeout", "3m")
    assert code == 0, err
    await _gone(host, name)
    await until(lambda: _free(host, claim["status"]["nodes"], 2), "the host has both nodes again")


async def _free(host: Api, nodes: list[str], count: int) -> bool:
    """Return whether so many of the nodes are free."""
    return len(set(nodes) & set(await free_nodes(host))) == count


async def _runs(host: Api, inside: Api, nodes: list[str], name: str) -> None:
    """Check that the nodes are Ready inside, and run a pod there that the host does not have."""
    there = [msgspec.convert(each, Node) for each in await inside.list(Node.resource)]
    assert sorted(each.metadata.name for each in there) == sorted(nodes)
    assert all(each.is_ready for each in there)
    await inside.default_account("default")
    await inside.create(PODS, {"metadata": {"name": "web"}, "spec": BOX}, "default")

    async def runs() -> bool:
        found = await inside.get(PODS, "web", "default")
        return found["status"].get("phase") == "Running" and found["spec"]["nodeName"] in nodes

    await until(runs, "the pod runs on a node of the cluster")
    assert await host.list(PODS, name) == []


async def _gone(host: Api, name: str) -> None:
    """Wait until nothing of the clusters of a namespace is left."""
    seen: list[Json] = []

    async def so() -> bool:
        seen[:] = await left(host, name)
        return not seen

    await until(so, "nothing is left", seen=lambda: seen)


@pytest.mark.long
async def test_a_cluster_keeps_its_node_through_a_restore_a_rotation_and_a_sleep(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H04, H02: by the commands; kubeconfigs of before are refused, and the Node of before is replaced by the same."""
    file, copy = tmp_path / "kubeconfig", tmp_path / "copy.snapshot"

    async def done(verb: str, *arguments: str) -> str:
        code, out, err = await command(host_cluster, "cluster", verb, name, *arguments)
        assert code == 0, err
        return out + err

    await done("create", "--nodes", "1", "--wait", "--timeout", "3m")
    file.write_text(await done("kubeconfig"))
    async with Client(kubeconfig.load([file])) as client:
        inside = Api(client)
        await inside.default_account("default")
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, "default")
        await inside.create(PODS, {"metadata": {"name": "web"}, "spec": BOX}, "default")
        await done("backup", "--to", str(copy))
        await inside.delete(CONFIG_MAPS, "kept", "default")
        await done("restore", "--from", str(copy), "--yes")
        assert await inside.find(CONFIG_MAPS, "kept", "default") is not None
        await done("sleep")
        (node,) = await inside.list(Node.resource)
        await done("rotate", "--yes")
        with pytest.raises(Unauthorized):
            await inside.list(Node.resource)
    file.write_text(await done("kubeconfig"))
    async with Client(kubeconfig.load([file])) as client:
        inside = Api(client)

        async def is_ready() -> bool:
            return [msgspec.convert(each, Node).is_ready for each in await inside.list(Node.resource)] == [True]

        await until(is_ready, "the node is Ready inside")
        assert (await inside.list(Node.resource))[0]["metadata"]["name"] == node["metadata"]["name"]
    assert "already" in await done("upgrade")
    # A node that leaves wakes the control plane, which has to let it go.
    await done("sleep")
    await done("scale", "--nodes", "0", "--wait")
    await done("sleep")
    await done("scale", "--nodes", "1", "--wait")
    await done("sleep")
    await done("delete", "--yes", "--timeout", "3m")
    await _gone(host, name)


async def test_credentials_are_replaced_in_phases(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H04: a client that tries once more never fails until the last phase, and one of before is named."""
    done = partial(_done, host_cluster, name)
    await done("create", "--nodes", "0", "--wait", "--timeout", "3m")
    (tmp_path / "former").write_text(await done("kubeconfig"))
    async with Client(kubeconfig.load([tmp_path / "former"])) as former:
        load = Load(former)
        async with load.going_on():
            assert "is in phase Preparing" in await done("rotate", "--phase", "prepare")
            assert "is in phase Issuing" in await done("rotate", "--phase", "issue", "--quiet", "1h")
            plane = await host.get(VirtualControlPlane.resource, name, name)

            async def named() -> list[str]:
                seen = await host.get(VirtualControlPlane.resource, name, name)
                return [each["user"] for each in seen["status"]["credentials"].get("formerClients", [])]

            users = await until(named, "the client is named", seconds=2 * SECONDS)
            assert users == [f"tenantry:owner:{plane['metadata']['uid']}"]
        assert (load.failed, load.reads > 0) == ([], True)
        (tmp_path / "present").write_text(await done("kubeconfig"))
        told = await done("rotate", "--phase", "complete", "--force", "--yes")
        assert f"user '{users[0]}'" in told
        assert "trusts only its new credentials" in told
        with pytest.raises(Unauthorized):
            await Api(former).list(CONFIG_MAPS, "default")
    async with Client(kubeconfig.load([tmp_path / "present"])) as present:
        await Api(present).list(CONFIG_MAPS, "default")
    await done("delete", "--yes", "--timeout", "3m")


async def test_secrets_that_are_deleted_or_edited_by_hand_are_brought_back(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H04: the kubeconfig, the authorities, their namespace, and the originals on the machine; clients go on."""
    done = partial(_done, host_cluster, name)
    await done("create", "--nodes", "1", "--wait", "--timeout", "3m")
    uid = (await host.get(VirtualControlPlane.resource, name, name))["metadata"]["uid"]
    place = authorityobjects.place(uid)
    (tmp_path / "kubeconfig").write_text(await done("kubeconfig"))

    async def content(secret: str, namespace: str) -> Json | None:
        found = await host.find(SECRETS, secret, namespace)
        return found["data"] if found is not None else None

    async def is_back(before: Json, secret: str, namespace: str) -> bool:
        return await content(secret, namespace) == before

    known = {f"{name}-{each}": await content(f"{name}-{each}", place) for each in authorityobjects.SUFFIXES.values()}
    assert all(known.values()), known.keys()
    shown = await content(f"{name}-kubeconfig", name)
    assert shown is not None
    assert shown["value"] == shown["kubeconfig"]
    await host.delete(SECRETS, f"{name}-kubeconfig", name)
    await until(lambda: is_back(shown, f"{name}-kubeconfig", name), "the kubeconfig is back")
    await host.patch(SECRETS, f"{name}-kubeconfig", {"data": {"value": "eA=="}}, name)
    await until(lambda: is_back(shown, f"{name}-kubeconfig", name), "the kubeconfig is as it was")
    await host.patch(SECRETS, f"{name}-ca", {"data": {"tls.key": "eA=="}}, place)
    await until(lambda: is_back(known[f"{name}-ca"] or {}, f"{name}-ca", place), "the authority is as it was")
    old = (await host.get(Namespace.resource, place))["metadata"]["uid"]
    await host.delete(Namespace.resource, place)

    async def is_new() -> bool:
        found = await host.find(Namespace.resource, place)
        return found is not None and found["metadata"]["uid"] != old

    # What is in the old one is readable while that ends.
    await until(is_new, "there is a new namespace", seconds=2 * SECONDS)
    for each, before in known.items():
        await until(partial(is_back, before or {}, each, place), f"{each} is back", seconds=2 * SECONDS)
    folder = host_cluster.paths.folder / "hosted" / uid / "pki"
    shutil.rmtree(folder)
    # Something wakes the operator for the control plane.
    await host.patch(VirtualControlPlane.resource, name, {"metadata": {"annotations": {"look": "again"}}}, name)

    async def has_originals() -> bool:
        files = [folder / "ca.crt", folder / "server.crt", folder / "operator.crt"]
        return all([await asyncio.to_thread(each.exists) for each in files])

    await until(has_originals, "the process has its certificates again", seconds=2 * SECONDS)
    assert await content(f"{name}-ca", place) == known[f"{name}-ca"]
    async with Client(kubeconfig.load([tmp_path / "kubeconfig"])) as client:
        inside = Api(client)

        async def answers() -> bool:
            try:
                return [msgspec.convert(each, Node).is_ready for each in await inside.list(Node.resource)] == [True]
            except (ServerError, Unreachable):
                return False

        await until(answers, "the kubeconfig of before answers", seconds=2 * SECONDS)
    await done("delete", "--yes", "--timeout", "3m")

    async def has_ended() -> bool:
        return await host.find(Namespace.resource, place) is None

    await until(has_ended, "the authorities have ended with the cluster")


async def test_a_process_of_this_machine_is_in_no_sandbox(host: Api, name: str) -> None:
    """H04: a cluster that requires one is not started, and its condition says what to do."""
    await host.make_tenant(name)
    spec: Json = {"nodes": 0, "controlPlane": {"runtime": "Sandboxed"}}
    await host.create(CLUSTERS, {"metadata": {"name": "prod"}, "spec": spec}, name)
    seen: Json = {}

    async def is_told() -> bool:
        seen.update(condition(await host.get(CLUSTERS, "prod", name)))
        return "spec.runtime is Sandboxed, and this host runs control planes as processes" in seen.get("message", "")

    await until(is_told, "the cluster says what to do", seen=lambda: seen)
    await host.patch(CLUSTERS, "prod", {"spec": {"controlPlane": {"runtime": "Shared"}}}, name)

    async def is_ready() -> bool:
        return condition(await host.get(CLUSTERS, "prod", name)).get("status") == "True"

    await until(is_ready, "it starts without a sandbox", seconds=2 * SECONDS)


async def test_nodes_are_given_back_while_it_sleeps(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H04: with their quota; a client wakes it, and it claims nodes again."""
    done = partial(_done, host_cluster, name)
    await done("create", "--nodes", "1", "--wait", "--timeout", "3m")
    (tmp_path / "kubeconfig").write_text(await done("kubeconfig"))
    (claim,) = await host.list(SliceClaim.resource, name)
    await done("sleep", "--release-nodes", "--timeout", "3m")
    assert await host.list(SliceClaim.resource, name) == []
    await until(lambda: _free(host, claim["status"]["nodes"], 1), "the host has the node again")

    async def rests() -> bool:
        found = await host.get(CLUSTERS, name, name)
        is_released = found["status"].get("sleep") == "Released"
        return is_released and condition(found, reasons.NODES_READY)["reason"] == reasons.ASLEEP

    await until(rests, "it sleeps without nodes")
    async with Client(kubeconfig.load([tmp_path / "kubeconfig"])) as client:
        await awakened(lambda: Api(client).list(CONFIG_MAPS, "default"))

    async def has_node() -> bool:
        return (await host.get(CLUSTERS, name, name))["status"]["readyNodes"] == "1/1"

    await until(has_node, "it has a node again", seconds=3 * SECONDS)
    await done("delete", "--yes", "--leave-nodes", "--timeout", "3m")
    await _gone(host, name)


async def _done(local: LocalCluster, name: str, verb: str, *arguments: str) -> str:
    """Run a command about a cluster, and return what it prints."""
    code, out, err = await command(local, "cluster", verb, name, *arguments)
    assert code == 0, err
    return out + err


@pytest.mark.long
async def test_nodes_go_on_while_the_first_of_several_processes_is_away(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H02: machines reach any process at a port of their own; leases are renewed, and pods begin."""
    await host.make_tenant(name)
    await host.open(name)
    spec = {"nodes": 1, "controlPlane": {"replicas": 3}}
    await host.create(CLUSTERS, {"metadata": {"name": name}, "spec": spec}, name)
    code, _, err = await command(host_cluster, "cluster", "wait", name, "--timeout", "3m")
    assert code == 0, err
    code, text, err = await command(host_cluster, "cluster", "kubeconfig", name)
    assert code == 0, err
    (tmp_path / "kubeconfig").write_text(text)
    plane = await host.get(VirtualControlPlane.resource, name, name)
    process = hostedprocess.known(hostedfolders.of(host_cluster.paths, plane["metadata"]["uid"]))
    assert process is not None
    assert process.of_any not in (0, process.port, process.internal, process.operator, *process.others)
    own = kubeconfig.load([tmp_path / "kubeconfig"])
    of_machines = replace(own, server=f"https://127.0.0.1:{process.of_any}", files=(), reload=None)
    async with Client(own) as client, Client(of_machines) as machine:
        inside = Api(client)
        (node,) = await inside.list(Node.resource)

        async def renewed() -> str:
            found = await inside.find(LEASES, node["metadata"]["name"], "kube-node-lease")
            return found["spec"]["renewTime"] if found is not None else ""

        before = await until(renewed, "the node has a lease")
        first = f"hosted@{process.name}"
        await order(host_cluster.paths.socket, SupervisorRequest(verb="stop", component=first), SECONDS)
        try:
            # Each connection comes to another process.
            for _ in range(3):
                assert len(await Api(machine).list(Node.resource)) == 1

            async def goes_on() -> bool:
                return await renewed() > before

            await until(goes_on, "the lease is renewed", seconds=2 * SECONDS)
            await _runs(host, inside, [node["metadata"]["name"]], name)
        finally:
            await order(host_cluster.paths.socket, SupervisorRequest(verb="start", component=first), SECONDS)
    await _done(host_cluster, name, "delete", "--yes", "--timeout", "3m")
    await _gone(host, name)


@pytest.mark.long
async def test_a_cluster_with_a_node_that_does_not_answer_ends(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H04: nothing confirms the end of its pods; the end waits for a short time only, and leaves nothing behind."""
    exits, _, err = await command(host_cluster, "cluster", "create", name, "--nodes", "1", "--wait", "--timeout", "3m")
    assert not exits, err
    _, text, _ = await command(host_cluster, "cluster", "kubeconfig", name)
    (tmp_path / "kubeconfig").write_text(text)
    (node,) = [each["metadata"]["name"] for each in await host.list(NodeHandover.resource)]
    async with Client(kubeconfig.load([tmp_path / "kubeconfig"])) as client:
        inside = Api(client)
        await inside.create(PODS, {"metadata": {"name": "web"}, "spec": {**BOX, "nodeName": node}}, "default")
        (simulator,) = [each.name for each in host_cluster.status().components if each.name.startswith("simulator@")]
        await host_cluster.stop_component(simulator)

        async def is_lost() -> bool:
            found = await host.get(NodeHandover.resource, node)
            return found["status"]["stage"] == "Joining"

        await until(is_lost, "the node is not Ready inside", seconds=4 * SECONDS)
    began = asyncio.get_running_loop().time()
    exits, _, err = await command(host_cluster, "cluster", "delete", name, "--yes", "--timeout", "3m")
    assert not exits, err
    print(f"deleted with a node that does not answer after {asyncio.get_running_loop().time() - began:.1f} s")

    async def is_over() -> bool:
        return not await left(host, name)

    await until(is_over, "nothing is left", seconds=2 * SECONDS)
    assert simulator not in {each.name for each in host_cluster.status().components}


async def test_owners_choose_no_datastore_that_leads_out_and_leave_nothing_behind(host: Api, name: str) -> None:
    """H04: what they may not set in a VirtualControlPlane, they do not get by a DedicatedCluster."""
    await host.make_tenant(name)
    path = wire.path(CLUSTERS, name, "prod")
    async with Client(replace(host.client.connection, impersonate="alice")) as client:
        alice = Api(client)
        datastore: Json = {"kind": "External", "secretRef": {"name": "any"}}
        value: Json = {"metadata": {"name": "prod"}, "spec": {"controlPlane": {"datastore": datastore}}}
        assert "administrators choose External" in await refusal(alice, CLUSTERS, value, name)
        await alice.create(CLUSTERS, {"metadata": {"name": "prod"}, "spec": {"nodes": 0}}, name)

        async def has_plane() -> bool:
            return await host.find(VirtualControlPlane.resource, "prod", name) is not None

        await until(has_plane, "the control plane is created")
        with pytest.raises(Forbidden, match="must not be deleted with propagationPolicy Orphan"):
            await alice.client.request("DELETE", path, query={"propagationPolicy": "Orphan"})
        with pytest.raises(Forbidden, match=r"must not lose tenantry[.]dev/dedicated-cluster"):
            await alice.patch(CLUSTERS, "prod", {"metadata": {"finalizers": None}}, name)
        with pytest.raises(Forbidden, match="must not lose the DedicatedCluster or"):
            await alice.patch(VirtualControlPlane.resource, "prod", {"metadata": {"ownerReferences": None}}, name)
        with pytest.raises(Forbidden, match="has all objects of a DedicatedCluster and must not be deleted"):
            await alice.delete(VirtualControlPlane.resource, "prod", name)
        with pytest.raises(Forbidden, match="sleep"):
            await alice.patch(
                VirtualControlPlane.resource, "prod", {"spec": {"sleep": {"afterIdleSeconds": 600}}}, name
            )
        uid = (await host.get(CLUSTERS, "prod", name))["metadata"]["uid"]
        owner = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "name": "prod", "uid": uid}
        forged = {"name": "prod-more", "ownerReferences": [{**owner, "controller": True}]}
        with pytest.raises(Forbidden, match="DedicatedCluster"):
            await alice.create(SliceClaim.resource, {"metadata": forged, "spec": {"count": 9}}, name)
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 1}}
        await alice.client.request(
            "PATCH", f"{path}/scale", body=msgspec.json.encode(scale), content_type="application/merge-patch+json"
        )
        assert (await host.get(CLUSTERS, "prod", name))["spec"]["nodes"] == 1
        await alice.delete(CLUSTERS, "prod", name)
    await _gone(host, name)


async def test_an_edit_of_a_child_is_undone_and_a_pool_that_fits_no_node_says_so(host: Api, name: str) -> None:
    """H04: only the spec of the cluster decides; what is wrong is in its conditions."""
    await host.make_tenant(name)
    pool: Json = {"name": "big", "count": 1, "perNode": {"cpu": "4k"}}
    await host.create(CLUSTERS, {"metadata": {"name": "prod"}, "spec": {"nodes": 0, "pools": [pool]}}, name)

    async def claim() -> Json | None:
        return await host.find(SliceClaim.resource, "prod-big", name)

    await until(claim, "the claim is created")
    await host.patch(SliceClaim.resource, "prod-big", {"spec": {"users": "Everybody"}}, name)

    async def undone() -> bool:
        return (await host.get(SliceClaim.resource, "prod-big", name))["spec"]["users"] == "Cluster"

    await until(undone, "the edit is undone")

    async def told() -> str:
        found = condition(await host.get(CLUSTERS, "prod", name), reasons.NODES_READY)
        return found["message"] if found.get("reason") == reasons.NODES_INSUFFICIENT else ""

    assert "pool 'big': 0 of 1 nodes are Ready; SliceClaim" in await until(told, "the cluster says what is short")
    await host.delete(CLUSTERS, "prod", name)
    await _gone(host, name)


async def test_a_kubeconfig_that_is_edited_or_deleted_is_restored(host: Api, name: str) -> None:
    """H04: for owners of a tenant with a cluster of its own, and by requests that they may write themselves."""
    tenant = {"owners": [{"kind": "User", "name": "alice"}], "isolation": {"controlPlane": "Dedicated"}}
    await host.create(Tenant.resource, {"metadata": {"name": name}, "spec": tenant})

    async def is_ready() -> bool:
        return condition(await host.get(Tenant.resource, name)).get("status") == "True"

    await until(is_ready, "the tenant has its cluster", seconds=3 * SECONDS)
    status = (await host.get(CLUSTERS, name, name))["status"]
    where, secret = status.get("kubeconfigNamespace", name), status["kubeconfigSecret"]
    before = (await host.get(SECRETS, secret, where))["data"]

    async def restored() -> bool:
        found = await host.find(SECRETS, secret, where)
        return found is not None and found["data"] == before

    await host.patch(SECRETS, secret, {"data": {"kubeconfig": "e30="}}, where)
    await until(restored, "the edit is undone")
    await host.delete(SECRETS, secret, where)
    await until(restored, "the Secret is there again")
    async with Client(replace(host.client.connection, impersonate="alice")) as client:
        alice = Api(client)
        await alice.patch(
            CLUSTERS, name, {"spec": {"snapshots": {"request": "1"}, "rotation": {"request": "Users@1"}}}, name
        )

        async def is_done() -> bool:
            found = (await alice.get(VirtualControlPlane.resource, name, name))["status"]
            outcomes = [found.get(field, {}).get("requested") for field in ("lastSnapshot", "lastRotation")]
            return outcomes == ["1", "Users@1"]

        await until(is_done, "both requests have an outcome", seconds=2 * SECONDS)
    assert not await restored()
    await host.delete(Tenant.resource, name)


async def test_a_foreground_deletion_drains_the_nodes_too(host: Api, name: str, tmp_path: Path) -> None:
    """H04, HAND-5: Kubernetes deletes the control plane first; its nodes leave it before its process ends."""
    await host.make_tenant(name)
    await host.create(CLUSTERS, {"metadata": {"name": "prod"}, "spec": {"nodes": 1}}, name)
    planes = Planes(host, tmp_path)

    async def is_ready() -> bool:
        return condition(await host.get(CLUSTERS, "prod", name)).get("status") == "True"

    await until(is_ready, "the cluster is ready", seconds=2 * SECONDS)
    (handover,) = [
        each for each in await host.list(NodeHandover.resource) if each["spec"]["plane"]["namespace"] == name
    ]
    node = handover["metadata"]["name"]
    async with planes.entered(name, "prod") as inside:
        value: Json = {"metadata": {"name": "web", "finalizers": ["example.com/hold"]}, "spec": BOX}
        await inside.create(PODS, value, "default")

        async def runs() -> bool:
            return (await inside.get(PODS, "web", "default"))["status"].get("phase") == "Running"

        await until(runs, "the pod runs")
        path = wire.path(CLUSTERS, name, "prod")
        await host.client.request("DELETE", path, query={"propagationPolicy": "Foreground"})

        async def is_evicted() -> bool:
            return bool((await inside.get(PODS, "web", "default"))["metadata"].get("deletionTimestamp"))

        await until(is_evicted, "the pod is evicted inside")
        assert node not in await free_nodes(host)
        await inside.patch(PODS, "web", {"metadata": {"finalizers": None}}, "default")
    await _gone(host, name)
    await until(lambda: _free(host, [node], 1), "the host has the node again")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"nodes": 501}, "spec.nodes"),
        ({"pools": [{"name": "default"}]}, "must not have a pool 'default'"),
        ({"pools": [{"name": "a"}, {"name": "a"}]}, "Duplicate value"),
        ({"pools": [{"name": "a" * 16}]}, "spec.pools[0].name"),
        ({"version": "1"}, "spec.version"),
        ({"controlPlane": {"replicas": 3, "datastore": {"kind": "SQLite"}}}, "must be 1, unless the datastore is"),
        ({"sleep": {"afterIdleSeconds": 5}}, "must be 0, for never, or at least 10"),
        ({"defaultPool": {"perNode": {"cpu": "much"}}}, "must be a quantity"),
        ({"defaultPool": {"taints": [{"key": "a", "effect": "Maybe"}]}}, "spec.defaultPool.taints[0].effect"),
    ],
)
async def test_the_api_server_refuses_what_has_no_meaning(host: Api, spec: Json, told: str) -> None:
    """H04: with the path of the field, before anything is stored."""
    assert told in await refusal(host, CLUSTERS, {"metadata": {"name": "prod"}, "spec": spec}, "default")


async def test_a_name_leaves_room_for_those_of_claims(host: Api) -> None:
    """H04: a claim has the name of the cluster, and that of a pool behind it."""
    value: Json = {"metadata": {"name": "a" * 31}, "spec": {}}
    assert "must be a DNS label of at most 30" in await refusal(host, CLUSTERS, value, "default")


TEMPLATES = ClusterTemplate.resource


async def test_a_template_decides_what_a_cluster_leaves_out(host_cluster: LocalCluster, host: Api, name: str) -> None:
    """H04: what it refuses is reported with what to do, and its later changes reach no cluster that runs."""
    limits: Json = {"nodes": 1, "resources": {"requestsCpu": "100m"}}
    spec: Json = {"versions": ["1.36"], "defaults": {"afterIdleSeconds": 600}, "limits": limits}
    wrong: Json = {**spec, "limits": {**limits, "afterIdleSeconds": 60, "datastores": ["SharedEtcd"], "replicas": 1}}
    made: Json = {"metadata": {"name": name}, "spec": spec}
    told = await refusal(host, TEMPLATES, {**made, "spec": wrong}, "")
    assert "spec.defaults.afterIdleSeconds: Invalid value" in told
    assert "must be one of limits.datastores" in told
    template = await host.create(TEMPLATES, made)
    assert "datastore" in template["spec"]["defaults"], "the defaults are static: the schema has them"
    asked = ("cluster", "create", name, "--template", name, "--nodes")
    code, _, err = await command(host_cluster, *asked, "0", "--wait", "--timeout", "2m")
    assert code == 0, err
    stored = await host.get(CLUSTERS, name, name)
    assert stored["spec"]["template"] == name
    assert "controlPlane" not in stored["spec"], "nothing is written into the spec that Git does not have"
    assert stored["status"]["template"]["name"] == name
    plane = await host.get(VirtualControlPlane.resource, name, name)
    assert (plane["spec"]["version"], plane["spec"]["sleep"]["afterIdleSeconds"]) == ("1.36", 600)
    await host.patch(TEMPLATES, name, {"spec": {"defaults": {"afterIdleSeconds": 900}}})
    await until(lambda: _is_told(host, name, reasons.TEMPLATE_CURRENT, "600 is now 900"), "the change is reported")
    plane = await host.get(VirtualControlPlane.resource, name, name)
    assert plane["spec"]["sleep"]["afterIdleSeconds"] == 600
    await host.patch(CLUSTERS, name, {"spec": {"nodes": 2}}, name)
    await until(lambda: _is_told(host, name, reasons.STALLED, "at most 1 nodes together, not 2"), "the limit is named")
    code, out, err = await command(host_cluster, "cluster", "list", "-n", name)
    assert (code, "TEMPLATE" in out) == (0, True), err
    code, _, err = await command(host_cluster, "cluster", "delete", name, "--yes", "--timeout", "2m")
    assert code == 0, err
    await host.delete(TEMPLATES, name)


async def _is_told(host: Api, name: str, type_: str, words: str) -> bool:
    """Return whether a condition of a cluster has words in its message."""
    return words in condition(await host.get(CLUSTERS, name, name), type_).get("message", "")


async def test_the_example_can_be_applied_and_gets_what_its_template_has(host: Api) -> None:
    """H04: all files of examples/clusters, in their order."""
    found: list[Json] = []
    for path in sorted((ROOT / "examples" / "clusters").glob("*.yaml")):
        found += yaml.safe_load_all(path.read_text())
    template, tenant, cluster = found
    name: str = tenant["metadata"]["name"]
    await host.create(TEMPLATES, template)
    await host.create(Tenant.resource, tenant)
    await host.ready(name)
    # The nodes are those of other tests.
    cluster["spec"] |= {"nodes": 0, "pools": [{**each, "count": 0} for each in cluster["spec"]["pools"]]}
    await host.create(CLUSTERS, cluster, name)

    async def plane() -> Json | None:
        return await host.find(VirtualControlPlane.resource, cluster["metadata"]["name"], name)

    made = await until(plane, "the control plane is created")
    assert (
        made["spec"]["resources"]["limits"]["memory"] == template["spec"]["defaults"]["resources"]["limits"]["memory"]
    )
    await host.delete(CLUSTERS, cluster["metadata"]["name"], name)
    await _gone(host, name)
    await host.delete(Tenant.resource, name)
    await host.delete(TEMPLATES, template["metadata"]["name"])


@pytest.mark.long
async def test_the_ladder_measures_a_tenant_at_each_level_and_leaves_nothing(
    host_cluster: LocalCluster, host: Api
) -> None:
    """X11: each level has its figures, and says what it does not have."""
    flags = ("--objects", "10", "--seconds", "0.5", "--idle-seconds", "0", "-o", "json")
    code, out, err = await command(host_cluster, "bench", "ladder", *flags)
    assert code == 0, err
    steps = msgspec.json.decode(out)["steps"]
    assert [each["level"] for each in steps] == ["namespace", "virtual", "dedicated"]
    assert all(each["first_pod_seconds"] is not None and each["score"] for each in steps), steps
    assert steps[0]["not_measured"] == ["memory: a namespace has no process of its own"]
    assert all(each["idle_mebibytes"] > 50 for each in steps[1:])
    assert steps[2]["isolation_class"] == "hard+"
    left = [each["metadata"]["name"] for each in await host.list(Tenant.resource)]
    assert not [each for each in left if each.startswith("bench-")]


async def _has_the_fields(inside: Api) -> None:
    """Check the addresses, the owners and the features of a cluster, from inside."""
    service = await inside.get(SERVICES, "kubernetes", "default")
    assert service["spec"]["clusterIP"] == "10.74.0.1"
    (node,) = await inside.list(Node.resource)
    assert node["spec"]["podCIDR"] == "10.72.0.0/24"
    await inside.default_account("default")
    await inside.create(PODS, {"metadata": {"name": "web"}, "spec": BOX}, "default")

    async def addressed() -> str:
        return (await inside.get(PODS, "web", "default"))["status"].get("podIP", "")

    assert (await until(addressed, "the pod runs")).startswith("10.72.0.")
    binding = await inside.get(CLUSTER_ROLE_BINDINGS, "tenantry:owners")
    assert [each["name"] for each in binding["subjects"]][1:] == ["oidc:alice"]
    # A feature that is off by default.
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}
    scaled: Json = {"minReplicas": 0, "maxReplicas": 1, "scaleTargetRef": target}
    metric = {"type": "Object", "object": {**QUEUE, "target": {"type": "Value", "value": "1"}}}
    meta = {"metadata": {"name": "w"}}
    await inside.create(SCALERS, {**meta, "spec": {**scaled, "metrics": [metric]}}, "default")


async def _told(host: Api, namespace: str, name: str, reason: str, text: str) -> bool:
    """Return whether a cluster reports something."""
    found = condition(await host.get(CLUSTERS, name, namespace))
    return found.get("reason") == reason and text in found["message"]


async def test_addresses_owners_and_features_are_those_of_the_spec(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H04: inside; ranges that overlap, change or are the host's are refused with what to do."""
    await host.make_tenant(name)
    await host.open(name)
    alice = {"kind": "User", "name": "oidc:alice"}
    server = {"auditLevel": "Metadata", "featureGates": ["HPAScaleToZero"]}
    port = next(each for each in range(31500, 32500) if ports.is_free(each))
    endpoint: Json = {"host": f"{name}.localhost", "port": port}
    spec: Json = {"nodes": 1, "endpoint": endpoint, "network": NETWORK, "owners": [alice], "apiServer": server}
    wrong = [
        (
            {"network": {**NETWORK, "serviceRange": "10.72.16.0/20"}},
            "10.72.0.0/16 must not overlap serviceRange, which is 10.72.16.0/20",
        ),
        ({"network": {"podRange": "10.72.0.1/16"}}, "must be an IPv4 range"),
        ({"owners": [{"kind": "Group", "name": "system:masters"}]}, "must not begin with system:"),
        ({"apiServer": {"featureGates": ["AllAlpha"]}}, "Unsupported value"),
    ]
    for change, told in wrong:
        with pytest.raises(Invalid, match=told):
            await host.create(CLUSTERS, {"metadata": {"name": "wrong"}, "spec": {**spec, **change}}, name)
    await host.create(CLUSTERS, {"metadata": {"name": name}, "spec": spec}, name)
    clash: Json = {"nodes": 0, "network": {"serviceRange": "10.96.0.0/16"}}
    await host.create(CLUSTERS, {"metadata": {"name": "clash"}, "spec": clash}, name)

    async def refused() -> Json:
        found = condition(await host.get(CLUSTERS, "clash", name))
        return found if found.get("reason") == reasons.INVALID_SPEC else {}

    told = (await until(refused, "the range of the host is refused"))["message"]
    assert "spec.network.serviceRange 10.96.0.0/16 must not overlap 10." in told
    assert "choose another range" in told
    code, _, err = await command(host_cluster, "cluster", "wait", name, "--timeout", "3m")
    assert code == 0, err
    for other, given, reason, told in (
        ("host", {"host": endpoint["host"]}, reasons.INVALID_SPEC, f"is in use by VirtualControlPlane '{name}/{name}'"),
        ("port", {"port": port}, reasons.NOT_PLACED, f"is in use by the control plane '{name}.{name}'"),
    ):
        await host.create(CLUSTERS, {"metadata": {"name": other}, "spec": {"nodes": 0, "endpoint": given}}, name)
        await until(partial(_told, host, name, other, reason, told), f"{told} is reported")
    for change in ({"endpoint": None}, {"network": {**NETWORK, "dnsDomain": "other"}}, {"network": None}):
        with pytest.raises(Invalid, match="must not change"):
            await host.patch(CLUSTERS, name, {"spec": change}, name)
    code, text, err = await command(host_cluster, "cluster", "kubeconfig", name)
    assert code == 0, err
    assert f"https://{name}.localhost:{port}" in text
    # The names below localhost need a resolver that knows them.
    (tmp_path / "kubeconfig").write_text(text.replace(f"{name}.localhost", "localhost"))
    async with Client(kubeconfig.load([tmp_path / "kubeconfig"])) as client:
        inside = Api(client)
        await _has_the_fields(inside)
        await host.patch(CLUSTERS, name, {"spec": {"owners": []}}, name)

        async def unbound() -> bool:
            try:
                found = await inside.get(CLUSTER_ROLE_BINDINGS, "tenantry:owners")
            except Unauthorized:
                return True  # the credentials of all users are replaced
            except (ServerError, Unreachable):
                return False  # its process starts with others
            return len(found["subjects"]) == 1

        await until(unbound, "the owner is bound no more")
    for each in ("clash", "host", "port", name):
        code, _, err = await command(host_cluster, "cluster", "delete", each, "-n", name, "--yes", "--timeout", "3m")
        assert code == 0, err

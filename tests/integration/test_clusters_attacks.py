"""Bad input to DedicatedClusters and attacks by their administrators, inside and with the operator stopped (H04)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import ApiError, Forbidden
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE, VirtualControlPlane
from tenantry.hosting import simulation
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import JSON, MERGE_PATCH, Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit.api import PODS, SECONDS, SECRETS, Api, until
from testkit.installation import install
from testkit.planes import command, without_operator
from testkit.refusals import refusal
from testkit.traces import traces
from testkit.webhooks import WEBHOOKS, configured

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
CLUSTERS = DedicatedCluster.resource
PLANES, CLAIMS, TEMPLATES = VirtualControlPlane.resource, SliceClaim.resource, ClusterTemplate.resource
NODES = Node.resource
BOX: Json = {"containers": [{"name": "c", "image": "busybox"}]}
URL: Json = {"url": "https://192.0.2.1/"}
LOOPBACK = "127.0.0.1"
BOOTSTRAP = "bootstrap.kubernetes.io/token"


@pytest_asyncio.fixture(scope="module")
async def host_cluster(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A local cluster with the operator and three simulated nodes, of which one stays shared."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("attacked", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="w", count=3),))
    await local.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture
async def host(host_cluster: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of the cluster."""
    async with Client(kubeconfig.load([host_cluster.kubeconfig_path])) as client:
        yield Api(client)


async def done(local: LocalCluster, *arguments: str) -> str:
    """Run a command about clusters, and return what it prints."""
    code, out, err = await command(local, "cluster", *arguments)
    assert code == 0, err
    return out + err


async def told(host: Api, name: str, type_: str, resource: Resource = CLUSTERS, namespace: str = "") -> Json:
    """Return a condition of an object; {} if it has none."""
    found = await host.get(resource, name, namespace or name)
    none: Json = {}
    return next((each for each in found.get("status", {}).get("conditions", []) if each["type"] == type_), none)


async def says(host: Api, name: str, type_: str, reason: str, namespace: str) -> str:
    """Wait until a condition of a cluster has a reason, and return its message."""
    seen: Json = {}

    async def so() -> str:
        seen.clear()
        seen.update(await told(host, name, type_, namespace=namespace))
        return str(seen.get("message")) if seen.get("reason") == reason else ""

    return await until(so, f"{type_} of {name} has the reason {reason}", seen=lambda: seen)


async def handed(host: Api, namespace: str) -> list[str]:
    """Return the nodes that serve the clusters of a namespace."""
    found = await host.list(NodeHandover.resource)
    return [each["metadata"]["name"] for each in found if each["spec"]["plane"]["namespace"] == namespace]


async def gone(host: Api, namespace: str) -> None:
    """Delete all clusters of a namespace, and wait until nothing of them is left."""
    for each in await host.list(CLUSTERS, namespace):
        await host.delete(CLUSTERS, each["metadata"]["name"], namespace)

    async def so() -> bool:
        kinds = (CLUSTERS, PLANES, CLAIMS)
        return not [
            *await handed(host, namespace),
            *[each for kind in kinds for each in await host.list(kind, namespace)],
        ]

    await until(so, f"nothing of the clusters of {namespace} is left", seconds=2 * SECONDS)


# -- inside ---------------------------------------------------------------------------------------


@pytest.mark.long
async def test_an_administrator_inside_takes_no_node_and_guards_follow_the_template(
    host_cluster: LocalCluster, host: Api, name: str, tmp_path: Path
) -> None:
    """H04, DCL-2, DCL-30: guards refuse each attempt; without them, the operator undoes it, or it has no effect."""
    guards = ["OutgoingUrls", "OperatorRights", "NodeIdentity", "BootstrapTokens"]
    await host.create(TEMPLATES, {"metadata": {"name": name}, "spec": {"versions": ["1.36"], "guards": guards}})
    await done(host_cluster, "create", name, "--template", name, "--nodes", "1", "--wait", "--timeout", "3m")
    (node,) = await handed(host, name)
    other = next(each["metadata"]["name"] for each in await host.list(NODES) if each["metadata"]["name"] != node)
    before = await host.get(NODES, other)
    assert (await told(host, name, reasons.GUARDS_ENFORCED))["status"] == "True"
    # A part of the node label that the operator writes.
    file = tmp_path / "kubeconfig"
    file.write_text(await done(host_cluster, "kubeconfig", name))
    relabel: Json = {"metadata": {"labels": {"tenantry.dev/pool": "other"}}}
    async with Client(kubeconfig.load([file])) as client:
        inside = Api(client)
        for attempt in (
            lambda: inside.patch(NODES, node, relabel),
            lambda: inside.client.delete(NODES, "", node),
            lambda: inside.create(NODES, {"metadata": {"name": other}}),
            lambda: inside.create(WEBHOOKS, configured("out", URL)),
            lambda: inside.create(SECRETS, _token(), "kube-system"),
        ):
            with pytest.raises(Forbidden, match=r"rule guards[.][A-Z]\w+ of the host of this cluster"):
                await attempt()
        await inside.patch(NODES, node, {"metadata": {"labels": {"team": "a"}}})
        # Without guards: the process starts again.
        await host.patch(TEMPLATES, name, {"spec": {"guards": []}})

        async def is_open() -> bool:
            if await told(host, name, reasons.GUARDS_ENFORCED):
                return False
            try:
                await inside.patch(NODES, node, relabel)
            except ApiError:
                return False
            return True

        await until(is_open, "the guards have ended", seconds=2 * SECONDS)
        await _is_undone(inside, node)
        await _leads_nowhere(host, inside, name, other)
    assert _lasting(await host.get(NODES, other)) == _lasting(before)
    await done(host_cluster, "delete", name, "--yes", "--timeout", "3m")
    await host.delete(TEMPLATES, name)


def _token() -> Json:
    return {"metadata": {"name": "bootstrap-token-abcdef"}, "type": BOOTSTRAP, "stringData": {"token-id": "abcdef"}}


def _lasting(node: Json) -> Json:
    """Return what of a Node does not change by itself."""
    meta = node["metadata"]
    return {"uid": meta["uid"], "labels": meta["labels"], "spec": node["spec"]}


async def _is_undone(inside: Api, node: str) -> None:
    """Check that the label of the pool comes back, the Node after its deletion, and that a token ends."""

    async def relabelled() -> bool:
        return (await inside.get(NODES, node))["metadata"]["labels"]["tenantry.dev/pool"] == "default"

    await until(relabelled, "the label of the pool is back")
    uid = (await inside.get(NODES, node))["metadata"]["uid"]
    await inside.delete(NODES, node)

    async def is_back() -> bool:
        found = await inside.find(NODES, node)
        conditions: list[Json] = found["status"].get("conditions", []) if found is not None else []
        is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return found is not None and found["metadata"]["uid"] != uid and is_ready

    await until(is_back, "the Node is there again", seconds=2 * SECONDS)
    await inside.create(SECRETS, _token(), "kube-system")

    async def is_ended() -> bool:
        return await inside.find(SECRETS, "bootstrap-token-abcdef", "kube-system") is None

    await until(is_ended, "the token of no machine is deleted")


async def _leads_nowhere(host: Api, inside: Api, name: str, other: str) -> None:
    """Check that a Node of the name of one of the host, with an address of this machine, is no way out."""
    came: list[str] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(str(writer.get_extra_info("peername")))
        writer.transport.abort()

    server = await asyncio.start_server(accept, LOOPBACK, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        addresses = [{"type": "InternalIP", "address": LOOPBACK}]
        status: Json = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
        # It asks for the simulation of the host, too.
        marks = {simulation.MARK: simulation.MARKED}
        meta: Json = {"name": other, "annotations": marks, "labels": marks}
        await inside.create(NODES, {"metadata": meta, "status": status})
        await inside.create(PODS, {"metadata": {"name": "web"}, "spec": {**BOX, "nodeName": other}}, "default")
        for path in (
            f"/api/v1/nodes/{other}/proxy/pods",
            "/api/v1/namespaces/default/pods/web/log",
            "/api/v1/namespaces/default/pods/web/exec?command=id&stdout=1",
        ):
            with pytest.raises(ApiError):
                await inside.client.request("GET", path, attempts=1)
        assert came == []

    # The cluster counts its own node only.
    async def counts() -> bool:
        return (await host.get(CLUSTERS, name, name))["status"]["readyNodes"] == "1/1"

    await until(counts, "the cluster has one node", seconds=2 * SECONDS)
    await inside.delete(NODES, other)


# -- with the operator stopped --------------------------------------------------------------------


class Attack(NamedTuple):
    """A request of an owner on the host: its method, path and body, and words of the refusal."""

    method: str
    path: str
    words: str
    body: Json | None = None
    query: dict[str, str] = {}


def _created(resource: Resource, value: Json, namespace: str, words: str) -> Attack:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **value}
    return Attack("POST", wire.path(resource, namespace), words, body, {"dryRun": "All"})


def _patched(  # noqa: PLR0917 - the parts of one request
    resource: Resource, name: str, namespace: str, patch: Json, words: str, subresource: str = ""
) -> Attack:
    return Attack("PATCH", wire.path(resource, namespace, name, subresource), words, patch, {"dryRun": "All"})


RBAC = "is forbidden: User"
"""A refusal by RBAC names the user."""

DECIDED: Json = {
    "replicas": 3,
    "resources": {"limits": {"memory": "300Mi"}},
    "addOns": [{"name": "Storage", "mode": "None"}],
    "sleep": {"afterIdleSeconds": 60},
}


def attacks(own: str, other: str, node: str, uid: str, owners: list[Json]) -> list[Attack]:
    """Return the requests of an owner of `own`.

    Args:
        own: Its tenant, with the cluster `prod`.
        other: Another tenant with a cluster of this name.
        node: A node that serves the cluster.
        uid: Of the cluster.
        owners: The owner references of its control plane.
    """
    reference = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "name": "prod", "uid": uid}
    forged = {"name": "more", "ownerReferences": [{**reference, "controller": True}]}
    machine = {**reference, "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "TenantryMachine"}
    by_machine = {"name": "more", "ownerReferences": [{**machine, "controller": True}]}
    no_child = "must not get a DedicatedCluster"
    renamed = [{**each, "kind": "ConfigMap", "apiVersion": "v1"} for each in owners]
    plane = {"namespace": own, "name": "prod", "uid": uid}
    handover = {"metadata": {"name": node}, "spec": {"plane": plane, "slice": "any"}}
    secret = {"metadata": {"name": "bootstrap-token-abcdef"}, "type": BOOTSTRAP}
    of_plane = "must not be changed here: the DedicatedCluster of the same name determines them"
    return [
        _created(PLANES, {"metadata": forged, "spec": {"nodes": "Own"}}, own, no_child),
        _created(CLAIMS, {"metadata": forged, "spec": {"count": 9}}, own, no_child),
        _created(CLAIMS, {"metadata": by_machine, "spec": {"count": 9}}, own, no_child),
        _created(PLANES, {"metadata": {"name": "p"}, "spec": {"guards": ["OutgoingUrls"]}}, own, "spec.guards"),
        *(_patched(PLANES, "prod", own, {"spec": {field: value}}, of_plane) for field, value in DECIDED.items()),
        _patched(PLANES, "prod", own, {"spec": {"guards": ["OutgoingUrls"]}}, "tenantry-"),
        _patched(PLANES, "prod", own, {"spec": {"version": "1.35"}}, "must not be before status.version"),
        _patched(PLANES, "prod", own, {"spec": {"egress": {"allowedHosts": ["a.example.com"]}}}, "spec.egress"),
        _patched(PLANES, "prod", own, {"metadata": {"ownerReferences": None}}, "must not lose the DedicatedCluster"),
        _patched(PLANES, "prod", own, {"metadata": {"ownerReferences": renamed}}, "must not lose the DedicatedCluster"),
        _patched(PLANES, "prod", own, {"metadata": {"finalizers": None}}, "must not lose"),
        Attack("DELETE", wire.path(PLANES, own, "prod"), "has all objects of a DedicatedCluster"),
        _patched(CLUSTERS, "prod", own, {"metadata": {"finalizers": None}}, "must not lose"),
        _patched(CLUSTERS, "prod", own, {"metadata": {"finalizers": ["a.example.com/b"]}}, "finalizers"),
        Attack(
            "DELETE",
            wire.path(CLUSTERS, own, "prod"),
            "propagationPolicy Orphan",
            query={"propagationPolicy": "Orphan"},
        ),
        *(
            _patched(kind, named, own, {"status": {"conditions": []}}, RBAC, "status")
            for kind, named in ((CLUSTERS, "prod"), (PLANES, "prod"), (CLAIMS, "prod-default"))
        ),
        _created(NodeHandover.resource, handover, "", RBAC),
        _patched(NodeHandover.resource, node, "", {"spec": {"drainSeconds": 1}}, RBAC),
        Attack("DELETE", wire.path(NodeHandover.resource, "", node), RBAC),
        Attack("GET", wire.path(NodeHandover.resource), RBAC),
        _created(Slice.resource, {"metadata": {"name": "s"}, "spec": {}}, "", RBAC),
        _patched(NODES, node, "", {"metadata": {"labels": {"tenantry.dev/slice": None}}}, RBAC),
        _created(TEMPLATES, {"metadata": {"name": "t"}, "spec": {}}, "", RBAC),
        _patched(TEMPLATES, own, "", {"spec": {"limits": None}}, RBAC),
        Attack("DELETE", wire.path(TEMPLATES, "", own), RBAC),
        Attack("GET", wire.path(SECRETS, other, "prod-kubeconfig"), RBAC),
        Attack("GET", wire.path(SECRETS, other), RBAC),
        Attack("GET", wire.path(CLUSTERS, other, "prod"), RBAC),
        _patched(CLUSTERS, "prod", other, {"spec": {"nodes": 9}}, RBAC),
        Attack("GET", wire.path(SECRETS, SYSTEM_NAMESPACE), RBAC),
        Attack("GET", wire.path(SECRETS, PROCESS_NAMESPACE), RBAC),
        _created(SECRETS, secret, "kube-system", RBAC),
        _created(SECRETS, secret, SYSTEM_NAMESPACE, RBAC),
    ]


async def refused(person: Api, attack: Attack) -> str:
    """Return the refusal of a request; "" if it is served."""
    body = msgspec.json.encode(attack.body) if attack.body is not None else None
    kind = MERGE_PATCH if attack.method == "PATCH" else JSON
    try:
        await person.client.request(
            attack.method, attack.path, query=attack.query, body=body, content_type=kind, attempts=1
        )
    except ApiError as error:
        return str(error)
    return ""


async def test_the_host_refuses_owners_while_the_operator_is_down(
    host_cluster: LocalCluster, host: Api, name: str
) -> None:
    """H04, DCL-4, DCL-21, HAND-2: forged children, limits, handovers, templates and Secrets; by policies and RBAC."""
    other = f"{name}-b"
    await host.make_tenant(name)
    await host.make_tenant(other, owners=[{"kind": "User", "name": "bob"}])
    await host.create(TEMPLATES, {"metadata": {"name": name}, "spec": {"limits": {"nodes": 1}}})
    await host.create(CLUSTERS, {"metadata": {"name": "prod"}, "spec": {"nodes": 1, "template": name}}, name)
    await host.create(CLUSTERS, {"metadata": {"name": "prod"}, "spec": {"nodes": 0}}, other)
    for each in (name, other):
        await until(partial(_is_ready, host, each), f"the cluster of {each} is ready", seconds=3 * SECONDS)
    (node,) = await handed(host, name)
    uid = (await host.get(CLUSTERS, "prod", name))["metadata"]["uid"]
    owners = (await host.get(PLANES, "prod", name))["metadata"]["ownerReferences"]
    async with AsyncExitStack() as stack:
        alice = Api(await stack.enter_async_context(Client(replace(host.client.connection, impersonate="alice"))))
        await stack.enter_async_context(without_operator(host_cluster))
        for attack in attacks(name, other, node, uid, owners):
            why = await refused(alice, attack)
            assert attack.words in why, (attack, why)
        # What an owner may do works meanwhile, and the operator carries it out later.
        await alice.patch(CLUSTERS, "prod", {"spec": {"nodes": 0}}, name)
    await until(partial(_has_no_nodes, host, name), "the operator has carried it out", seconds=2 * SECONDS)
    for each in (name, other):
        await gone(host, each)
    await host.delete(TEMPLATES, name)


async def _is_ready(host: Api, namespace: str) -> bool:
    return (await told(host, "prod", reasons.READY, namespace=namespace)).get("status") == "True"


async def _has_no_nodes(host: Api, namespace: str) -> bool:
    return not await handed(host, namespace)


# -- what does not fit ----------------------------------------------------------------------------


async def test_what_does_not_fit_the_host_or_the_quota_is_told_and_nothing_is_left(
    host_cluster: LocalCluster, host: Api, name: str
) -> None:
    """H04, X03: two clusters that want one node, a pool beyond the quota, and versions that no control plane gets."""
    before = await traces(host_cluster, host)
    await host.make_tenant(name, quota={"hard": {"cpu": 12, "memory": "200Gi"}})
    wanted = (await host.list(NODES))[-1]["metadata"]["name"]
    first, last = ({"nodes": 1, "defaultPool": {"nodeNames": [wanted]}} for _ in range(2))
    await host.create(CLUSTERS, {"metadata": {"name": "first"}, "spec": first}, name)
    await until(partial(_serves, host, name, wanted), "the first cluster has the node", seconds=2 * SECONDS)
    await host.create(CLUSTERS, {"metadata": {"name": "last"}, "spec": last}, name)
    message = await says(host, "last", reasons.NODES_READY, reasons.NODES_INSUFFICIENT, name)
    assert "pool 'default': 0 of 1 nodes are Ready" in message
    assert "lower spec.nodes, or change selector, perNode or nodeNames" in message
    await host.delete(CLUSTERS, "last", name)
    # There is one node more, with 8 CPU.
    await host.patch(CLUSTERS, "first", {"spec": {"pools": [{"name": "big", "count": 1}]}}, name)
    message = await says(host, "first", reasons.NODES_READY, reasons.QUOTA_INSUFFICIENT, name)
    assert "pool 'big': 0 of 1 nodes are Ready" in message
    assert "lower count of spec.pools[big], or ask an administrator for more quota" in message
    assert await handed(host, name) == [wanted]
    await host.patch(CLUSTERS, "first", {"spec": {"pools": []}}, name)
    for version, words in (
        ("1.38", "must be at most one minor version after status.version"),
        ("1.35", "must not be before status.version"),
    ):
        assert words in await refusal(host, CLUSTERS, {"spec": {"version": version}}, name, patch="first")
    await host.patch(CLUSTERS, "first", {"spec": {"version": "1.37"}}, name)
    assert "choose 1.35, 1.36" in await until(partial(_trouble, host, name), "a version that is not offered is refused")
    await host.patch(CLUSTERS, "first", {"spec": {"version": None}}, name)
    uid = (await host.get(PLANES, "first", name))["metadata"]["uid"]
    await gone(host, name)
    await host.delete(Tenant.resource, name)
    seen: list[str] = []

    async def as_before() -> bool:
        seen[:] = before.added(await traces(host_cluster, host, uid))
        return not seen

    await until(as_before, "no process, link, cgroup, folder or object is left", seen=lambda: seen)


async def _serves(host: Api, namespace: str, node: str) -> bool:
    return node in await handed(host, namespace)


async def _trouble(host: Api, namespace: str) -> str:
    message = str((await told(host, "first", reasons.READY, namespace=namespace)).get("message", ""))
    return message if "is not a version of Kubernetes" in message else ""

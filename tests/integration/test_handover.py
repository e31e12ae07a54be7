"""Nodes that leave a real control plane for another cluster and come back: with kwok, a scheduler and DaemonSets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.hosting import simulation
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit.api import PODS, Api, stays, until
from testkit.installation import install
from testkit.planes import Planes, ready, without_operator
from testkit.pool import claim, is_let_in, node_writer, state
from testkit.refusals import refusal
from testkit.requests import People

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONTAINER: Json = {"name": "main", "image": "example.com/app:1"}
QUOTA = {"hard": {"requests.cpu": "64", "requests.memory": "512Gi"}}
ALICE: Json = {"kind": "User", "name": "alice"}


@pytest_asyncio.fixture(scope="module")
async def host(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster of its own with simulated nodes and the operator."""
    groups = tuple(NodeGroup(name=f"h{number}", count=1, labels={"pool": f"h{number}"}) for number in range(4))
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    local = LocalCluster("handover", root=tenantry_home)
    await local.up(
        UpOptions(throwaway=True, install=install, operator=True, nodes=NodePlan(groups=groups), timeout_seconds=180.0)
    )
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="module")
async def api(host: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of that cluster."""
    async with Client(kubeconfig.load([host.kubeconfig_path])) as client:
        api = Api(client)
        slices = {"minGracePeriodSeconds": 0, "cooldownSeconds": 0, "sharedNodes": 0}
        await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"slices": slices}})
        yield api


async def _bound(api: Api, name: str, pool: str, **spec: object) -> tuple[str, str]:
    """Make a tenant with the node of a pool, and return the node and its slice."""
    await api.make_tenant(name, **spec)
    asked = {"selector": {"matchLabels": {"pool": pool}}, "users": "Everybody", "replaceAfterSeconds": 0}
    await claim(api, name, "web", **asked)
    bound = (await state(api, name, "web", "Bound"))["status"]
    return bound["nodes"][0], bound["slice"]


async def _hand_over(api: Api, node: str, slice_: str, namespace: str, uid: str = "none") -> None:
    plane = {"namespace": namespace, "name": "prod", "uid": uid}
    spec: Json = {"plane": plane, "slice": slice_, "drainSeconds": 2, "labels": {"pool": "web"}}
    await api.create(NodeHandover.resource, {"metadata": {"name": node}, "spec": spec})


async def _stage(api: Api, node: str, wanted: str) -> Json:
    """Wait until a handover is in a stage, and return it."""
    status: Json = {}

    async def so() -> Json | None:
        nonlocal status
        found = await api.get(NodeHandover.resource, node)
        status = found.get("status", {})
        return found if status.get("stage") == wanted else None

    return await until(so, f"node {node} is {wanted}", seen=lambda: status)


async def _ready(api: Api, node: str) -> str:
    conditions = (await api.get(Node.resource, node))["status"]["conditions"]
    return next(each["status"] for each in conditions if each["type"] == "Ready")


async def _pods(api: Api, node: str) -> set[str]:
    """Return the labels of the pods of a node that are not about to end."""
    found = [each for each in await api.list(PODS) if each["spec"].get("nodeName") == node]
    return {each["metadata"]["labels"]["app"] for each in found if "deletionTimestamp" not in each["metadata"]}


def _template(app: str, **spec: object) -> Json:
    labels = {"app": app}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER], **spec}}
    return {"metadata": {"name": app}, "spec": {"selector": {"matchLabels": labels}, "template": pod}}


def _pod(app: str, **spec: object) -> Json:
    return {"metadata": {"name": app, "labels": {"app": app}}, "spec": {"containers": [CONTAINER], **spec}}


async def _held(api: Api, namespace: str, slice_: str) -> object:
    """Return what a tenant has and is charged."""
    spec = (await api.get(Slice.resource, slice_))["spec"]
    found = (await api.get(SliceClaim.resource, "web", namespace))["status"]
    quotas = {each["metadata"]["name"]: each["spec"] for each in await api.list(ResourceQuota.resource, namespace)}
    return spec, found["nodes"], found["state"], [each["type"] for each in found["conditions"]], quotas


async def test_a_node_leaves_the_host_and_comes_back(api: Api, name: str) -> None:
    """H05: pods leave by eviction and by the taint, nothing new comes, and slice, charge and quota stay."""
    node, slice_ = await _bound(api, name, "h0", quota=QUOTA)
    await is_let_in(api, name, slice_, _pod("probe"))
    await api.create(DEPLOYMENTS, _template("own"), name)
    # The DaemonSet controller looks at the template, which gets no toleration at admission.
    own = [{"key": marks.SLICE, "operator": "Equal", "value": slice_}]
    await api.create(DAEMON_SETS, _template("logs", tolerations=own), name)
    await api.create(DAEMON_SETS, _template("agent", tolerations=[{"operator": "Exists"}]), "kube-system")

    there: set[str] = set()

    async def runs() -> bool:
        nonlocal there
        there = await _pods(api, node)
        return there == {"own", "logs", "agent"}

    await until(runs, "its pods run there", seen=lambda: there)
    before = await _held(api, name, slice_)
    await _hand_over(api, node, slice_, name)
    away = await _stage(api, node, "Joining")
    assert await _pods(api, node) == {"agent"}
    assert "stay bound to it, and do not run: 'kube-system/agent-" in away["status"]["conditions"][0]["message"]
    found = await api.get(Node.resource, node)
    assert (found["metadata"]["labels"][marks.HANDED_OVER], found["spec"]["unschedulable"]) == ("prod", True)
    assert simulation.MARK not in found["metadata"]["annotations"]
    assert away["status"]["node"] == found["metadata"]["uid"]

    async def rests() -> bool:
        return await _ready(api, node) != "True" and await _pods(api, node) == {"agent"}

    assert await rests()
    assert await _held(api, name, slice_) == before
    # A pod that names the node passes by the scheduler; no kubelet would confirm its end.
    stray = _pod("stray", nodeName=node, tolerations=[{"operator": "Exists"}])
    await api.create(PODS, stray, "kube-system")
    await api.gone(PODS, "stray", "kube-system")
    await stays(rests, "nothing runs there", seconds=2.0)
    await api.delete(NodeHandover.resource, node)
    await api.gone(NodeHandover.resource, node)

    async def is_back() -> bool:
        found = await api.get(Node.resource, node)
        is_usable = "unschedulable" not in found["spec"] and marks.HANDED_OVER not in found["metadata"]["labels"]
        return is_usable and await _ready(api, node) == "True" and await runs()

    await until(is_back, "its pods run there again")
    assert await _held(api, name, slice_) == before
    await api.delete(DAEMON_SETS, "agent", "kube-system")


async def test_only_the_operator_and_administrators_hand_nodes_over(
    api: Api, host: LocalCluster, tmp_path: Path, name: str
) -> None:
    """H05: no tenant, and no user who may write nodes: policies hold whether the operator runs or not."""
    node, slice_ = await _bound(api, name, "h1")
    await _hand_over(api, node, slice_, name)
    await _stage(api, node, "Joining")
    for verb in ("get", "create", "patch", "delete"):
        assert not await api.may(ALICE, verb, marks.GROUP, "nodehandovers")
    async with AsyncExitStack() as stack:
        people = People(host, tmp_path, stack)
        alice = await people.person("alice")
        tolerates = [{"key": marks.HANDED_OVER, "operator": "Exists"}]
        told = await refusal(alice, PODS, _pod("brave", tolerations=tolerates), name)
        assert f"must not tolerate {marks.HANDED_OVER}" in told or "scheduling.tolerations" in told
        async with node_writer(api, people, f"{name}-writer", node) as writer, without_operator(host):
            changes: list[Json] = [
                {"metadata": {"labels": {marks.HANDED_OVER: None}}},
                {"metadata": {"annotations": {marks.HANDED_OVER_TO: "other/prod"}}},
                {"metadata": {"annotations": {marks.HANDOVER_RECORD: None}}},
                {"metadata": {"annotations": {simulation.MARK: "fake"}}},
                {"spec": {"unschedulable": None}},
                {"spec": {"taints": None}},
            ]
            for each in changes:
                with pytest.raises(Forbidden, match="must not be changed: the operator sets them"):
                    await writer.patch(Node.resource, node, each)
    await api.delete(NodeHandover.resource, node)
    await api.gone(NodeHandover.resource, node)


async def test_a_node_joins_a_control_plane_and_comes_back(api: Api, tmp_path: Path, name: str) -> None:
    """H05: with the link of a control plane with nodes of its own: pods run there, and leave before the return."""
    node, slice_ = await _bound(api, name, "h3")
    planes = Planes(api, tmp_path)
    await api.create(VirtualControlPlane.resource, {"metadata": {"name": "prod"}, "spec": {"nodes": "Own"}}, name)
    uid = (await planes.ready(name, "prod"))["metadata"]["uid"]
    await _hand_over(api, node, slice_, name, uid)
    await _stage(api, node, "Joined")

    async def is_ready() -> bool:
        return ready(await api.get(NodeHandover.resource, node)).get("status") == "True"

    await until(is_ready, "the handover is Ready")
    assert await _ready(api, node) != "True"
    async with planes.entered(name, "prod") as inside:
        assert [each["metadata"]["name"] for each in await inside.list(Node.resource)] == [node]
        await inside.create(DEPLOYMENTS, _template("web", nodeSelector={"pool": "web"}), "default")

        async def runs() -> bool:
            return await _pods(inside, node) == {"web"}

        await until(runs, "a pod runs on the node inside")
        assert await _pods(api, node) == set()
        await api.delete(NodeHandover.resource, node)
        await api.gone(NodeHandover.resource, node)
        assert await inside.list(Node.resource) == []

    async def is_back() -> bool:
        return await _ready(api, node) == "True"

    await until(is_back, "the node is Ready on the host")
    await planes.delete(name, "prod")


async def test_a_slice_that_ends_gets_its_node_back_first(api: Api, name: str) -> None:
    """H05: the claim alone is deleted, and the node is Ready and free in the end."""
    node, slice_ = await _bound(api, name, "h2")
    await _hand_over(api, node, slice_, name)
    await _stage(api, node, "Joining")
    await api.delete(SliceClaim.resource, "web", name)
    await api.gone(Slice.resource, slice_)
    assert await api.find(NodeHandover.resource, node) is None
    labels = (await api.get(Node.resource, node))["metadata"]["labels"]
    assert not {marks.HANDED_OVER, marks.SLICE, marks.SLICE_RESERVED} & {*labels}

    async def is_ready() -> bool:
        return await _ready(api, node) == "True"

    await until(is_ready, "the node is Ready")

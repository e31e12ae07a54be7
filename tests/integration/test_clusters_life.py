"""The life of a DedicatedCluster: its quota holds at each write, nothing is left, and crashes stop nothing (H04)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import Unreachable
from tenantry.api.nodehandover import HandoverStage, NodeHandover
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build, process
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.nodes import NodeGroup, NodePlan
from tenantry.local.progress import SilentProgress
from testkit.api import SECONDS, Api, until
from testkit.installation import install
from testkit.ledger import Ledger
from testkit.planes import command
from testkit.traces import Traces, traces

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.long

Json = dict[str, Any]
CLUSTERS, HANDOVERS = DedicatedCluster.resource, NodeHandover.resource
UP = UpOptions(throwaway=True, operator=True, timeout_seconds=180.0)


@pytest_asyncio.fixture(scope="module")
async def local(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A local cluster with the operator and three simulated nodes, of which one stays shared."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    found = LocalCluster("life", root=tenantry_home)
    nodes = NodePlan(groups=(NodeGroup(name="w", count=3),))
    await found.up(UpOptions(throwaway=True, install=install, operator=True, nodes=nodes, timeout_seconds=180.0))
    yield found
    await found.down(purge=True)


@pytest_asyncio.fixture
async def host(local: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of the cluster."""
    async with Client(kubeconfig.load([local.kubeconfig_path])) as client:
        yield Api(client)


async def done(local: LocalCluster, verb: str, name: str, *arguments: str) -> str:
    """Run a command about a cluster, and return what it prints."""
    code, out, err = await command(local, "cluster", verb, name, *arguments)
    assert code == 0, err
    return out + err


async def is_ready(host: Api, name: str, nodes: str) -> bool:
    """Return whether a cluster is Ready and carried out, with so many nodes."""
    try:
        found = await host.get(CLUSTERS, name, name)
    except Unreachable:
        return False  # the supervisor starts the API server again when its etcd was away
    status, generation = found.get("status", {}), found["metadata"]["generation"]
    ready = next((each for each in status.get("conditions", []) if each["type"] == reasons.READY), {"status": ""})
    is_current = status.get("observedGeneration") == generation
    return is_current and ready["status"] == "True" and status.get("readyNodes") == nodes


async def test_the_tree_never_exceeds_its_quota_and_nothing_of_a_cluster_is_left(
    local: LocalCluster, host: Api, name: str
) -> None:
    """H04, H05, X03: at each resourceVersion while it grows, shrinks, sleeps, wakes and ends; then all is as before."""
    before = await traces(local, host)
    await host.make_tenant(name, quota={"hard": {"cpu": 18, "memory": "400Gi"}})
    async with (
        Client(kubeconfig.load([local.kubeconfig_path])) as auditor,
        Ledger(auditor, claims_of=name, planes_of=name).watching() as ledger,
    ):
        await done(local, "create", name, "--nodes", "1", "--wait", "--timeout", "4m")
        uid = (await host.get(VirtualControlPlane.resource, name, name))["metadata"]["uid"]
        # Two nodes have 16 CPU: with the control plane, there is room, and for no third one.
        await done(local, "scale", name, "--nodes", "2", "--wait", "--timeout", "4m")
        await done(local, "scale", name, "--nodes", "1", "--wait", "--timeout", "4m")
        await done(local, "sleep", name, "--release-nodes", "--timeout", "4m")
        await done(local, "wake", name, "--timeout", "4m")
        await until(partial(is_ready, host, name, "1/1"), "it has its node again", seconds=3 * SECONDS)
        await done(local, "delete", name, "--yes", "--timeout", "4m")
        await ledger.catch_up(host)
    assert ledger.breaches() == []
    assert ledger.checked > 20, "the auditor has looked at nothing"
    await host.delete(Tenant.resource, name)
    seen: list[str] = []

    async def as_before() -> bool:
        now: Traces = await traces(local, host, uid)
        seen[:] = before.added(now)
        return not seen

    await until(as_before, "nothing is left of the cluster", seconds=SECONDS, seen=lambda: seen)


async def crash(local: LocalCluster) -> None:
    """Kill the supervisor and all that it runs, as the end of the machine would, and start the cluster again."""
    state = local.status()
    assert process.kill_if_same(state.supervisor_pid, state.supervisor_ticks, signal.SIGKILL)
    for each in state.components:
        if each.pid:
            process.kill_if_same(each.pid, each.start_ticks, signal.SIGKILL)
    await process.wait_gone(state.supervisor_pid, state.supervisor_ticks, SECONDS)

    async def has_ended() -> bool:
        # Its last thread holds its lock.
        return not local.is_running()

    await until(has_ended, "the supervisor has ended")
    await local.up(UP)


async def stage(host: Api, name: str) -> str:
    """Return the stage of the handover of a cluster with one node; "" for none, or while nothing answers."""
    try:
        found = [each for each in await host.list(HANDOVERS) if each["spec"]["plane"]["namespace"] == name]
    except Unreachable:
        return ""
    return str(found[0].get("status", {}).get("stage", "")) if found else ""


async def at(host: Api, name: str, *wanted: HandoverStage) -> str:
    """Wait until the node of a cluster is in one of some stages, and return it."""

    async def so() -> str:
        now = await stage(host, name)
        return now if now in {each.value for each in wanted} else ""

    return await until(so, f"the node is in one of {wanted}", seconds=2 * SECONDS)


async def test_a_crash_of_the_host_in_any_stage_is_gone_on_from(local: LocalCluster, host: Api, name: str) -> None:
    """H04, H05: everything is killed while the node leaves, joins, serves and returns; each time it comes right."""
    stages = HandoverStage
    await done(local, "create", name, "--nodes", "0", "--wait", "--timeout", "4m")
    seen: list[str] = []
    # Each wait ends with the named stage or, if that was too short, with a later one.
    for wanted in ((stages.LEAVING, stages.JOINING, stages.JOINED), (stages.JOINING, stages.JOINED), (stages.JOINED,)):
        await host.patch(CLUSTERS, name, {"spec": {"nodes": 1}}, name)
        seen.append(await at(host, name, *wanted))
        await crash(local)
        await until(partial(is_ready, host, name, "1/1"), f"it comes right after {seen[-1]}", seconds=3 * SECONDS)
        await host.patch(CLUSTERS, name, {"spec": {"nodes": 0}}, name)
        if wanted == (stages.JOINED,):
            seen.append(await at(host, name, stages.RETURNING))
            await crash(local)
        await until(partial(is_ready, host, name, "0/0"), "its node has returned", seconds=3 * SECONDS)
        assert await stage(host, name) == ""
    assert seen[-2:] == [stages.JOINED, stages.RETURNING]
    assert seen[0] != stages.JOINED, f"too late: {seen}"
    await done(local, "delete", name, "--yes", "--timeout", "4m")

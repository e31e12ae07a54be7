"""Our images on real nodes: replicas of the operator, of which the leader is killed, and the NetworkPolicy agent."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.model import Resource
from tenantry.engine.lease import Lease
from tenantry.install import netpolagent
from tenantry.install.rights import OPERATOR
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.real import images, loading
from testkit import tools
from testkit.api import PODS, Api, until
from testkit.realpods import PORT, START_SECONDS, RealPods, missing, process_with

pytest_plugins = ["testkit.fixtures"]

ociimages = tools.load("images")


def lacks() -> str:
    """Return why the tests are skipped; "" if they run."""
    try:
        ociimages.debian.require_release()
    except ociimages.debian.DebianError as error:
        return str(error)
    return missing()


pytestmark = [
    pytest.mark.skipif(bool(lacks()), reason=lacks()),
    # pip and apt-get fetch what the image consists of.
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

Json = dict[str, Any]
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


@pytest_asyncio.fixture(scope="module")
async def cluster(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """A cluster with a real node, in which Tenantry is installed as in any other cluster, from its image."""
    archive, _ = await asyncio.to_thread(ociimages.write, "operator", tmp_path_factory.mktemp("image"))
    reference = images.reference_of(archive)
    local = LocalCluster("operatorimage", root=tenantry_home)
    await local.up(UpOptions(throwaway=True, real_nodes=1, timeout_seconds=180.0))
    real = local.real()
    await loading.load(local.paths, real.binaries, [each.name for each in real.nodes], archive, reference)
    command = (sys.executable, "-m", "tenantry", "install", "--kubeconfig", local.kubeconfig_path, "--image", reference)
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    yield local
    await local.down(purge=True)


async def leads(api: Api, *, after: str = "") -> str:
    """Wait until another replica than one leads, and return its name."""
    seen: list[str] = [""]

    async def so() -> bool:
        lease = await api.find(Lease.resource, OPERATOR, SYSTEM_NAMESPACE) or {}
        seen[:] = [str(lease.get("spec", {}).get("holderIdentity") or "")]
        return bool(seen[0]) and seen[0] != after

    await until(so, "another replica leads", seconds=START_SECONDS, seen=lambda: seen)
    return seen[0]


def process_in(pod: Json) -> int:
    """Return the process of the one container of a pod."""
    (status,) = pod["status"]["containerStatuses"]
    return process_with(status["containerID"].rpartition("/")[2])


def has_no_rights(pid: int) -> None:
    """Check that a process is not root, has no capabilities, and cannot write its file system."""
    about = Path(f"/proc/{pid}/status").read_text()
    assert re.search(r"^Uid:\s+65532\s+65532\s+65532\s+65532$", about, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0+$", about, re.MULTILINE)
    mounts = [line.split() for line in Path(f"/proc/{pid}/mounts").read_text().splitlines()]
    assert all("ro" in options.split(",") for _, place, _, options, *_ in mounts if place == "/")


async def test_another_replica_takes_over_from_a_killed_leader(cluster: LocalCluster) -> None:
    """The image has what the operator needs, also where it may write nothing and is not root."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        api = Api(client)
        seen: Json = {}

        async def available() -> bool:
            seen.update((await api.get(DEPLOYMENTS, OPERATOR, SYSTEM_NAMESPACE)).get("status", {}))
            return seen.get("availableReplicas", 0) == 2

        await until(available, "two replicas are available", seconds=START_SECONDS, seen=lambda: seen)
        first = await leads(api)
        await api.make_tenant("before")

        replicas = {each["metadata"]["name"]: each for each in await api.list(PODS, SYSTEM_NAMESPACE)}
        assert len(replicas) == 2
        leader = replicas[first.rpartition("_")[0]]
        pid = process_in(leader)
        await asyncio.to_thread(has_no_rights, pid)
        os.kill(pid, signal.SIGKILL)
        await leads(api, after=first)
        await api.make_tenant("after")
        await until(available, "two replicas are available again", seconds=START_SECONDS, seen=lambda: seen)


async def test_the_image_has_no_shell(cluster: LocalCluster) -> None:
    for program in ("sh", "bash", "apt-get", "pip"):
        done = await asyncio.to_thread(
            cluster.kubectl, "-n", SYSTEM_NAMESPACE, "exec", f"deployment/{OPERATOR}", "--", program
        )
        assert done.returncode != 0
        assert "executable file not found" in done.stderr, done.stderr


async def test_the_network_policy_agent_runs_from_its_image(cluster: LocalCluster, tmp_path: Path) -> None:
    """H06: the DaemonSet of deploy/ enforces isolation while the node's own agent does nothing."""
    archive, _ = await asyncio.to_thread(ociimages.write, "netpol", tmp_path)
    reference = images.reference_of(archive)
    real = cluster.real()
    (node,) = [each.name for each in real.nodes]
    await loading.load(cluster.paths, real.binaries, [node], archive, reference)
    items = netpolagent.everything()
    (container,) = items[-1]["spec"]["template"]["spec"]["containers"]
    container["image"] = reference
    # Each pod of these nodes has a veth pair of its own.
    container["args"] = [*(each for each in container["args"] if "interface" not in each), "--pod-interface=veth*"]
    container["args"].append("--routed")
    manifest = tmp_path / "agent.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        pods = RealPods(cluster, Api(client))
        await pods.load_image(tmp_path)
        for tenant in ("ours", "theirs"):
            await pods.api.make_tenant(tenant, isolation={"network": "Isolated", "runtime": "Shared"})
            await pods.api.ready(tenant)
        own = pods.agent(node)
        os.kill(own, signal.SIGSTOP)
        try:
            applied = await asyncio.to_thread(cluster.kubectl, "apply", "--server-side", "--filename", str(manifest))
            assert applied.returncode == 0, applied.stderr
            wait = ("rollout", "status", f"daemonset/{netpolagent.NAME}", f"--timeout={START_SECONDS:.0f}s")
            done = await asyncio.to_thread(cluster.kubectl, "-n", netpolagent.NAMESPACE, *wait)
            assert done.returncode == 0, done.stderr
            # Without an agent that works, none of them would have a network.
            one, two, foreign = await asyncio.gather(
                pods.make("ours", "one", node, "runc"),
                pods.make("ours", "two", node, "runc"),
                pods.make("theirs", "foreign", node, "runc"),
            )
            await until(lambda: pods.reaches(one, two.address, PORT), "the agent knows the pods", seconds=START_SECONDS)
            rows = [(one, two.address, PORT, "http", True), (one, foreign.address, PORT, "http", False)]
            assert await pods.mismatches(rows) == []
            (pod,) = [
                each
                for each in await pods.api.list(PODS, netpolagent.NAMESPACE)
                if each["metadata"]["name"].startswith(netpolagent.NAME)
            ]
            about = await asyncio.to_thread(Path(f"/proc/{process_in(pod)}/status").read_text)
            # CAP_NET_ADMIN is the twelfth (capabilities(7)).
            assert re.search(r"^CapEff:\s+0*1000$", about, re.MULTILINE), about
        finally:
            os.kill(own, signal.SIGCONT)

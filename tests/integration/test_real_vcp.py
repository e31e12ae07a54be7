"""Pods of a virtual control plane on real nodes: their logs, and streams into them, as users with kubectl see them."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.model import Resource
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from testkit import ports
from testkit.api import CONFIG_MAPS, PODS, SECRETS, Api, until
from testkit.installation import install
from testkit.planes import Planes
from testkit.realpods import AGNHOST, START_SECONDS, RealPods, missing

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Json = dict[str, Any]

REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


@pytest_asyncio.fixture(scope="module")
async def planes(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Planes]:
    """Virtual control planes of a cluster with two real nodes and the operator."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    cluster = LocalCluster("realplanes", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=2, install=install, operator=True, timeout_seconds=180.0))
    folder = tmp_path_factory.mktemp("planes")
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        await RealPods(cluster, Api(client)).load_image(folder)
        yield Planes(Api(client), folder)
    await cluster.down(purge=True)


class Kubectl:
    """kubectl as the user of a control plane.

    Args:
        path: The kubeconfig.
    """

    def __init__(self, path: Path) -> None:
        self._command = (str(build.ensure(SilentProgress()).kubectl), f"--kubeconfig={path}")

    def command(self, *arguments: str) -> list[str]:
        """Return a command."""
        return [*self._command, *arguments]

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""

        def call() -> subprocess.CompletedProcess[str]:
            return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=60, check=False)

        return await asyncio.to_thread(call)

    async def out(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        done = await self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


def pod(name: str) -> Json:
    """Return a pod that serves HTTP on 8080, and that the rules of a tenant accept."""
    careful = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "web",
        "image": AGNHOST,
        "args": ["netexec", "--http-port=8080"],
        "securityContext": careful,
        "env": [
            {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "word"}}},
        ],
    }
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


async def test_logs_exec_and_port_forward_reach_the_pod(planes: Planes, name: str) -> None:
    """H01: through the gate, in both protocols; a pod reads its token, its name, and what it refers to."""
    await planes.host.make_tenant(name, isolation={"runtime": "Shared"})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        kubectl = Kubectl(planes.kubeconfig(name, "web"))
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}}, "default")
        await inside.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"word": "sesame"}}, "default")
        await inside.create(PODS, pod("web"), "default")

        async def runs() -> bool:
            return (await inside.get(PODS, "web", "default")).get("status", {}).get("phase") == "Running"

        await until(runs, "the pod runs", seconds=START_SECONDS)

        async def logged() -> bool:
            return "Started HTTP server" in await kubectl.out("logs", "web")

        await until(logged, "the server has said that it listens")
        said = await kubectl.out("exec", "web", "--", "/agnhost", "mounttest", f"--file_content={TOKEN}")
        token = re.search(r"ey[\w.-]+", said)
        assert token is not None
        # The token is the one that this control plane has issued for this pod.
        found = await inside.create(REVIEWS, {"spec": {"token": token[0]}})
        assert found["status"]["user"]["username"] == "system:serviceaccount:default:default"
        assert await kubectl.out("exec", "web", "--", "/agnhost", "help")
        port = ports.free(1)[0]
        forward = await asyncio.create_subprocess_exec(
            *kubectl.command("port-forward", "pod/web", f"{port}:8080"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            assert forward.stdout is not None
            assert b"Forwarding from" in await asyncio.wait_for(forward.stdout.readline(), 30)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /hostname HTTP/1.0\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 30)).endswith(b"web")
            writer.close()
        finally:
            forward.terminate()
            await forward.wait()
        # What the gate does not admit: other paths of a node, and nodes that are not there.
        (node,) = {each["spec"]["nodeName"] for each in await inside.list(PODS, "default")}
        refused = await kubectl.run("get", "--raw", f"/api/v1/nodes/{node}/proxy/pods")
        assert refused.returncode != 0
        assert "could not find the requested resource" in refused.stderr

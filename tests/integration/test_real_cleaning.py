"""What a tenant leaves on a real node, and that none of it is there for the next; see test_real_nodes.py for where."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.node import Node
from tenantry.api.slice import SliceClaim
from tenantry.controllers.slices.cleaning import CONDITION
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from tenantry.local.real import images, loading, node
from tenantry.local.real.images import ImageRecipe
from tenantry.local.real.settings import SOCKET
from testkit.api import PODS, Api, until
from testkit.installation import install
from testkit.pool import claim, give_every_node, is_let_in, slice_marks, state
from testkit.realpods import missing

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

NODE = "real-1"
OURS = "tenantry.local/agnhost:1"
THEIRS = "registry.example/theirs:1"
SECONDS = 120.0
"""A kubelet looks at some things once a minute."""


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


class Inside:
    """One real node, looked at from this machine.

    Args:
        cluster: Its cluster.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._binaries = Path(cluster.real().binaries)
        self.pid = node.process_of(cluster.paths, NODE)
        self.files = Path(f"/proc/{self.pid}/root")

    async def ctr(self, *arguments: str) -> str:
        """Ask the node's containerd; the answer is returned."""
        command = [str(self._binaries / "ctr"), "--address", f"{self.files}{SOCKET}", "--namespace", "k8s.io"]
        return await asyncio.to_thread(subprocess.check_output, [*command, *arguments], text=True)

    async def images(self) -> set[str]:
        """Return the names of its images."""
        return set((await self.ctr("images", "ls", "--quiet")).split())

    async def traces(self, uid: str) -> list[str]:
        """Return what there is of a pod."""
        folders = [*(self.files / "var/lib/kubelet/pods").glob(uid), *(self.files / "var/log/pods").glob(f"*{uid}")]
        containers = await self.ctr("containers", "ls", "--quiet", f'labels."io.kubernetes.pod.uid"=={uid}')
        return [*(str(each) for each in folders), *containers.split()]


@pytest_asyncio.fixture(scope="module")
async def cluster(tenantry_home: Path) -> AsyncGenerator[LocalCluster]:
    """A cluster with one real node and the operator."""
    local = LocalCluster("cleaned", root=tenantry_home)
    await local.up(UpOptions(throwaway=True, install=install, operator=True, real_nodes=1, timeout_seconds=240.0))
    yield local
    await local.down(purge=True)


@pytest_asyncio.fixture(scope="module")
async def api(cluster: LocalCluster) -> AsyncGenerator[Api]:
    """An administrator of it."""
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        api = Api(client)
        await give_every_node(api)
        yield api


@pytest_asyncio.fixture(scope="module")
async def inside(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Inside:
    """The node, with the image that tests run and that is the node's own."""
    binaries = await asyncio.to_thread(build.ensure, SilentProgress(), build.AGNHOST)
    file = tmp_path_factory.mktemp("images") / "agnhost.tar"
    recipe = ImageRecipe(reference=OURS, files={"/agnhost": binaries.folder / "agnhost"}, entrypoint=("/agnhost",))
    await asyncio.to_thread(images.write, recipe, file)
    real = cluster.real()
    await loading.load(cluster.paths, real.binaries, [NODE], file, OURS)
    return Inside(cluster)


def pod(called: str, *arguments: str) -> Json:
    """Return a pod with an emptyDir that writes there and goes on, or ends."""
    mount = {"name": "scratch", "mountPath": "/scratch"}
    security = {
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": OURS,
        "args": list(arguments),
        "volumeMounts": [mount],
        "securityContext": security,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
    }
    spec: Json = {
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
    }
    return {"metadata": {"name": called}, "spec": spec}


async def run_pod(api: Api, namespace: str, called: str, *arguments: str) -> Json:
    """Make a pod, see `pod`; it is returned once it runs or did."""
    await api.create(PODS, pod(called, *arguments), namespace)

    async def so() -> Json | None:
        found = await api.get(PODS, called, namespace)
        return found if found["status"].get("phase") in {"Running", "Succeeded"} else None

    return await until(so, f"the pod {called} runs", seconds=SECONDS)


async def pull(inside: Inside, folder: Path) -> None:
    """Bring an image to the node as a pull of the tenant's does."""
    (folder / "theirs").write_text("theirs")
    file = folder / "theirs.tar"
    images.write(ImageRecipe(reference=THEIRS, files={"/theirs": folder / "theirs"}), file)
    await inside.ctr("images", "import", "--local", str(file))


async def freed(api: Api) -> Json:
    """Wait until the node is shared again, and return it."""

    async def so() -> Json | None:
        found = await api.get(Node.resource, NODE)
        return found if slice_marks(found) == ("", "", set()) else None

    return await until(so, f"{NODE} is shared again", seconds=SECONDS)


def clean(found: Json) -> Json:
    """Return the condition of a node that says how its cleaning ended."""
    told: list[Json] = [each for each in found["status"]["conditions"] if each["type"] == CONDITION]
    return told[0] if told else {}


async def test_nothing_of_a_tenant_is_there_for_the_next(api: Api, inside: Inside, tmp_path: Path, name: str) -> None:
    """E20: its pods' containers, folders, logs and images are gone when the node is free; those of the node stay."""
    await api.make_tenant(name)
    before = await inside.images()
    assert OURS in before
    await claim(api, name, "web", users="Everybody", gracePeriodSeconds=0)
    bound = await state(api, name, "web", "Bound")
    await is_let_in(api, name, bound["status"]["slice"], pod("probe", "help"))
    await pull(inside, tmp_path)
    assert THEIRS in await inside.images()
    lives = await run_pod(api, name, "lives", "netexec", "--http-port=8080")
    ended = await run_pod(api, name, "ended", "help")
    uids = [each["metadata"]["uid"] for each in (lives, ended)]
    assert all([await inside.traces(uid) for uid in uids])
    await api.delete(SliceClaim.resource, "web", name)
    condition = clean(await freed(api))
    assert (condition["status"], condition["reason"]) == ("True", "Cleaned")
    assert "images" in condition["message"]
    assert await inside.images() == before
    assert [await inside.traces(uid) for uid in uids] == [[], []]
    # The kubelet does not mind: the next tenant's pod runs.
    other = f"{name}-o"
    await api.make_tenant(other)
    await run_pod(api, other, "next", "netexec", "--http-port=8080")
    await api.delete(PODS, "next", other)
    await api.delete(PODS, "ended", name)


async def test_a_node_that_cannot_be_cleaned_stays_set_aside(api: Api, inside: Inside, name: str) -> None:
    """E20: what is held open is named on the node and the claim's slice; when it is let go, the node goes back."""
    await api.make_tenant(name)
    await claim(api, name, "web", users="Everybody", gracePeriodSeconds=0)
    await state(api, name, "web", "Bound")
    place = f"/var/lib/kubelet/pods/{name}/volumes/busy"
    enter = ("nsenter", "--target", str(inside.pid), "--mount", "--")
    for command in (("mkdir", "-p", place), ("mount", "-t", "tmpfs", "busy", place)):
        await asyncio.to_thread(subprocess.check_call, [*enter, *command])
    held = await asyncio.create_subprocess_exec(*enter, "sh", "-c", f"cd {place} && exec sleep 600")
    try:
        await until(lambda: is_in(held.pid, place), "a process is in the folder")
        await api.delete(SliceClaim.resource, "web", name)

        async def stuck() -> Json | None:
            told = clean(await api.get(Node.resource, NODE))
            return told if told.get("status") == "False" else None

        told = await until(stuck, "the node says that it is not clean", seconds=SECONDS)
        assert told["reason"] == "NodesNotClean"
        assert "busy" in told["message"]
        assert slice_marks(await api.get(Node.resource, NODE))[2] == {"NoSchedule", "NoExecute"}
    finally:
        held.kill()
        await held.wait()
    assert clean(await freed(api))["status"] == "True"
    assert not (inside.files / f"var/lib/kubelet/pods/{name}").exists()


async def is_in(pid: int, place: str) -> bool:
    """Tell whether a process is in a folder, as its mount namespace names it."""
    return await asyncio.to_thread(os.readlink, f"/proc/{pid}/cwd") == place

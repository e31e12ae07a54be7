"""Volumes of real nodes have the size of their claim, for containers and for sandboxes, and outlive crashes.

They need what `test_real_nodes` needs, and are skipped in the same way (TENANTRY_TEST_REAL=0).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api.model import Json, Resource
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import process
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.real import loops, node, nodevolumes
from testkit import debian
from testkit.api import PODS, SECONDS, Api, until
from testkit.kubectl import Kubectl
from testkit.realpods import RealPods, Spot, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS = Resource("", "v1", "events", "Event")
PLACE = "default"
SIZE = 16 * 2**20
TOOLS = ("sh", "dd", "cat", "mknod")


def _fill(folder: Path) -> None:
    debian.fetch("busybox-static", folder=folder, with_dependencies=False)


@pytest_asyncio.fixture(scope="module")
async def pods(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPods]:
    """A cluster with a real node whose image has BusyBox."""
    cluster = LocalCluster("volumes", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=1, timeout_seconds=180.0))
    try:
        async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
            made = RealPods(cluster, Api(client))
            package = await asyncio.to_thread(debian.cached, "busybox", _fill)
            tool = next(package.rglob("bin/busybox"))
            await made.load_image(tmp_path_factory.mktemp("images"), **dict.fromkeys(TOOLS, tool))
            await until(lambda: made.api.find(ACCOUNTS, "default", PLACE), "pods can be created")
            yield made
    finally:
        await cluster.down(purge=True)
    assert loops.below(cluster.paths.folder) == []


async def _claim(pods: RealPods, name: str, size: str = str(SIZE)) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    await pods.api.create(CLAIMS, {"metadata": {"name": name}, "spec": spec}, PLACE)


def _pod(claim: str, **container: Json) -> dict[str, Json]:
    return {
        "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]},
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}], **container},
    }


async def _sh(pods: RealPods, spot: Spot, script: str) -> tuple[int, str]:
    said = await Kubectl(pods.cluster.kubeconfig_path).run("exec", spot.name, "--", "sh", "-c", script)
    return said.returncode or 0, said.stdout + said.stderr


async def _image(pods: RealPods, claim: str) -> Path:
    uid = (await pods.api.get(CLAIMS, claim, PLACE))["metadata"]["uid"]
    return node.folder_of(pods.cluster.paths, "real-1") / "disks" / f"pvc-{uid}.img"


async def _delete(pods: RealPods, *names: str) -> None:
    for name in names:
        await pods.api.delete(PODS, name, PLACE)
        await pods.api.gone(PODS, name, PLACE)
        await pods.api.delete(CLAIMS, name, PLACE)


@pytest.mark.parametrize("runtime", ["runc", "gvisor"])
async def test_a_pod_cannot_write_more_than_the_size_of_its_claim(pods: RealPods, runtime: str) -> None:
    """E20: ENOSPC in the pod, at most the size on disk, and no way to the device or beside the volume."""
    root = {"runAsUser": 0}
    await _claim(pods, runtime)
    await _claim(pods, f"{runtime}-other")
    spot = await pods.make(PLACE, runtime, "real-1", runtime, **_pod(runtime, securityContext=root))
    other = await pods.make(PLACE, f"{runtime}-other", "real-1", "gvisor", **_pod(f"{runtime}-other"))
    image = await _image(pods, runtime)
    code, text = await _sh(pods, spot, "dd if=/dev/zero of=/data/f bs=1048576 count=64")
    assert code
    assert "No space left on device" in text
    about = image.stat()
    assert about.st_size == SIZE
    assert about.st_blocks * 512 <= SIZE
    uid = image.stem.removeprefix("pvc-")
    assert (await pods.api.get(VOLUMES, f"pvc-{uid}"))["spec"]["capacity"]["storage"] == "16Mi"
    # Another volume of the node is as it was.
    assert await _sh(pods, other, "echo kept > /data/f && cat /data/f") == (0, "kept\n")
    (device,) = [each for each in loops.below(pods.cluster.paths.folder) if each.file.endswith(image.name)]
    for place in ("/data/device", "/own-device"):
        code, text = await _sh(pods, spot, f"mknod {place} b 7 {device.number} && dd if={place} of=/dev/null count=1")
        assert code, text
    assert not [*(node.folder_of(pods.cluster.paths, "real-1") / "volumes").glob("pvc-*/*")]
    await _delete(pods, runtime)

    async def is_gone() -> bool:
        left = [each for each in loops.below(pods.cluster.paths.folder) if image.name in each.file]
        return not left and not image.exists()

    await until(is_gone, "the image and its device are gone, while other pods run", seconds=SECONDS)
    await _delete(pods, f"{runtime}-other")


async def test_data_stays_over_crashes_and_no_device_does(pods: RealPods) -> None:
    """E20: SIGKILL of the provisioner, of the node and of the supervisor; `down` leaves no loop device."""
    cluster = pods.cluster
    await _claim(pods, "kept")
    spot = await pods.make(PLACE, "kept", "real-1", "runc", **_pod("kept"))
    assert (await _sh(pods, spot, "echo data > /data/f"))[0] == 0
    before = cluster.status().component("local-storage")
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    await _claim(pods, "later")
    await pods.make(PLACE, "later", "real-1", "gvisor", **_pod("later"))
    os.kill(node.process_of(cluster.paths, "real-1"), signal.SIGKILL)

    async def reads() -> bool:
        return (await _sh(pods, spot, "cat /data/f")) == (0, "data\n")

    await until(reads, "the pod runs again with its data", seconds=240.0)
    state = cluster.status()
    assert process.kill_if_same(state.supervisor_pid, state.supervisor_ticks, signal.SIGKILL)
    await process.wait_gone(state.supervisor_pid, state.supervisor_ticks, SECONDS)
    await cluster.down()
    assert loops.below(cluster.paths.folder) == []
    await cluster.up(UpOptions(throwaway=True, timeout_seconds=180.0))
    await until(reads, "the pod runs again with its data", seconds=240.0)
    await _delete(pods, "kept", "later")


async def test_a_size_that_no_volume_can_have_is_an_event_of_the_claim(pods: RealPods) -> None:
    """E20: one sentence for its owner, and other claims do not wait."""
    for name, size, text in (
        ("tiny", "1", "is less than 1Mi, the smallest volume"),
        ("huge", "1Pi", "the disk of the node has no room for a volume of 1Pi"),
    ):
        await _claim(pods, name, size)
        pod = {"containers": [{"name": "c", "image": "x"}], **_pod(name)["spec"]}
        await pods.api.create(PODS, {"metadata": {"name": name}, "spec": pod}, PLACE)

        async def is_told(name: str = name, text: str = text) -> bool:
            found = await pods.api.list(EVENTS, PLACE)
            of_it = [each for each in found if each["involvedObject"]["name"] == name]
            return any(each["reason"] == "ProvisioningFailed" and text in each["message"] for each in of_it)

        await until(is_told, f"the claim {name} has an event", seconds=SECONDS)
    await _claim(pods, "good")
    await pods.make(PLACE, "good", "real-1", "runc", **_pod("good"))
    await _delete(pods, "tiny", "huge", "good")


async def test_a_machine_without_loop_devices_is_detected(tmp_path: Path) -> None:
    """E20: what is missing, and what to do; here, a file is in the place of the control device."""
    assert nodevolumes.lacking(tmp_path) == ""
    imports = "from pathlib import Path; from tenantry.local.real import nodevolumes"
    code = f"{imports}; print(nodevolumes.lacking(Path({str(tmp_path)!r})))"
    script = 'mount --bind /dev/null /dev/loop-control && exec "$0" -c "$1"'
    command = ("unshare", "--mount", "--propagation=private", "sh", "-c", script, sys.executable, code)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    text = (await child.communicate())[0].decode()
    assert "cannot be mounted as a file system by a loop device" in text
    assert "/dev/loop-control" in text
    assert loops.below(tmp_path) == []

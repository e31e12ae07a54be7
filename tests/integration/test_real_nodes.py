"""Nodes on which pods really run: containers, sandboxes, their network, and that nothing of them stays behind.

They need root on Linux and the programs of `tenantry local build --with-nodes` (and agnhost, which is built here in a
minute). Otherwise they are skipped with the reason. `make test` skips them (TENANTRY_TEST_REAL=0): each cluster takes
half a minute, and memory that not every machine has beside all other tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.errors import InputError
from tenantry.local import build, process
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from tenantry.local.real import cgroups, images, loops, network, node, settings
from tenantry.local.real.images import ImageRecipe
from testkit.api import SECONDS, until
from testkit.realpods import START_SECONDS, missing

AGNHOST = "tenantry.local/agnhost:1"
TENANTRY = (sys.executable, "-m", "tenantry")


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def left_behind(cluster: LocalCluster) -> list[str]:
    """Return every link, rule, cgroup, loop device, mount and process of a cluster's nodes that this machine has."""
    name = network.identity(cluster.paths.folder)
    found = [f"link {each.name}" for each in Path("/sys/class/net").iterdir() if each.name.startswith(name)]
    nft = shutil.which("nft") or ""
    tables = subprocess.run([nft, "list", "tables"], capture_output=True, text=True, check=True).stdout
    found += [f"rules {line}" for line in tables.splitlines() if name in line]
    found += [f"cgroup {each.root / name}" for each in cgroups.hierarchies() if (each.root / name).exists()]
    found += [each.path for each in loops.below(cluster.paths.folder)]
    folder = str(cluster.paths.folder.resolve())
    found += [f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder in line]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                groups, command = (entry / "cgroup").read_text(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if name in groups or (folder.encode() in command and b"real" in command):
                found.append(f"process {entry.name} {command!r}")
    return found


def namespaces(pid: int = 0) -> set[str]:
    """Return the namespaces of a process that are not this one's, or without a pid those of all processes."""
    found: set[str] = set()
    for entry in [Path(f"/proc/{pid}")] if pid else Path("/proc").iterdir():
        for kind in ("net", "mnt", "uts", "ipc", "cgroup", "pid_for_children") if entry.name.isdecimal() else ():
            with contextlib.suppress(OSError):
                found.add(str((entry / "ns" / kind).readlink()))
    return found - namespaces(os.getpid()) if pid and pid != os.getpid() else found


@pytest_asyncio.fixture(scope="module")
async def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tar file of an image with agnhost, made with no registry and no daemon."""
    binaries = await asyncio.to_thread(build.ensure, SilentProgress(), build.AGNHOST)
    target = tmp_path_factory.mktemp("images") / "agnhost.tar"
    program = f"{binaries.folder / 'agnhost'}:/agnhost"
    said = await run("image", "build", AGNHOST, program, "--entrypoint=/agnhost", f"--to={target}")
    assert said == f"{target}\n"
    return target


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    """The settings of this machine's kernel before the first node."""
    return kernel_settings(Path("/proc/sys"))


def kernel_settings(folder: Path) -> dict[str, str]:
    """Return the settings that a kubelet would change."""
    return {name: (folder / name).read_text().strip() for name in settings.KERNEL}


@pytest_asyncio.fixture(scope="module")
async def real(tenantry_home: Path, image: Path, before: dict[str, str]) -> AsyncIterator[LocalCluster]:
    """A cluster with two real nodes that have the image, and nothing of Tenantry in it."""
    assert before, "the settings are read before the first node starts"
    cluster = LocalCluster("real", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=2))
    assert await run("image", "load", "--cluster=real", str(image)) == f"{AGNHOST}\n"
    yield cluster
    await cluster.down(purge=True)


async def run(*arguments: str) -> str:
    """Run the command; its stdout is returned."""
    child = await asyncio.create_subprocess_exec(
        *TENANTRY, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return out.decode()


async def kubectl(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(cluster.kubectl, *arguments)


async def make_pod(
    cluster: LocalCluster,
    name: str,
    place: str,
    runtime: str,
    *,
    claim: str = "",
) -> str:
    """Make a pod that serves HTTP on 8080, wait until it is Ready, and return its address.

    It has the volume of a claim at /data, where one is named, and is on any node where none is.
    """
    container = {
        "name": "web",
        "image": AGNHOST,
        "args": ["netexec", "--http-port=8080"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}] if claim else [],
        "securityContext": {
            "runAsUser": 1000,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "readinessProbe": {"httpGet": {"path": "/hostname", "port": 8080}, "periodSeconds": 1},
    }
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            **({"nodeName": place} if place else {}),
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else [],
            "runtimeClassName": runtime,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
    file = cluster.paths.folder / f"{name}.json"
    file.write_text(json.dumps(pod))
    # A pod needs the service account of its namespace, which is made some time after it.
    await until(lambda: does(cluster, "create", "-f", str(file)), f"the pod {name} is made")
    ready = await kubectl(cluster, "wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={START_SECONDS:.0f}s")
    assert ready.returncode == 0, (await kubectl(cluster, "describe", "pod", name)).stdout
    return (await kubectl(cluster, "get", "pod", name, "-o", "jsonpath={.status.podIP}")).stdout


async def does(cluster: LocalCluster, *arguments: str) -> bool:
    """Tell whether kubectl succeeds."""
    return (await kubectl(cluster, *arguments)).returncode == 0


async def reaches(cluster: LocalCluster, pod: str, target: str) -> bool:
    """Tell whether a pod opens a connection to an address and port."""
    return await does(cluster, "exec", pod, "--", "/agnhost", "connect", "--timeout=2s", target)


async def kernel(cluster: LocalCluster, pod: str) -> str:
    """Return what the kernel that a pod sees calls itself."""
    return (await kubectl(cluster, "exec", pod, "--", "/agnhost", "mounttest", "--file_content=/proc/version")).stdout


async def test_pods_run_in_containers_and_sandboxes_and_reach_each_other(real: LocalCluster) -> None:
    """E14: a runc pod and a gVisor pod on two nodes serve each other, by pod and by Service; logs and exec work."""
    plain, boxed = "plain", "boxed"
    plain_ip, boxed_ip = await asyncio.gather(
        make_pod(real, plain, "real-1", "runc"), make_pod(real, boxed, "real-2", "gvisor")
    )
    assert (await kubectl(real, "expose", "pod", boxed, "--port=80", "--target-port=8080")).returncode == 0
    service = (await kubectl(real, "get", "service", boxed, "-o", "jsonpath={.spec.clusterIP}")).stdout
    await until(lambda: reaches(real, plain, f"{service}:80"), "kube-proxy knows the Service")
    assert await reaches(real, plain, f"{boxed_ip}:8080")
    assert await reaches(real, boxed, f"{plain_ip}:8080")
    assert await reaches(real, boxed, f"{service}:80")
    assert not await reaches(real, plain, f"{plain_ip}:8081")
    assert "Started HTTP server on port 8080" in (await kubectl(real, "logs", boxed)).stdout
    assert "gvisor" in await kernel(real, boxed)
    assert os.uname().release in await kernel(real, plain)
    await kubectl(real, "delete", f"pod/{plain}", f"pod/{boxed}", f"service/{boxed}")


async def test_a_kubelet_changes_no_setting_of_the_machine(real: LocalCluster, before: dict[str, str]) -> None:
    """E14: it finds the values that it wants in files of its node."""
    for name in ("real-1", "real-2"):
        inside = Path(f"/proc/{node.process_of(real.paths, name)}/root/proc/sys")
        assert kernel_settings(inside) == settings.KERNEL
    assert kernel_settings(Path("/proc/sys")) == before


async def test_names_resolve_and_network_policies_hold(real: LocalCluster) -> None:
    """H06: pods resolve Services by CoreDNS; a NetworkPolicy stops packets, of containers and of sandboxes."""
    await asyncio.gather(make_pod(real, "asked", "real-2", "runc"), make_pod(real, "closed", "real-1", "gvisor"))
    for pod in ("asked", "closed"):
        assert await does(real, "expose", "pod", pod, "--port=80", "--target-port=8080")
    target = "closed.default.svc.cluster.local:80"
    await until(lambda: reaches(real, "asked", target), "the name of a Service leads to its pod")
    assert await reaches(real, "closed", "asked.default.svc.cluster.local:80")
    file = real.paths.folder / "deny.json"
    spec = {"podSelector": {"matchLabels": {"app": "closed"}}, "policyTypes": ["Ingress"]}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"}}
    file.write_text(json.dumps(kind | {"spec": spec}))
    assert await does(real, "create", "-f", str(file))

    async def is_closed() -> bool:
        return not await reaches(real, "asked", target)

    await until(is_closed, "the policy is in force")
    # It is about one direction and one pod.
    assert await reaches(real, "closed", "asked.default.svc.cluster.local:80")
    await kubectl(real, "delete", "networkpolicy/deny", "pod/asked", "pod/closed", "service/asked", "service/closed")


async def test_a_volume_stays_for_the_next_pod_and_goes_with_its_claim(real: LocalCluster) -> None:
    """H06: what a container wrote a sandbox reads, on the node where it is; without the claim nothing of it is left."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    file = real.paths.folder / "claim.json"
    file.write_text(json.dumps(claim))
    assert await does(real, "create", "-f", str(file))

    await make_pod(real, "writer", "", "runc", claim="data")
    assert await does(real, "exec", "writer", "--", "/agnhost", "mounttest", "--new_file_0644=/data/f")
    first = (await kubectl(real, "get", "pod", "writer", "-o", "jsonpath={.spec.nodeName}")).stdout
    assert await does(real, "delete", "pod", "writer")
    await make_pod(real, "reader", "", "gvisor", claim="data")

    read = await kubectl(real, "exec", "reader", "--", "/agnhost", "mounttest", "--file_content=/data/f")
    assert "mount-tester new file" in read.stdout
    assert (await kubectl(real, "get", "pod", "reader", "-o", "jsonpath={.spec.nodeName}")).stdout == first
    folders = [node.folder_of(real.paths, name) for name in real.spec().real_names]
    places = [each / "volumes" for each in folders]
    assert not [file for place in places for file in place.glob("pvc-*/*")], "nothing is mounted for the machine"
    inside = Path(f"/proc/{node.process_of(real.paths, first)}/root/var/lib/tenantry/volumes")
    files = await asyncio.to_thread(lambda: [*inside.glob("pvc-*/data/f")])
    assert [each.read_text() for each in files] == ["mount-tester new file\n"]
    assert await does(real, "delete", "pod/reader", "pvc/data")

    async def is_gone() -> bool:
        left = (await kubectl(real, "get", "pv", "-o", "name")).stdout
        files: list[Path] = [each for place in places for each in place.iterdir()]
        files += [each for folder in folders for each in (folder / "disks").glob("pvc-*")]
        return not left and not files and not loops.below(real.paths.folder)

    await until(is_gone, "the volume, its image and its device are gone")


async def test_nodes_reach_the_api_server_and_nothing_else_of_this_machine(real: LocalCluster) -> None:
    """A pod opens connections to the API server, but to no other server of the machine that its node is on."""
    await make_pod(real, "nosy", "real-1", "runc")
    spec = real.spec()
    bridge = network.NodeAddresses(real.real().block).bridge
    assert await reaches(real, "nosy", "10.96.0.1:443")
    assert await reaches(real, "nosy", f"{bridge}:{spec.ports.apiserver}")
    async with await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0) as everywhere:  # noqa: S104
        port = everywhere.sockets[0].getsockname()[1]
        assert not await reaches(real, "nosy", f"{bridge}:{port}")
    assert not await reaches(real, "nosy", f"{bridge}:{spec.ports.etcd}")
    await kubectl(real, "delete", "pod/nosy")


async def test_a_node_comes_crashes_and_goes(real: LocalCluster) -> None:
    """E19: a node is added to a running cluster, loses power and gets it back, and is taken away again."""
    added = (await run("node", "create", "--cluster=real")).strip()
    assert added == "real-3"
    await run("node", "crash", "--cluster=real", added)
    assert left_behind(real) != []
    assert [each for each in left_behind(real) if each.endswith("n3") or f"/{added}" in each] == []
    await run("node", "restart", "--cluster=real", added)
    ready = (await kubectl(real, "get", "node", added, "-o", "jsonpath={.status.conditions[-1].status}")).stdout
    assert ready == "True"
    await run("node", "delete", "--cluster=real", added)
    assert "real-3" not in (await kubectl(real, "get", "nodes", "-o", "name")).stdout


async def test_nothing_of_nodes_stays_when_everything_is_killed(tenantry_home: Path, image: Path) -> None:
    """H06: after SIGKILL of the supervisor with pods running, `down` leaves no link, rule, cgroup, mount or process."""
    cluster = LocalCluster("killed", root=tenantry_home)
    try:
        await cluster.up(UpOptions(throwaway=True, real_nodes=1, timeout_seconds=180.0))
        await run("image", "load", "--cluster=killed", str(image))
        await make_pod(cluster, "web", "real-1", "runc")
        assert any("link" in each for each in left_behind(cluster))
        inside = namespaces(node.process_of(cluster.paths, "real-1"))
        assert inside
        state = cluster.status()
        assert process.kill_if_same(state.supervisor_pid, state.supervisor_ticks, signal.SIGKILL)
        await process.wait_gone(state.supervisor_pid, state.supervisor_ticks, SECONDS)
        await cluster.down()
        assert left_behind(cluster) == []
        assert inside.isdisjoint(namespaces())
        # Its pods come back from the same files.
        await cluster.up(UpOptions(throwaway=True, timeout_seconds=180.0))
        await until(lambda: does(cluster, "exec", "web", "--", "/agnhost", "help"), "the pod runs again")
    finally:
        await cluster.down(purge=True)
    assert left_behind(cluster) == []


def test_an_image_is_the_same_bytes_for_the_same_files(tmp_path: Path) -> None:
    """H06: what is in an image decides its digest, and nothing else does; its name is in it."""
    program = tmp_path / "program"
    program.write_bytes(b"text")
    one, two = tmp_path / "one.tar", tmp_path / "two.tar"
    for target, mode in ((one, 0o755), (two, 0o700)):
        program.chmod(mode)
        images.write(ImageRecipe(reference="tenantry.local/web:1", files={"/bin/web": program}), target)
    assert one.read_bytes() == two.read_bytes()
    assert images.reference_of(one) == "tenantry.local/web:1"
    with pytest.raises(InputError, match="must be an OCI image layout"):
        images.reference_of(program)
    with pytest.raises(InputError, match="must be HOST/NAME:TAG"):
        images.check_reference("web")

"""Pods on real nodes: tests create them and check from their node which addresses they reach.

Each pod runs `agnhost netexec`, which connects where it is told to. It is told by its own node, which reaches its pods
whatever policies say, as kubelet's probes must.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.progress import SilentProgress
from tenantry.local.real import images, loading, network, node, requirements
from tenantry.local.real.images import ImageRecipe
from testkit.api import PODS, Api, until

Json = dict[str, Any]
T = TypeVar("T")
AGNHOST = "tenantry.local/agnhost:1"
PORT = 8080
START_SECONDS = 240.0
"""The time limit until pods are Ready, on a busy machine."""
CONNECT_SECONDS = 5.0
"""How long a connection that must not succeed is tried: no packet of it is answered."""
_ASK_SECONDS = 60.0
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
# Required in every tenant's namespace (Pod Security Standards, restricted).
CAREFUL: Json = {
    "runAsUser": 1000,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def missing() -> str:
    """Return why tests on real nodes are skipped; "" if they run."""
    if os.environ.get("TENANTRY_TEST_REAL") == "0":
        return "TENANTRY_TEST_REAL=0: `make test-release` tests real nodes"
    lacks = requirements.lacking()
    if lacks:
        return lacks[0]
    built = build.built(build.NODES) and build.built(build.DNS)
    return "" if built else "`tenantry local build --with-nodes --with-dns` has not been run"


def connects(address: str, port: int) -> bool:
    """Return whether a connection succeeds."""
    try:
        socket.create_connection((address, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


class Spot(msgspec.Struct, frozen=True):
    """A running pod.

    Args:
        namespace: Where it is.
        name: Its name there.
        node: The node that it is on.
        address: Its address.
    """

    namespace: str
    name: str
    node: str
    address: str

    @classmethod
    def of(cls, pod: Json) -> Spot:
        """Return where a pod is."""
        meta = pod["metadata"]
        return cls(meta["namespace"], meta["name"], pod["spec"]["nodeName"], pod["status"]["podIP"])


def processes_with(group: str) -> Iterator[tuple[int, str]]:
    """Yield the processes in whose cgroups' path a text is, and their programs."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if group in (entry / "cgroup").read_text():
                yield int(entry.name), (entry / "exe").readlink().name


def process_with(group: str) -> int:
    """Return a process in whose cgroups' path a text is."""
    found = next(processes_with(group), None)
    if found is None:
        raise AssertionError(f"no process is in a cgroup {group}")
    return found[0]


def _in_network_of(pid: int, act: Callable[[], T]) -> T:
    def call() -> T:
        with Path(f"/proc/{pid}/ns/net").open("rb") as file:
            if _libc.setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns to that of {pid}")
        return act()

    # The thread ends here, because it cannot leave the namespace.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


class RealPods:
    """The pods of a cluster with real nodes.

    Args:
        cluster: The cluster.
        api: An administrator.
    """

    def __init__(self, cluster: LocalCluster, api: Api) -> None:
        self.cluster = cluster
        self.api = api

    async def load_image(self, folder: Path, **more: Path) -> None:
        """Build the image of the pods and import it on all nodes.

        Args:
            folder: For temporary files.
            more: More programs, by their names in /bin.
        """
        binaries = await asyncio.to_thread(build.ensure, SilentProgress(), build.AGNHOST)
        target = folder / "agnhost.tar"
        files = {"/agnhost": binaries.folder / "agnhost", **{f"/bin/{name}": path for name, path in more.items()}}
        recipe = ImageRecipe(reference=AGNHOST, files=files, entrypoint=("/agnhost",))
        await asyncio.to_thread(images.write, recipe, target)
        real = self.cluster.real()
        names = [each.name for each in real.nodes]
        await loading.load(self.cluster.paths, real.binaries, names, target, AGNHOST)

    async def make(self, namespace: str, name: str, place: str, runtime: str, **more: Json) -> Spot:
        """Create a pod that serves HTTP and UDP at `PORT`, and wait until it is Ready.

        Args:
            namespace: Where.
            name: Its name, and its label `app`; its label `side` is the namespace.
            place: The node.
            runtime: The RuntimeClass.
            more: Its `annotations`, and further fields of its `spec` and of its `container`.
        """
        container: Json = {
            "name": "web",
            "image": AGNHOST,
            "args": ["netexec", f"--http-port={PORT}", f"--udp-port={PORT}"],
            "securityContext": CAREFUL,
            "readinessProbe": {
                "httpGet": {"path": "/hostname", "port": PORT},
                "periodSeconds": 1,
                "timeoutSeconds": 10,
            },
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
            **more.get("container", {}),
        }
        spec: Json = {
            "nodeSelector": {"kubernetes.io/hostname": place},
            "runtimeClassName": runtime,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **more.get("spec", {}),
        }
        labels = {"app": name, "side": namespace}
        meta = {"name": name, "labels": labels, "annotations": more.get("annotations", {})}
        await self.api.create(PODS, {"metadata": meta, "spec": spec}, namespace)
        return await self.ready(namespace, name)

    async def ready(self, namespace: str, name: str) -> Spot:
        """Wait until a pod is Ready."""
        last: Json = {}

        async def so() -> Spot | None:
            last.update(await self.api.get(PODS, name, namespace))
            conditions = last["status"].get("conditions", [])
            if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
                return None
            return Spot(namespace, name, last["spec"]["nodeName"], last["status"]["podIP"])

        try:
            return await until(so, f"pod {namespace}/{name} is Ready", seconds=START_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; {json.dumps(last.get('status'))}") from error

    def pid(self, place: str) -> int:
        """Return a process in the namespaces of a node."""
        found = node.process_of(self.cluster.paths, place)
        if not found:
            raise AssertionError(f"the node {place} does not run")
        return found

    def agent(self, place: str) -> int:
        """Return the process of the NetworkPolicy agent of a node."""
        cluster = network.identity(self.cluster.paths.folder)
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                groups, command = (entry / "cgroup").read_text(), (entry / "cmdline").read_bytes()
                if f"/{cluster}/{place}" in groups and b"netpol-agent" in command.split(b"\0"):
                    return int(entry.name)
        raise AssertionError(f"the node {place} has no agent")

    def inside(self, place: str, act: Callable[[], T]) -> T:
        """Call a function in a thread in the network namespace of a node, and return its result."""
        return _in_network_of(self.pid(place), act)

    async def inside_pod(self, spot: Spot, act: Callable[[], T]) -> T:
        """Call a function as root in the network namespace of a pod (of runc), and return its result."""
        uid = (await self.api.get(PODS, spot.name, spot.namespace))["metadata"]["uid"]
        # Many wait for a refusal at once, and the answers to requests of this process must not wait with them.
        return await asyncio.to_thread(lambda: _in_network_of(process_with(f"/pod{uid}/"), act))

    async def programs(self, spot: Spot) -> set[str]:
        """Return the names of the programs that the machine runs for a pod: that of a sandbox hides those in it."""
        uid = (await self.api.get(PODS, spot.name, spot.namespace))["metadata"]["uid"]
        # A sandbox is in the cgroup of its pod, containers of runc are in those below.
        return await asyncio.to_thread(lambda: {program for _, program in processes_with(f"/pod{uid}")})

    def run(self, place: str, *command: str) -> str:
        """Run a command in the namespaces of a node and return its output."""
        entered = (shutil.which("nsenter") or "nsenter", f"--target={self.pid(place)}", "--net", "--mount", *command)
        done = subprocess.run(entered, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{command}: {done.stderr}")
        return done.stdout

    async def ask(self, spot: Spot, path: str) -> tuple[int, str]:
        """Send a request to a pod from its node, and return status and body."""
        opened = self.inside(spot.node, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        opened.setblocking(False)
        async with asyncio.timeout(_ASK_SECONDS):
            await asyncio.get_running_loop().sock_connect(opened, (spot.address, PORT))
            reader, writer = await asyncio.open_connection(sock=opened)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: pod\r\n\r\n".encode())
                head, _, body = (await reader.read()).decode(errors="replace").partition("\r\n\r\n")
            finally:
                writer.close()
        return int(head.split()[1]), body

    async def reaches(self, spot: Spot, host: str, port: int, protocol: str = "http") -> bool:
        """Return whether a pod gets an answer from an address or name; "no such name" is none."""
        query = urlencode({"host": host, "port": port, "protocol": protocol, "request": "hostname", "tries": 1})
        status, body = await self.ask(spot, f"/dial?{query}")
        if status == HTTPStatus.OK:
            return bool(json.loads(body).get("responses"))
        if "no such host" not in body:
            raise AssertionError(f"{spot} at {host}:{port}: {status} {body}")
        return False

    async def mismatches(self, attempts: Iterable[tuple[Spot, str, int, str, bool]]) -> list[str]:
        """Return the attempts (source, host, port, protocol, whether it must succeed) with another result.

        An attempt that must succeed is repeated for a while: the rules of a Service may not be loaded yet.
        """
        gate = asyncio.Semaphore(32)

        async def one(spot: Spot, host: str, port: int, protocol: str, expected: bool) -> str:  # noqa: FBT001 - a row of a table
            async with gate:
                found = await self.reaches(spot, host, port, protocol)
                for _ in range(5 if expected else 0):
                    found = found or await self.reaches(spot, host, port, protocol)
            said = "reaches" if found else "does not reach"
            return "" if found == expected else f"{spot.namespace}/{spot.name} {said} {host}:{port} by {protocol}"

        return [each for each in await asyncio.gather(*(one(*row) for row in attempts)) if each]

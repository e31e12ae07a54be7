"""Pods at a peer whose nodes are real, with logs and streams through the home, directly and through a tunnel."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import struct
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.model import Json
from tenantry.api.peercluster import PeerCluster
from tenantry.api.peertunnel import Dial
from tenantry.api.tenant import Tenant
from testkit import debian, ports
from testkit.api import CONFIG_MAPS, PODS, SECONDS, until
from testkit.kubectl import Kubectl
from testkit.peerings import UNREACHABLE, Peering, peering, placed
from testkit.realpods import AGNHOST, CAREFUL, START_SECONDS, RealPods, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SECURITY = {key: value for key, value in CAREFUL.items() if key != "hostname"}
ECHO = "while read line; do echo got $line; done"
TOOLS = ("sh", "tar", "cat", "stty")
"""BusyBox under the names that it is called by: kubectl cp calls tar."""
LABELS = {"topology.kubernetes.io/region": "eu"}
PROTOCOLS = {
    "websocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "true", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "true"},
    "spdy": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"},
}


def _fill(folder: Path) -> None:
    debian.fetch("busybox-static", folder=folder, with_dependencies=False)


def _is_ready(status: Json) -> bool:
    containers: list[Json] = status.get("containerStatuses") or []
    return bool(containers) and all(each["ready"] for each in containers)


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peering]:
    """A home, and a peer with a real node, with two pods that serve streams and one in a sandbox."""
    async with peering(tenantry_home, "real", "--runtime", "real", "--nodes", "1") as found:
        package = await asyncio.to_thread(debian.cached, "busybox", _fill)
        tool = next(package.rglob("bin/busybox"))
        pods = RealPods(found.cluster(found.peer_name), found.peer)
        await pods.load_image(tmp_path_factory.mktemp("images"), **dict.fromkeys(TOOLS, tool))
        await found.connect()
        await found.offload("streams")
        await found.home.create(CONFIG_MAPS, {"metadata": {"name": "greeting"}, "data": {"word": "hello"}}, "streams")
        word = {"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "greeting", "key": "word"}}}
        web: Json = {
            "image": AGNHOST,
            "args": ["netexec", "--http-port=8080"],
            "securityContext": SECURITY,
            "env": [word],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        echo: Json = {"image": AGNHOST, "command": ["sh", "-c", ECHO], "stdin": True, "securityContext": SECURITY}
        data: Json = {"name": "data", "emptyDir": {}}
        # A Tenant whose administrator says nothing: the peer has a sandbox.
        await found.home.create(PODS, placed("streams", "boxed", container=echo), "streams")
        await _ready(found, "boxed")
        # containerd forwards ports to containers of runc alone: those of gVisor have a network stack of their own.
        await found.peer.patch(Tenant.resource, found.tenant, {"spec": {"isolation": {"runtime": "Shared"}}})
        await found.peer.ready(found.tenant)
        await found.home.create(PODS, placed("streams", "web", container=web, volumes=[data]), "streams")
        await found.home.create(PODS, placed("streams", "echo", container=echo), "streams")
        await _ready(found, "web", "echo")
        yield found


async def _ready(found: Peering, *names: str) -> None:
    seen: Json = {}

    async def so() -> bool:
        for name in names:
            seen[name] = (await found.home.get(PODS, name, "streams"))["status"]
        return all(_is_ready(pod) for pod in seen.values())

    await until(so, "the pods are ready at home", seconds=START_SECONDS, seen=lambda: seen)


@pytest_asyncio.fixture(scope="module", params=Dial)
async def linked(both: Peering, request: pytest.FixtureRequest) -> Peering:
    """The same clusters and pods, once with a home that connects to the peer, and once with one that cannot."""
    dial: Dial = request.param
    half: Json = (await both.home.get(PeerCluster.resource, both.peer_name))["spec"]["host"]
    if half.get("dial", Dial.HOME) != dial:
        await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": {"labels": LABELS}}})
        await both.connect(dial)
        half = (await both.home.get(PeerCluster.resource, both.peer_name))["spec"]["host"]
        assert half["labels"] == LABELS, "what an administrator has set stays"
    if dial is Dial.PEER:
        await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": {"server": UNREACHABLE}}})
        await both.run("peer", "wait", both.peer_name, "--cluster", both.home_name)
        conditions: list[Json] = (await both.home.get(PeerCluster.resource, both.peer_name))["status"]["conditions"]
        assert {each["type"]: each["status"] for each in conditions}[reasons.TUNNEL_OPEN] == "True"
    return both


@pytest.fixture(params=PROTOCOLS)
def kubectl(linked: Peering, request: pytest.FixtureRequest) -> Kubectl:
    """Kubectl at the home, with one of the two protocols of streams."""
    return Kubectl(linked.cluster(linked.home_name).kubeconfig_path, PROTOCOLS[request.param])


async def line_of(process: asyncio.subprocess.Process, text: bytes) -> None:
    """Read until a line has a text."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        async for line in process.stdout:
            if text in line:
                return
    raise AssertionError(f"no line has {text!r}")


async def test_commands_run_at_a_peer_and_their_exit_codes_return(kubectl: Kubectl) -> None:
    """L06: the pod has its config, and is the one of the home."""

    async def logged() -> bool:
        return "Started HTTP server" in await kubectl.out("logs", "-n", "streams", "web")

    await until(logged, "the log of the container")
    run = ("exec", "-n", "streams", "web", "--", "sh", "-c")
    assert await kubectl.out(*run, "echo $WORD") == "hello\n"
    failed = await kubectl.run(*run, "exit 7")
    assert failed.returncode == 7
    async with kubectl.running("exec", "-i", "-n", "streams", "web", "--", "cat") as process:
        out, _ = await asyncio.wait_for(process.communicate(b"through"), SECONDS)
        assert (process.returncode, out) == (0, b"through")


async def test_a_user_has_a_terminal_of_its_own_size_in_a_container_at_a_peer(kubectl: Kubectl) -> None:
    """L06: `kubectl exec -it`."""
    ours, theirs = os.openpty()
    try:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 123, 0, 0))
        # kubectl sends the size once the container has its terminal.
        command = "until [ \"$(stty size)\" = '41 123' ]; do read -t 1 line; done; echo it has its size"
        process = await asyncio.create_subprocess_exec(
            *kubectl.command("exec", "-it", "-n", "streams", "web", "--", "sh", "-c", command),
            env=kubectl.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        try:
            assert await asyncio.wait_for(process.wait(), SECONDS) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert b"it has its size" in os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_command_runs_in_the_sandbox_of_a_peer(kubectl: Kubectl, both: Peering) -> None:
    """L05: the peer chooses the RuntimeClass, and its sandbox has a kernel of its own."""
    there = (await both.mapped("streams"))["status"]["namespace"]
    below = await both.peer.get(PODS, "boxed", there)
    assert below["spec"]["runtimeClassName"] == "gvisor"
    run = ("exec", "-n", "streams", "boxed", "--", "cat", "/proc/version")
    assert "gvisor" in await kubectl.out(*run)
    assert "gvisor" not in await kubectl.out("exec", "-n", "streams", "web", "--", "cat", "/proc/version")


async def test_a_user_attaches_to_a_container_at_a_peer_and_follows_its_log(kubectl: Kubectl) -> None:
    """L06: input and output, both ways."""
    place = ("-n", "streams", "echo")
    said = secrets.token_hex(4).encode()
    async with kubectl.running("logs", "-f", *place) as log, kubectl.running("attach", "-i", *place) as own:
        assert own.stdin is not None
        own.stdin.write(said + b"\n")
        await own.stdin.drain()
        await line_of(own, b"got " + said)
        await line_of(log, b"got " + said)


async def test_a_port_of_a_pod_at_a_peer_is_forwarded(kubectl: Kubectl) -> None:
    """L06: connections one after the other."""
    port = ports.free(1)[0]
    async with kubectl.running("port-forward", "-n", "streams", "pod/web", f"{port}:8080") as process:
        await line_of(process, b"Forwarding from")
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /hostname HTTP/1.0\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), SECONDS)).endswith(b"web")
            writer.close()
            await writer.wait_closed()


async def test_files_are_copied_to_a_pod_at_a_peer_and_back(kubectl: Kubectl, tmp_path: Path) -> None:
    """L06: bytes of any value, more than a buffer has."""
    content = bytes(range(256)) * 8192
    (tmp_path / "sent").write_bytes(content)
    await kubectl.out("cp", str(tmp_path / "sent"), "streams/web:/data/file")
    await kubectl.out("cp", "streams/web:/data/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content


async def test_events_of_a_pod_at_a_peer_are_those_of_the_pod_at_home(kubectl: Kubectl) -> None:
    """L06: the user sees there why a container does not start."""

    async def told() -> bool:
        return "Started" in await kubectl.out("events", "-n", "streams", "--for", "pod/web")

    await until(told, "the kubelet of the peer has reported that the container has started")

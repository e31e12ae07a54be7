"""The first process of a node, in namespaces of its own: sets up mounts and network, and keeps its programs running.

    python -m tenantry.local.real.init FOLDER

`node.py` starts it. It writes "born" once its namespaces exist, waits for a line that says that its veth pair is set
up, and writes "ready" when the kubelet runs. When it ends, the kernel ends all processes of the node.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from tenantry.local.locks import holding
from tenantry.local.real import cgroups, disks, mounts, network, settings, volumemounts
from tenantry.local.real.settings import (
    AGENT,
    BINARIES,
    CLEANER,
    CONFIGURATION,
    FOLDERS,
    HOME,
    KERNEL,
    KUBE,
    PINNED,
    POD_INTERFACES,
    SERVERS,
    SERVICES_PORT,
    TUNNEL,
    NodeSettings,
)
from tenantry.local.real.volumes import PLACE
from tenantry.world.netpol.compile import GuardedNode, closed

IMAGES = f"{HOME}/images"
_NOTIFY = f"{HOME}/notify"
# Long, because a busy machine is slow, and the end of a program is noticed at once.
_START_SECONDS = 180.0
_AGAIN_SECONDS = 1.0
_LOOK_SECONDS = 60.0
_OF_KUBERNETES = ("kubelet", "kube-proxy")
"""The programs that read the authorities of their API server only when they start."""
_PATH = f"{BINARIES}:/usr/sbin:/usr/bin:/sbin:/bin"


def _programs(node: NodeSettings) -> dict[str, tuple[str, ...]]:
    kube = f"{KUBE if node.kube else BINARIES}/node-kube"
    return {
        "containerd": (f"{BINARIES}/containerd", "--config", f"{CONFIGURATION}/containerd.toml", "--log-level", "warn"),
        "kubelet": (
            *(kube, "kubelet", f"--config={CONFIGURATION}/kubelet.json"),
            *(f"--kubeconfig={node.kubeconfig('kubelet')}", "--cert-dir=/var/lib/kubelet/pki"),
            *((f"--bootstrap-kubeconfig={CONFIGURATION}/bootstrap.kubeconfig",) if node.token else ()),
            *(f"--hostname-override={node.name}", f"--node-ip={node.addresses.node(node.number)}"),
        ),
        "kube-proxy": (
            *(kube, "kube-proxy", f"--config={CONFIGURATION}/kube-proxy.json", f"--hostname-override={node.name}"),
        ),
        CLEANER: (
            *(sys.executable, "-m", "tenantry", CLEANER, f"--kubeconfig={node.kubeconfig('kubelet')}"),
            *(f"--node={node.name}", f"--ctr={BINARIES}/ctr", f"--state={CONFIGURATION}/images-before.json"),
        ),
        TUNNEL: (
            *(sys.executable, "-m", "tenantry", TUNNEL, f"--kubeconfig={node.kubeconfig('kubelet')}"),
            *(f"--node={node.name}", f"--address={node.addresses.node(node.number)}"),
            f"--pod-cidr={node.addresses.pods_of(node.number)}",
        ),
        AGENT: (
            *(sys.executable, "-m", "tenantry", AGENT, f"--kubeconfig={node.kubeconfig(AGENT)}"),
            *(f"--node={node.name}", f"--pod-interface={POD_INTERFACES}", "--routed"),
            f"--ready-file={HOME}/{AGENT}-ready",
            *(("--own-view", f"--services-port={SERVICES_PORT}") if node.has_own_view else ()),
        ),
    }


class TrustedServers:
    """Notices that the authorities of the API server have changed since programs have started with them.

    Not at once: a kubelet that starts ends `kubectl exec`, and phases of a rotation follow each other. The API server
    keeps the certificate of before for 25 hours.

    Args:
        file: The file with the authorities.
        settled_seconds: For how long it must have the same authorities.
    """

    def __init__(self, file: Path, settled_seconds: float = 3600.0) -> None:
        self._file = file
        self._settled_seconds = settled_seconds
        self._known: tuple[str, ...] = self._read()
        self._last: tuple[str, ...] = self._known
        self._since = 0.0

    def are_new(self, now: float) -> bool:
        """Return whether programs are to start anew; once for each change.

        Args:
            now: The time of a monotonic clock, in seconds.
        """
        found = self._read()
        if found != self._last:
            self._last, self._since = found, now
        if not found or found == self._known or now - self._since < self._settled_seconds:
            return False
        self._known = found
        return True

    def _read(self) -> tuple[str, ...]:
        # In any order: that of authorities changes when the next one signs.
        try:
            return tuple(sorted(self._file.read_text().split("-----BEGIN CERTIFICATE-----")))
        except (OSError, UnicodeDecodeError):
            return ()


class NodePrograms:
    """The programs of this node.

    Args:
        node: The node's settings.
    """

    def __init__(self, node: NodeSettings) -> None:
        self._programs = _programs(node)
        self._joins = bool(node.token)
        # A control plane has one tenant: nothing of it has to be removed between pods.
        self._has_cleaner = not node.plane
        self._has_tunnel = node.is_outside
        self._running: dict[int, str] = {}
        # Before the programs read them.
        self._servers = TrustedServers(Path(SERVERS))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listener.bind(_NOTIFY)

    def start(self) -> None:
        """Start all programs; the kubelet is ready when this returns.

        Raises:
            OSError: A program ended, or does not become ready.
        """
        self._await_ready(self._spawn("containerd"))
        for image in sorted(Path(IMAGES).glob("*.tar")):
            import_image(image)
        if self._joins:
            # All others use the certificate that the kubelet requests.
            self._await_ready(self._spawn("kubelet"))
        self._spawn(AGENT)
        self._spawn("kube-proxy")
        if not self._joins:
            self._await_ready(self._spawn("kubelet"))
        if self._has_cleaner:
            self._spawn(CLEANER)
        if self._has_tunnel:
            self._spawn(TUNNEL)

    def live(self) -> None:
        """Reap all processes that end on this node, and restart its programs; never return."""

        def look(number: int, frame: FrameType | None) -> None:
            del number, frame
            if self._servers.are_new(time.monotonic()):
                sys.stderr.write("the authorities of the API server have changed: starting what trusts them again\n")
                for pid in [pid for pid, name in self._running.items() if name in _OF_KUBERNETES]:
                    with suppress(ProcessLookupError):  # it has ended just now
                        os.kill(pid, signal.SIGTERM)

        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
        while True:
            pid, status = os.wait()
            name = self._running.pop(pid, "")
            if name:
                code = os.waitstatus_to_exitcode(status)
                sys.stderr.write(f"{name} ended with exit code {code}: starting it again\n")
                # A program that cannot start must not use all of the machine's CPU.
                time.sleep(_AGAIN_SECONDS)
                self._spawn(name)

    def _spawn(self, name: str) -> int:
        command = self._programs[name]
        environment = {"PATH": _PATH, "HOME": "/root", "NOTIFY_SOCKET": _NOTIFY, "GOGC": "50"}
        pid = os.posix_spawn(command[0], command, environment, setsid=True)
        self._running[pid] = name
        return pid

    def _await_ready(self, pid: int) -> None:
        """Wait until a program reports that it is ready; fail if it ends: the supervisor retries the whole start."""
        name = self._running[pid]
        end = os.pidfd_open(pid)
        try:
            while True:
                readable, _, _ = select.select([self._listener, end], [], [], _START_SECONDS)
                if not readable:
                    raise TimeoutError(f"{name} is not ready after {_START_SECONDS:.0f} s")
                if self._listener in readable and b"READY=1" in self._listener.recv(4096):
                    return
                if end in readable:
                    raise ChildProcessError(f"{name} ended before it was ready")
        finally:
            os.close(end)


def import_image(image: Path) -> None:
    """Import an image into the node's containerd, unless it has imported this version of the file.

    Raises:
        OSError: containerd rejects it.
    """
    about = image.stat()
    mark = Path(f"{CONFIGURATION}/imported/{image.name}.{about.st_mtime_ns}.{about.st_size}")
    if mark.exists():
        return
    command = (f"{BINARIES}/ctr", "--namespace", "k8s.io", "images", "import", "--local", PINNED, str(image))
    pid = os.posix_spawn(command[0], command, {"PATH": _PATH})
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(f"the image {image.name} could not be imported")
    mark.parent.mkdir(exist_ok=True)
    mark.touch()


def prepare(folder: Path, images: Path, binaries: Path, node: NodeSettings) -> None:
    """Set up mounts, hostname and network of a node in this process's namespaces."""
    # Meanwhile, nothing is mounted from outside: until it is isolated, this namespace is not the node's own.
    with holding(disks.lock(folder / disks.FOLDER)):
        _mount(folder, images, binaries, node)
    socket.sethostname(node.name)
    network.configure(node.addresses, node.number)
    # Before any program that could run a pod: until the agent has the policies, pods have no network.
    network.load(closed(GuardedNode(node=node.name, interfaces=(POD_INTERFACES,), is_routed=True)))


def _mount(folder: Path, images: Path, binaries: Path, node: NodeSettings) -> None:
    hierarchies = cgroups.hierarchies()
    # Before the mounts that may cover the folder.
    disks_of_volumes = volumemounts.open_folder(folder / disks.FOLDER)
    opened = {place: os.open(folder / name, os.O_PATH) for name, place in FOLDERS.items()}
    opened |= {IMAGES: os.open(images, os.O_PATH), BINARIES: os.open(binaries, os.O_PATH)}
    opened |= {KUBE: os.open(node.kube, os.O_PATH)} if node.kube else {}
    mounts.isolate()
    mounts.cgroups(hierarchies)
    for path in settings.COVERED:
        mounts.empty(path)
    for place, descriptor in opened.items():
        mounts.bind(descriptor, place)
        os.close(descriptor)
    for path in ("/run/lock", "/run/netns", "/var/lib/cni"):
        Path(path).mkdir(parents=True, exist_ok=True)
    for name, value in KERNEL.items():
        mounts.shadow(f"/proc/sys/{name}", f"{value}\n", Path("/run/kernel") / name)
    mounts.share()
    place = volumemounts.open_folder(PLACE)
    for name, text in volumemounts.mount_all(disks_of_volumes, place).items():
        # Its pods wait. The provisioner tries again, and reports it to the owner of the claim.
        sys.stderr.write(f"the volume {name} is not mounted: {text}\n")
    os.close(place)
    os.close(disks_of_volumes)


def main() -> None:
    """Run as the first process of the node of a folder."""
    folder, images, binaries = (Path(argument) for argument in sys.argv[1:4])
    node = msgspec.json.decode((folder / "node.json").read_bytes(), type=NodeSettings)
    os.write(1, b"born\n")
    if not sys.stdin.readline():
        sys.exit(1)
    # With the supervisor's umask, only root could read the root folder of images.
    os.umask(0o022)
    # Programs must write to the log only: this end of the pipe is reserved for reporting readiness.
    ready = os.dup(1)
    os.set_inheritable(ready, False)
    os.dup2(2, 1)
    prepare(folder, images, binaries, node)
    running = NodePrograms(node)
    try:
        running.start()
    except OSError as error:
        sys.stderr.write(f"the node does not start: {error}\n")
        sys.exit(1)
    os.write(ready, b"ready\n")
    running.live()


if __name__ == "__main__":
    main()

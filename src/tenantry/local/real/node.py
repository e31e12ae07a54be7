"""Runs one node as a component of a local cluster: its cgroups, its namespaces, its cable.

    python -m tenantry.local.real.node CLUSTER-FOLDER NAME

The supervisor starts it. The node is a child in namespaces of its own, in which `init.py` is the first process. When
this process ends in any way, the kernel ends the node, and removes its namespaces with their mounts and links. Only
cgroups stay: this module removes them, or else the next start or stop of the cluster does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType, ModuleType

import msgspec

from tenantry.api.errors import LocalError
from tenantry.local import kubeconfigs
from tenantry.local.files import make_private_folder, write_private
from tenantry.local.paths import ClusterPaths
from tenantry.local.process import die_with, start_ticks
from tenantry.local.readiness import tell_ready
from tenantry.local.real import cgroups, network, settings, shaping
from tenantry.local.real.settings import AGENT, FOLDERS, NodeSettings
from tenantry.local.spec import ClusterSpec, RealNodes, read_spec

_UNSHARE = (
    *("unshare", "--cgroup", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"),
    "--propagation=unchanged",
)


class NodeStopped(Exception):
    """SIGTERM was received."""


def folder_of(paths: ClusterPaths, name: str) -> Path:
    """Return the folder of a node."""
    return paths.folder / "nodes" / name


def images_of(paths: ClusterPaths) -> Path:
    """Return the folder of the images for all nodes of a cluster."""
    return paths.folder / "images"


def write_files(paths: ClusterPaths, spec: ClusterSpec, node: NodeSettings) -> Path:
    """Write all files that a node reads; return its folder."""
    folder = folder_of(paths, node.name)
    folder.parent.mkdir(exist_ok=True)
    make_private_folder(folder)
    for name in FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    configuration = folder / "node"
    (configuration / "cni").mkdir(exist_ok=True)
    for name, text in settings.texts(node).items():
        write_private(configuration / name, text.encode())
    _write_script(configuration / "scripts" / "shaping", shaping)
    shutil.copyfile(paths.pki / "ca.crt", configuration / "ca.crt")
    server = f"https://{node.addresses.bridge}:{spec.ports.apiserver}"
    if node.token:
        text = kubeconfigs.bootstrap(paths, spec.name, node.token, server)
        write_private(configuration / "bootstrap.kubeconfig", text.encode())
    else:
        _write_identities(paths, spec, node, server, configuration)
    write_private(folder / "node.json", msgspec.json.encode(node))
    return folder


def _write_identities(
    paths: ClusterPaths, spec: ClusterSpec, node: NodeSettings, server: str, configuration: Path
) -> None:
    """Give the programs of a node credentials that are issued on this machine."""
    for suffix in ("crt", "key"):
        write_private(configuration / f"kubelet.{suffix}", (paths.pki / f"{node.name}.{suffix}").read_bytes())
    for file, identity in (("kubelet", node.name), ("kube-proxy", "kube-proxy"), (AGENT, AGENT)):
        text = kubeconfigs.text(paths, spec.name, identity, server)
        write_private(configuration / f"{file}.kubeconfig", text.encode())


def _write_script(target: Path, module: ModuleType) -> None:
    """Write a module that imports only the standard library as an executable script."""
    target.parent.mkdir(exist_ok=True)
    source = Path(str(module.__file__)).read_text()
    # Without site-packages, because it starts once for each pod.
    write_private(target, f"#!{sys.executable} -IS\n{source}".encode())
    target.chmod(0o700)


def process_of(paths: ClusterPaths, name: str) -> int:
    """Return the pid of a process in the namespaces of a node; 0 if the node does not run."""
    try:
        pid, ticks = (folder_of(paths, name) / "process").read_text().split()
    except (OSError, ValueError):
        return 0
    return int(pid) if start_ticks(int(pid)) == int(ticks) else 0


def _live(paths: ClusterPaths, real: RealNodes, node: NodeSettings, folder: Path) -> int:
    found = cgroups.hierarchies()
    cgroups.make(node.cluster, node.name, found)
    die = die_with(os.getpid())

    def prepare() -> None:
        die()
        cgroups.join(node.cluster, node.name, found)

    command = [*_UNSHARE, sys.executable, "-m", "tenantry.local.real.init"]
    with subprocess.Popen(
        [*command, folder, images_of(paths), real.binaries],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=prepare,  # noqa: PLW1509 - this process has one thread
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise LocalError("the node was started without pipes")
        try:
            write_private(folder / "process", f"{process.pid} {start_ticks(process.pid)}\n".encode())
            if process.stdout.readline() != b"born\n":
                return process.wait()
            network.plug(node.cluster, node.number, process.pid)
            process.stdin.write(b"plugged\n")
            process.stdin.flush()
            if process.stdout.readline() == b"ready\n":
                tell_ready()
            return process.wait()
        finally:
            process.kill()


def _on_term(number: int, frame: FrameType | None) -> None:
    del number, frame
    # A second SIGTERM must not interrupt the clean-up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise NodeStopped


def clean(cluster: str, node: str, number: int) -> None:
    """End all processes of a node, and remove its cgroups and its veth pair."""
    cgroups.remove(cluster, node)
    network.unplug(cluster, number)


def main() -> int:
    """Run a node until it ends or SIGTERM is received; return its exit code."""
    paths, name = ClusterPaths(Path(sys.argv[1])), sys.argv[2]
    spec = read_spec(paths)
    real = spec.real if spec else None
    node = real.node(name, network.identity(paths.folder)) if real else None
    if spec is None or real is None or node is None:
        raise LocalError(f'"{paths.spec}" has no node "{name}"')
    signal.signal(signal.SIGTERM, _on_term)
    try:
        clean(node.cluster, node.name, node.number)
        return _live(paths, real, node, write_files(paths, spec, node))
    except NodeStopped:
        return 0
    finally:
        clean(node.cluster, node.name, node.number)


if __name__ == "__main__":
    sys.exit(main())

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
from tenantry.local.real import cgroups, disks, kubelets, memberships, network, planebridges, settings, shaping, trust
from tenantry.local.real.memberships import Membership
from tenantry.local.real.settings import AGENT, FOLDERS, NodeSettings
from tenantry.local.spec import ClusterSpec, RealNodes, read_spec

_UNSHARE = (
    *("unshare", "--cgroup", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"),
    "--propagation=unchanged",
)


class NodeStopped(Exception):
    """SIGTERM was received."""


def folder_of(paths: ClusterPaths, name: str) -> Path:
    """Return the folder of a node of the cluster itself."""
    return memberships.host_folder(paths, name)


def images_of(paths: ClusterPaths) -> Path:
    """Return the folder of the images for all nodes of a cluster."""
    return paths.folder / "images"


def write_files(
    paths: ClusterPaths, spec: ClusterSpec, node: NodeSettings, membership: Membership | None = None
) -> Path:
    """Write all files that a node reads; return its folder.

    Args:
        paths: The cluster's.
        spec: Its spec.
        node: The node.
        membership: The control plane that it joins; None for the cluster itself.
    """
    folder = memberships.folder_of(paths, node.name) if membership is not None else folder_of(paths, node.name)
    folder.parent.mkdir(exist_ok=True)
    make_private_folder(folder)
    for name in FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    disks.prepare(folder / disks.FOLDER)
    configuration = folder / "node"
    (configuration / "cni").mkdir(exist_ok=True)
    for name, text in settings.texts(node).items():
        write_private(configuration / name, text.encode())
    _write_script(configuration / "scripts" / "shaping", shaping)
    if membership is not None:
        trust.write(paths, membership, configuration)
        access = membership.token, membership.server
        text = kubeconfigs.joining(membership.ca, spec.name, *access, file=settings.SERVERS)
        write_private(configuration / "bootstrap.kubeconfig", text.encode())
        write_private(folder / "node.json", msgspec.json.encode(node))
        return folder
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
        folder = memberships.folder_of(paths, name)
    except LocalError:
        return 0
    return process_in(folder)


def process_in(folder: Path) -> int:
    """Return a process in the namespaces of the node with this folder; 0 if the node does not run."""
    try:
        pid, ticks = (folder / "process").read_text().split()
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
            network.plug(node.bridge or node.cluster, node.number, process.pid)
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


def clean(cluster: str, node: str, number: int, *bridges: str) -> None:
    """End all processes of a node, and remove its cgroups and its veth pairs.

    Args:
        cluster: The `network.identity` of its cluster.
        node: Its name.
        number: Its number.
        bridges: Further bridges that it may be plugged into.
    """
    cgroups.remove(cluster, node)
    for each in (cluster, *bridges):
        network.unplug(each, number)


def settings_of(paths: ClusterPaths, real: RealNodes, name: str, membership: Membership | None) -> NodeSettings | None:
    """Return the settings of a node where it serves now; None if there is none of this name.

    Raises:
        LocalError: Its machine is wiped, or the control plane that it serves has no bridge.
    """
    node = real.node(name, network.identity(paths.folder))
    if node is None or membership is None:
        return node
    folder = paths.folder / "hosted" / membership.plane
    bridge = planebridges.find(folder)
    if not membership.runs or bridge is None:
        raise LocalError(f'the machine "{name}" is wiped, and waits for its cluster')
    return msgspec.structs.replace(
        node,
        block=bridge.block,
        token=membership.token,
        plane=membership.plane,
        bridge=planebridges.name(folder),
        dns=bridge.dns,
        is_outside=bool(node.token),
        domain=bridge.domain,
        kube=kubelets.folder(membership.version),
    )


def main() -> int:
    """Run a node until it ends or SIGTERM is received; return its exit code."""
    paths, name = ClusterPaths(Path(sys.argv[1])), sys.argv[2]
    spec = read_spec(paths)
    real = spec.real if spec else None
    membership = memberships.read(paths, name)
    node = settings_of(paths, real, name, membership) if real else None
    if spec is None or real is None or node is None:
        raise LocalError(f'"{paths.spec}" has no node "{name}"')
    bridges = (node.bridge,) if node.bridge else ()
    signal.signal(signal.SIGTERM, _on_term)
    try:
        clean(node.cluster, node.name, node.number, *bridges)
        return _live(paths, real, node, write_files(paths, spec, node, membership))
    except NodeStopped:
        return 0
    finally:
        clean(node.cluster, node.name, node.number, *bridges)


if __name__ == "__main__":
    sys.exit(main())

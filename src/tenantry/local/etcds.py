"""The etcds of hosted control planes on this machine, as components of the supervisor; never the cluster's own.

CLUSTER/stores/shared/     etcd.json  pki/  data/  etcd.sock ─► etcd@shared, a prefix for each control plane
CLUSTER/hosted/UID/etcd/   the same, for one control plane   ─► etcd@NAME, while its process runs

They listen on Unix sockets only. A control plane has a link to one of them in its folder.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tenantry.hosting import etcdserver, stores
from tenantry.local.components import Component, ReadinessSignal
from tenantry.local.limits import ProcessLimits
from tenantry.local.paths import ClusterPaths

PREFIX = "etcd@"
SHARED = "shared"
"""No control plane has this name: theirs have a dot."""

PROCESS = "etcd.json"
STOPPED = "stopped.json"
"""The same file of an etcd that the supervisor must not run."""

DATA = "data"
_SHARED_LIMITS = ProcessLimits(memory_bytes=etcdserver.SHARED_MEMORY_BYTES, cpu_millis=1000)
_OWN_LIMITS = ProcessLimits(memory_bytes=etcdserver.OWN_MEMORY_BYTES, cpu_millis=250)


class EtcdProcess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the supervisor runs one etcd of hosted control planes.

    Args:
        name: Its component is called "etcd@NAME".
        program: The path of the program.
        administrator: The path of the program that administers it.
        throwaway: Whether it may lose its data when the machine crashes.
        quota_bytes: How large its file may be; 0 for the default.
    """

    name: str
    program: str
    administrator: str
    throwaway: bool = False
    quota_bytes: int = 0

    @property
    def quota(self) -> int:
        """How large its file may be, in bytes: it refuses all writes then."""
        return self.quota_bytes or (etcdserver.SHARED_BYTES if self.name == SHARED else etcdserver.OWN_BYTES)


def folder(paths: ClusterPaths, uid: str, *, is_shared: bool) -> Path:
    """Return the folder of the etcd of a control plane."""
    return paths.folder / "stores" / SHARED if is_shared else paths.folder / "hosted" / uid / "etcd"


def processes(paths: ClusterPaths) -> tuple[tuple[EtcdProcess, Path], ...]:
    """Return the etcds of the hosted control planes of a cluster, and their folders.

    Args:
        paths: The cluster's.
    """
    found: list[tuple[EtcdProcess, Path]] = []
    for pattern in (f"stores/*/{PROCESS}", f"hosted/*/etcd/{PROCESS}"):
        for file in sorted(paths.folder.glob(pattern)):
            try:
                found.append((msgspec.json.decode(file.read_bytes(), type=EtcdProcess), file.parent))
            except (OSError, msgspec.MsgspecError):
                continue  # it is being removed
    return tuple(found)


def database(at: Path) -> Path:
    """Return the file with the data of an etcd.

    Args:
        at: The folder of the etcd.
    """
    return at / DATA / "member" / "snap" / "db"


def etcds(paths: ClusterPaths) -> tuple[Component, ...]:
    """Return these etcds as components.

    Args:
        paths: The cluster's.
    """
    return tuple(component(process, at) for process, at in processes(paths))


def component(process: EtcdProcess, at: Path) -> Component:
    """Return an etcd as a component.

    Args:
        process: How it runs.
        at: Its folder, which becomes its working directory: paths of Unix sockets are short.
    """
    limits = _SHARED_LIMITS if process.name == SHARED else _OWN_LIMITS
    return Component(
        name=f"{PREFIX}{process.name}",
        command=(
            *(process.program, "etcd"),
            *etcdserver.flags([f"unixs://{stores.ETCD_SOCKET}"], DATA, "pki", process.quota),
            *(("--unsafe-no-fsync",) if process.throwaway else ()),
        ),
        port=0,
        signal=ReadinessSignal.NOTIFY,
        folder=at,
        environment={"GOMEMLIMIT": str(int(limits.memory_bytes * etcdserver.SOFT_PART))},
        limits=limits,
    )

"""The cgroups of nodes: /tenantry-CLUSTER/NODE in every hierarchy, of version 1 or 2.

Source: cgroups(7), cgroup_namespaces(7). Version 2 is written by the same rules, but no machine with it was at hand.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tenantry.api.errors import LocalError

_V1 = frozenset({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "perf_event"})
_GONE_SECONDS = 10.0
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class CgroupHierarchy:
    """One hierarchy of cgroups.

    Args:
        root: Its mount point.
        options: Its mount options: its controllers, or its name; "" for version 2.
    """

    root: Path
    options: str

    @property
    def controllers(self) -> frozenset[str]:
        """Return the controllers of a hierarchy of version 1."""
        return frozenset(self.options.split(","))


def hierarchies() -> tuple[CgroupHierarchy, ...]:
    """Return the hierarchies of this machine: those of version 1 if controllers use it, otherwise version 2.

    Source: proc_pid_mountinfo(5).
    """
    first: list[CgroupHierarchy] = []
    second: list[CgroupHierarchy] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, (kind, _, options) = Path(before.split()[4]), after.split()[:3]
        if kind == "cgroup2":
            second.append(CgroupHierarchy(root, ""))
        elif kind == "cgroup":
            kept = [each for each in options.split(",") if each in _V1 or each.startswith("name=")]
            first.append(CgroupHierarchy(root, ",".join(kept)))
    return tuple(first or second[:1])


def make(cluster: str, node: str, found: tuple[CgroupHierarchy, ...]) -> None:
    """Create the cgroups of a node."""
    for each in found:
        cluster_group = each.root / cluster
        cluster_group.mkdir(exist_ok=True)
        if "cpuset" in each.controllers:
            for file in ("cpuset.cpus", "cpuset.mems"):
                (cluster_group / file).write_text((each.root / file).read_text())
            # Cgroups below inherit these.
            (cluster_group / "cgroup.clone_children").write_text("1")
        if not each.options:
            delegate(each.root)
            delegate(cluster_group)
        (cluster_group / node).mkdir(exist_ok=True)


def delegate(group: Path) -> None:
    """Give the cgroups below a cgroup of version 2 all of its controllers."""
    names = (group / "cgroup.controllers").read_text().split()
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in names))


def join(cluster: str, node: str, found: tuple[CgroupHierarchy, ...]) -> None:
    """Move this process into the cgroups of a node."""
    pid = str(os.getpid())
    for each in found:
        (each.root / cluster / node / "cgroup.procs").write_text(pid)


def remove(cluster: str, node: str = "") -> None:
    """Remove the cgroups of a node, or of all nodes of a cluster, and kill all processes in them.

    Raises:
        LocalError: A process does not end.
    """
    groups = [path for each in hierarchies() if (path := each.root / cluster / node).is_dir()]
    deadline = time.monotonic() + _GONE_SECONDS
    while groups:
        for group in groups:
            _end(group)
        groups = [group for group in groups if not _removed(group)]
        if groups and time.monotonic() > deadline:
            raise LocalError(f'processes in "{groups[0]}" do not end: see its file cgroup.procs')
        if groups:
            # No event reports that a cgroup of version 1 is empty.
            time.sleep(_PAUSE_SECONDS)


def _end(group: Path) -> None:
    for file in group.rglob("cgroup.procs"):
        try:
            pids = file.read_text().split()
        except OSError:
            continue
        # A process of another pid namespace is listed as 0, which for kill(2) means our own process group.
        for pid in (int(text) for text in pids if text != "0"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _removed(group: Path) -> bool:
    try:
        for path, _, _ in os.walk(group, topdown=False):
            Path(path).rmdir()
    except FileNotFoundError:
        return not group.exists()
    except OSError:
        return False
    return True

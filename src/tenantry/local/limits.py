"""Limits of the process of a component: a cgroup of its own, with a limit of memory and a weight of CPU.

/CLUSTER-components/COMPONENT in the hierarchies of `memory` and `cpu`, or in the one of version 2
▲ all components with limits together weigh as much as one other process: the cluster's own API server weighs no less,
  however many of them are busy

Sources: cgroups(7); Linux, "Memory Resource Controller", "Control Group v2".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tenantry.local.real import cgroups
from tenantry.local.real.cgroups import CgroupHierarchy

_WHOLE = 1024
"""The shares of CPU that a process outside has."""

_LEAST_SHARES, _MOST_SHARES = 2, 262_144
_MOST_WEIGHT = 10_000
_NEEDED = ("memory", "cpu")


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """What a process may take.

    Args:
        memory_bytes: The kernel ends the process that needs more.
        cpu_millis: Its part of the CPU beside the other components with limits, when there is not enough for all.
    """

    memory_bytes: int
    cpu_millis: int


class LimitedGroup:
    """The cgroup of one component.

    Args:
        cluster: The identity of the cluster.
        component: The name of the component.
    """

    def __init__(self, cluster: str, component: str) -> None:
        self._parent = f"{cluster}-components"
        self._name = component.replace("/", "_")

    def confine(self, pid: int, limits: ProcessLimits) -> str:
        """Limit a process that has just started; return "" or why that is not possible here.

        Args:
            pid: The process, which may have ended.
            limits: What it may take.
        """
        found = _hierarchies()
        missing = [each for each in _NEEDED if each not in found]
        if missing:
            return f"this machine has no cgroup controller {' and '.join(missing)}"
        try:
            for controller in _NEEDED:
                self._join(controller, found[controller], pid, limits)
        except ProcessLookupError:
            return ""  # it has ended
        except OSError as error:
            return f"{error.strerror}: {error.filename}"
        return ""

    def remove(self) -> None:
        """Remove the cgroup, whose process has ended."""
        for each in _hierarchies().values():
            for group in (each.root / self._parent / self._name, each.root / self._parent):
                try:
                    group.rmdir()
                except OSError:
                    break  # it was never made, or others are in it

    def _join(self, controller: str, hierarchy: CgroupHierarchy, pid: int, limits: ProcessLimits) -> None:
        parent = hierarchy.root / self._parent
        group = parent / self._name
        group.mkdir(parents=True, exist_ok=True)
        if not hierarchy.options:
            cgroups.delegate(hierarchy.root)
            cgroups.delegate(parent)
        if controller == "cpu":
            _weigh(parent, hierarchy, _WHOLE)
            _weigh(group, hierarchy, limits.cpu_millis * _WHOLE // 1000)
        else:
            file = "memory.limit_in_bytes" if hierarchy.options else "memory.max"
            (group / file).write_text(str(limits.memory_bytes))
            swap = group / "memory.swap.max"
            if swap.exists():
                # A process that swaps slows down the machine instead of ending.
                swap.write_text("0")
        (group / "cgroup.procs").write_text(str(pid))


def _hierarchies() -> dict[str, CgroupHierarchy]:
    """Return the hierarchy of each controller that limits need; version 2 has all in one."""
    found: dict[str, CgroupHierarchy] = {}
    for each in cgroups.hierarchies():
        names = each.controllers if each.options else frozenset(_read(each.root / "cgroup.controllers").split())
        found |= {name: each for name in _NEEDED if name in names}
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _weigh(group: Path, hierarchy: CgroupHierarchy, shares: int) -> None:
    bounded = min(max(shares, _LEAST_SHARES), _MOST_SHARES)
    if hierarchy.options:
        (group / "cpu.shares").write_text(str(bounded))
        return
    # As Kubernetes converts shares to weights.
    weight = 1 + (bounded - _LEAST_SHARES) * (_MOST_WEIGHT - 1) // (_MOST_SHARES - _LEAST_SHARES)
    (group / "cpu.weight").write_text(str(weight))

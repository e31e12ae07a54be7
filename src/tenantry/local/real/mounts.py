"""Calls of mount(2) by a node's first process.

A descriptor that was opened before a mount still reaches the folder below it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from tenantry.local.real.cgroups import CgroupHierarchy

_LIBC = ctypes.CDLL(None, use_errno=True)
# mount(2), from linux/mount.h.
_BIND = 0x1000
_RECURSIVE = 0x4000
_PRIVATE = 1 << 18
_SHARED = 1 << 20
_CGROUPS = Path("/sys/fs/cgroup")


def isolate() -> None:
    """Hide all further mounts from outside, and give this process's namespaces their own /proc and /sys."""
    _mount("none", "/", "", _RECURSIVE | _PRIVATE)
    _mount("proc", "/proc", "proc")
    _mount("sysfs", "/sys", "sysfs")


def share() -> None:
    """Propagate all further mounts to the mount namespaces of containers, as volumes need it."""
    _mount("none", "/", "", _RECURSIVE | _SHARED)


def empty(path: str) -> None:
    """Mount an empty tmpfs over a folder."""
    _mount("tmpfs", path, "tmpfs", options="mode=755")


def bind(descriptor: int, path: str) -> None:
    """Mount the folder of a descriptor at a path, which is created."""
    Path(path).mkdir(parents=True, exist_ok=True)
    _mount(f"/proc/self/fd/{descriptor}", path, "", _BIND)


def shadow(path: str, text: str, copy: Path) -> None:
    """Mount a copy with another text over a file, so that reads and writes of this node do not reach the original."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text)
    _mount(str(copy), path, "", _BIND)


def cgroups(hierarchies: Iterable[CgroupHierarchy]) -> None:
    """Mount this process's cgroup namespace of each hierarchy at the usual place."""
    found = tuple(hierarchies)
    if not found[0].options:
        _mount("cgroup2", str(_CGROUPS), "cgroup2")
        # A cgroup with processes may not enable controllers for its children: cgroups(7), "no internal processes".
        (_CGROUPS / "init").mkdir(exist_ok=True)
        (_CGROUPS / "init" / "cgroup.procs").write_text(str(os.getpid()))
        return
    empty(str(_CGROUPS))
    for each in found:
        place = _CGROUPS / each.root.name
        place.mkdir()
        options = f"none,{each.options}" if each.options.startswith("name=") else each.options
        _mount("cgroup", str(place), "cgroup", options=options)


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    encoded = [text.encode() or None for text in (source, target, kind)]
    if _LIBC.mount(*encoded, ctypes.c_ulong(flags), options.encode() or None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or source} at {target}: {os.strerror(number)}")

"""Calls of mount(2) by a node's first process.

A descriptor that was opened before a mount still reaches the folder below it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from tenantry.local.real.cgroups import CgroupHierarchy

_LIBC = ctypes.CDLL(None, use_errno=True)
# mount(2), from linux/mount.h.
_NO_SUID, _NO_DEVICES = 2, 4
_BIND = 0x1000
_RECURSIVE = 0x4000
_PRIVATE = 1 << 18
_SHARED = 1 << 20
# umount2(2), from linux/fs.h.
_DETACH, _NO_FOLLOW = 2, 8
# setns(2), from linux/sched.h.
_MOUNT_NAMESPACE = 0x20000
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


def volume(device: str, descriptor: int) -> None:
    """Mount the ext4 file system of a device at the folder of a descriptor.

    No device nodes: the blocks of other volumes are devices. No set-user-ID programs: what root of one container
    writes must not give its rights to another user of the volume. The kernel keeps an inode table that was never
    written unwritten, and gives the blocks of deleted files back to the sparse file below.
    """
    os.fchdir(descriptor)
    options = "errors=remount-ro,noinit_itable,discard"
    # By a descriptor and not by its path, because a link may be in the place of the folder.
    _mount(device, ".", "ext4", _NO_SUID | _NO_DEVICES, options)


def detach(descriptor: int, name: str) -> None:
    """Unmount all that is mounted at a folder, which is in the folder of a descriptor; files that are open stay so."""
    os.fchdir(descriptor)
    # Several may be mounted above each other.
    while not _LIBC.umount2(name.encode(), _DETACH | _NO_FOLLOW):
        pass
    number = ctypes.get_errno()
    if number not in {errno.EINVAL, errno.ENOENT}:  # nothing is mounted there
        raise OSError(number, f"unmount: {os.strerror(number)}", name)


def enter(pid: int) -> None:
    """Enter the mount namespace of a process, as a process that has no other thread.

    Raises:
        OSError: The process has ended, or this process may not enter.
    """
    descriptor = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _LIBC.setns(descriptor, _MOUNT_NAMESPACE):
            number = ctypes.get_errno()
            raise OSError(number, f"enter the mount namespace of the process {pid}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


def is_elsewhere(pid: int) -> bool:
    """Return whether a process has a mount namespace that is not this process's."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def places(pid: int) -> frozenset[str]:
    """Return the places at which something is mounted for a process, as proc_pid_mountinfo(5) writes them.

    None if the process has ended.
    """
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line.split(" ")[4] for line in lines)


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

"""Checks that this machine can run real nodes, and says how to get what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

from tenantry.api.errors import LocalError
from tenantry.local.real import limits
from tenantry.local.real.settings import COVERED

_PROGRAMS = (("ip", "iproute2"), ("nft", "nftables"), ("unshare", "util-linux"))
_FILE_SYSTEMS = ("overlay", "proc", "sysfs", "tmpfs")
# CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE and CAP_MKNOD; capabilities(7).
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}


def lacking() -> tuple[str, ...]:
    """Return what this machine lacks, each with advice; () if it can run real nodes."""
    if platform.system() != "Linux":
        return (f"real nodes need Linux, and this is {platform.system()}",)
    if os.geteuid() != 0:
        return ("real nodes need network interfaces, mounts and cgroups, which only root may create: run it as root",)
    return (*_capabilities(), *_programs(), *_kernel(), *_places())


def check() -> None:
    """Check that real nodes can run here.

    Raises:
        LocalError: Something is missing: everything that is, and what to do.
    """
    found = lacking()
    if found:
        lines = "\n".join(f"    {line}" for line in found)
        raise LocalError(f"this machine cannot run real nodes:\n{lines}\nuse simulated nodes instead: `--runtime kwok`")


def _capabilities() -> list[str]:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    missing = [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
    return [f"root lacks {', '.join(missing)} here: grant them, or use another machine"] if missing else []


def _places() -> list[str]:
    folder = Path(sys.prefix).resolve()
    if any(folder.is_relative_to(covered) for covered in COVERED):
        return [f'Python is in "{folder}", which nodes cannot see: install it outside of {" and ".join(COVERED)}']
    return []


def _programs() -> list[str]:
    missing = {program: package for program, package in _PROGRAMS if shutil.which(program) is None}
    if not missing:
        return []
    packages = " ".join(sorted(set(missing.values())))
    return [f"{', '.join(missing)} not found: on Debian, run `apt-get install {packages}`"]


def _kernel() -> list[str]:
    known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    missing = [name for name in _FILE_SYSTEMS if name not in known]
    found = [f"the kernel does not support {', '.join(missing)}: `modprobe overlay` loads overlay"] if missing else []
    if not any(line.split()[2].startswith("cgroup") for line in Path("/proc/mounts").read_text().splitlines()):
        found.append("no cgroup hierarchy is mounted: mount one at /sys/fs/cgroup")
    low = limits.lacking()
    return [*found, low] if low else found

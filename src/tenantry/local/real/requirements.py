"""What real nodes need of this machine, and what of it is not there, named with what to do."""

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
    """Return what this machine lacks, each with what to do about it; () where real nodes can run."""
    if platform.system() != "Linux":
        return (f"real nodes are Linux' alone, and this is {platform.system()}",)
    if os.geteuid() != 0:
        return ("real nodes make network interfaces, mounts and cgroups, which only root may: run it as root",)
    return (*_capabilities(), *_programs(), *_kernel(), *_places())


def check() -> None:
    """Check that real nodes can run here.

    Raises:
        LocalError: Everything that is missing, and the way out.
    """
    found = lacking()
    if found:
        lines = "\n".join(f"    {line}" for line in found)
        raise LocalError(
            f"this machine cannot run real nodes:\n{lines}\n`--runtime kwok` makes simulated ones, which need nothing"
        )


def _capabilities() -> list[str]:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    missing = [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
    return [f"root has not {', '.join(missing)} here: give them to it, or use another machine"] if missing else []


def _places() -> list[str]:
    folder = Path(sys.prefix).resolve()
    if any(folder.is_relative_to(covered) for covered in COVERED):
        return [f'Python is in "{folder}", and nodes have {" and ".join(COVERED)} of their own: install it elsewhere']
    return []


def _programs() -> list[str]:
    missing = {program: package for program, package in _PROGRAMS if shutil.which(program) is None}
    if not missing:
        return []
    packages = " ".join(sorted(set(missing.values())))
    return [f"there is no {', '.join(missing)}: `apt-get install {packages}` gets them on Debian"]


def _kernel() -> list[str]:
    known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    missing = [name for name in _FILE_SYSTEMS if name not in known]
    found = [f"the kernel has not {', '.join(missing)}: `modprobe overlay` loads one of them"] if missing else []
    if not any(line.split()[2].startswith("cgroup") for line in Path("/proc/mounts").read_text().splitlines()):
        found.append("no cgroup hierarchy is mounted: mount one at /sys/fs/cgroup")
    low = limits.lacking()
    return [*found, low] if low else found

"""Raises the one limit of this machine that is too low for real nodes: inotify instances of one user.

Linux allows a user 128 instances of inotify(7). A control plane uses 14, a node about 8, and on cgroups of version 2
each container one, so a few clusters exhaust root's. Kubelets then end right after their start, containerd has no CRI,
and kube-proxy does not start, in an endless loop. A higher limit costs nothing until it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tenantry.api.errors import LocalError

INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
WANTED = 8192
_ADVICE = f"raise it with `sysctl -w fs.inotify.max_user_instances={WANTED}` as a user who may"


def lacking(file: Path = INSTANCES) -> str:
    """Return why the limit is too low and cannot be raised, "" if it is high enough or can be raised."""
    before = int(file.read_text())
    if before >= WANTED or os.access(file, os.W_OK):
        return ""
    return f"only {before} instances of inotify are allowed per user, and a kubelet without one ends: {_ADVICE}"


def raise_them(say: Callable[[str], None], file: Path = INSTANCES) -> None:
    """Raise the limit if it is too low, and report that; it stays raised until the machine reboots.

    Raises:
        LocalError: The kernel refuses.
    """
    before = int(file.read_text())
    if before >= WANTED:
        return
    try:
        file.write_text(str(WANTED))
    except OSError as error:
        raise LocalError(f"fs.inotify.max_user_instances cannot be raised ({error.strerror}): {_ADVICE}") from error
    say(f"raised fs.inotify.max_user_instances from {before} to {WANTED}, because a kubelet without an instance ends")

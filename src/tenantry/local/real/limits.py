"""The one limit of this machine that real nodes need raised: how many files one user may have watched at once.

Linux allows a user 128 instances of inotify(7). A control plane takes 14, a node about 8, and on cgroups of version 2
each container one: with a few clusters root has none left. Then a kubelet ends as soon as it has begun, a containerd
has no CRI, and kube-proxy does not start, all of them again and again. A higher limit costs nothing until it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tenantry.api.errors import LocalError

INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
WANTED = 8192
_ADVICE = f"`sysctl -w fs.inotify.max_user_instances={WANTED}` where that is allowed raises it"


def lacking(file: Path = INSTANCES) -> str:
    """Return why the limit is too low and stays so, "" where it is high enough or can be raised."""
    before = int(file.read_text())
    if before >= WANTED or os.access(file, os.W_OK):
        return ""
    return f"only {before} instances of inotify are allowed to a user, and kubelets end where none is left: {_ADVICE}"


def raise_them(say: Callable[[str], None], file: Path = INSTANCES) -> None:
    """Raise the limit where it is too low, and tell; it stays raised until the machine starts again.

    Raises:
        LocalError: The kernel does not let us.
    """
    before = int(file.read_text())
    if before >= WANTED:
        return
    try:
        file.write_text(str(WANTED))
    except OSError as error:
        raise LocalError(f"fs.inotify.max_user_instances cannot be raised ({error.strerror}): {_ADVICE}") from error
    say(f"raised fs.inotify.max_user_instances from {before} to {WANTED}: kubelets end where root has none left")

"""The folders of pods on a node's disk: their volumes and their logs.

Source: Kubernetes, "Local Files And Paths Used By The Kubelet".
"""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

from tenantry.nodeagent.leftovers import PodFolder

_LIBC = ctypes.CDLL(None, use_errno=True)
_OCTAL = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class Disk:
    """The folders in which the kubelet of a node keeps files of pods.

    Args:
        kubelet: Its root folder, usually /var/lib/kubelet.
        logs: The folder of logs, usually /var/log/pods.
    """

    def __init__(self, kubelet: Path, logs: Path) -> None:
        self._pods = kubelet / "pods"
        self._logs = logs

    def folders(self) -> tuple[PodFolder, ...]:
        """Return the folders of all pods."""
        found = [PodFolder(path=path, pod_uid=path.name) for path in _inside(self._pods)]
        # NAMESPACE_NAME_UID: none of the three can contain an underscore.
        found += [PodFolder(path=path, pod_uid=path.name.rpartition("_")[2]) for path in _inside(self._logs)]
        return tuple(found)

    def remove(self, folder: PodFolder) -> str:
        """Unmount everything below a folder and remove it; return why that failed, "" if it did not."""
        # rmtree would delete the data of a mounted volume. No lazy unmount: a process may still write to it.
        for place in reversed(_mounts_below(folder.path)):
            if _LIBC.umount2(os.fsencode(place), 0):
                return f"{os.strerror(ctypes.get_errno())}: {place}"
        try:
            # rmtree removes links without following them.
            shutil.rmtree(folder.path)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return str(error)
        return ""

    def sweep(self) -> None:
        """Remove links to deleted logs."""
        for link in _inside(self._logs.parent / "containers"):
            if link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _mounts_below(folder: Path) -> list[str]:
    """Return the mount points in a folder, outer ones first; proc_pid_mountinfo(5)."""
    top = f"{folder}/"
    places: list[str] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split(" ")[4]
        for code, character in _OCTAL.items():
            place = place.replace(code, character)
        if place.startswith(top):
            places.append(place)
    return places

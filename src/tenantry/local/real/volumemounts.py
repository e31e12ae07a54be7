"""Mounts the images of volumes in the mount namespace of their node.

    python -m tenantry.local.real.volumemounts mount FOLDER PID          mounts all images that are not mounted
    python -m tenantry.local.real.volumemounts unmount FOLDER PID NAME   unmounts one
    python -m tenantry.local.real.volumemounts try FOLDER                mounts NAME.img at NAME, in its own namespace

The first process of a node mounts all images before the kubelet starts. The provisioner starts this module for images
that it makes later, as a process of its own: setns(2) needs one that has no other thread.

Nothing is mounted in the namespace of the machine. When a node ends in any way, the kernel unmounts its volumes and
detaches their devices (see `loops`). While a volume is not mounted, the folder of its PersistentVolume is not there,
and the kubelet waits: no pod writes beside its volume.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from tenantry.local.real import disks, loops, mounts
from tenantry.local.real.volumes import PLACE

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(path: Path | str) -> int:
    """Open a folder and return its descriptor; no link is followed."""
    return os.open(path, _FOLDER)


def mount_all(images: int, place: int) -> dict[str, str]:
    """Mount all images that are not mounted yet; return by the name of the volume why one could not be.

    Args:
        images: The descriptor of the folder of the images.
        place: The descriptor of the folder of volumes, as the node sees it.
    """
    problems: dict[str, str] = {}
    for name in disks.names(images):
        try:
            _mount(images, place, name)
        except OSError as error:
            # The others must not wait for it.
            problems[name] = error.strerror or str(error)
    return problems


def _mount(images: int, place: int, name: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=place)
    target = os.open(name, _FOLDER, dir_fd=place)
    try:
        if os.fstat(target).st_dev != os.fstat(place).st_dev:
            return
        image = disks.open_image(images, name)
        try:
            with loops.attached(image) as device:
                mounts.volume(device, target)
        finally:
            os.close(image)
    finally:
        os.close(target)


def main() -> int:
    """Run; problems are lines of stdout, each with the name of a volume and a text. Return the exit code."""
    verb, folder = sys.argv[1], Path(sys.argv[2])
    images = open_folder(folder)
    if verb == "try":
        problems = mount_all(images, images)
    else:
        mounts.enter(int(sys.argv[3]))
        place = open_folder(PLACE)
        if verb == "unmount":
            mounts.detach(place, sys.argv[4])
            return 0
        problems = mount_all(images, place)
    for name, text in problems.items():
        sys.stdout.write(f"{name} {text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

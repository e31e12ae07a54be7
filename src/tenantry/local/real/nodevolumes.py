"""The volumes of one node in one cluster: their images, their mounts, and the folders of earlier releases.

    CLUSTER/nodes/NAME/volumes/pvc-UID    the place of the mount; or the volume itself, if its size is not enforced
    CLUSTER/nodes/NAME/disks/pvc-UID.img  its image

A volume is deleted in an order of which every step can be repeated after a crash: the mount, the device, the image, the
folder, and last the PersistentVolume.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from tenantry.local.locks import holding
from tenantry.local.real import disks, loops, mounts
from tenantry.local.real.node import process_in
from tenantry.local.real.volumes import PLACE, is_name

FOLDER = "volumes"
_MODULE = "tenantry.local.real.volumemounts"
_SECONDS = 60
_TRIAL = "pvc-00000000-0000-0000-0000-000000000000"
_TRIAL_BYTES = 2**20
# A machine that can mount images lacks something for the moment.
_FOR_NOW = {errno.ENOSPC, errno.EBUSY, errno.EAGAIN, errno.ENOMEM}


class NodeVolumes:
    """The volumes of a node.

    Args:
        folder: The folder of the files of the node, in the cluster that the volumes are of.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = folder / FOLDER
        self._disks = folder / disks.FOLDER

    def names(self) -> list[str]:
        """Return the names of all volumes, and of other files in their place."""
        found = {each.name for each in self._place.glob("pvc-*")}
        return sorted(found | {each.stem for each in self._disks.glob("pvc-*")})

    def sweep(self) -> None:
        """Delete what a killed provisioner has left unfinished."""
        disks.sweep(self._disks)

    def make_sized(self, name: str, size: int, cluster: Path) -> None:
        """Make a volume of a size, or leave the one that is there; `mount` mounts it.

        Args:
            name: The name of the volume.
            size: In bytes.
            cluster: The folder of the cluster.

        Raises:
            OSError: The disk has no room, or the file system cannot be made; or it is no name of a volume.
        """
        _check(name)
        disks.prepare(self._disks)
        disks.make(self._disks, name, size, cluster)

    def make_folder(self, name: str) -> None:
        """Make a volume that is a folder, whose size is not enforced.

        Pods of any user may write to it. The folder above is private, so other users of the machine cannot get in.

        Args:
            name: The name of the volume.

        Raises:
            OSError: There is something else of this name, such as a link; or it is no name of a volume.
        """
        with _opened(self._place, name) as above:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=above)
            own = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            try:
                os.fchmod(own, 0o777)
            finally:
                os.close(own)

    def mount(self) -> dict[str, str]:
        """Mount all sized volumes, if the node runs; return by the name of the volume why one could not be.

        A node that starts mounts its volumes itself.

        Raises:
            OSError: The node has just ended.
            LocalError: The lock cannot be taken.
        """
        if not self._disks.is_dir():
            return {}
        with self._images() as images:
            pid = self._prepared()
            if not pid or all(f"{PLACE}/{name}" in mounts.places(pid) for name in disks.names(images)):
                return {}
            lines = self._run("mount", str(pid)).splitlines()
        return {name: text for name, _, text in (line.partition(" ") for line in lines)}

    def erase(self, name: str) -> None:
        """Delete a volume: its mount, its image and its folder, or what a pod has put in their place.

        Raises:
            OSError: Something uses it or cannot be deleted; or it is no name of a volume.
            LocalError: The lock cannot be taken.
        """
        _check(name)
        if self._disks.is_dir():
            with self._images() as images:
                pid = self._prepared()
                if pid and f"{PLACE}/{name}" in mounts.places(pid):
                    self._run("unmount", str(pid), name)
                _check_detached(images, name)
                disks.remove(images, name)
        if self._place.is_dir():
            with _opened(self._place, name) as above:
                _remove(above, name)

    @contextlib.contextmanager
    def _images(self) -> Generator[int]:
        """Open the folder of images while a node that starts, or another process, mounts none of them."""
        with holding(disks.lock(self._disks)):
            images = os.open(self._disks, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                yield images
            finally:
                os.close(images)

    def _prepared(self) -> int:
        """Return a process of the node if its volumes are to be mounted from outside; else 0.

        The first process of a node holds the lock from before its namespace is its own until it has mounted all images.
        """
        pid = process_in(self._folder)
        return pid if pid and mounts.is_elsewhere(pid) and PLACE in mounts.places(pid) else 0

    def _run(self, verb: str, *more: str) -> str:
        command = (sys.executable, "-m", _MODULE, verb, str(self._disks), *more)
        return _output(command, self._folder.name)


def lacking(folder: Path) -> str:
    """Return why this machine cannot enforce the sizes of volumes, with advice; "" if it can.

    A file system is made and mounted, in a mount namespace that ends at once.

    Args:
        folder: Where files may be.
    """
    try:
        disks.program()
    except FileNotFoundError:
        return "mkfs.ext4 is not installed: on Debian, run `apt-get install e2fsprogs`"
    try:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            image = Path(place) / f"{_TRIAL}{disks.IMAGE}"
            image.touch()
            os.truncate(image, _TRIAL_BYTES)
            disks.format_image(image)
            command = ("unshare", "--mount", "--propagation=private", sys.executable, "-m", _MODULE, "try", place)
            _, _, found = _output(command, "this machine").strip().partition(" ")
    except OSError as error:
        return "" if error.errno in _FOR_NOW else f"a file system cannot be made in a file ({error})"
    if not found or found in {os.strerror(each) for each in _FOR_NOW}:
        return ""
    return (
        f"a file cannot be mounted as a file system by a loop device ({found}): load the modules `loop` and `ext4`, or"
        " let the container use /dev/loop-control and the devices with the major number 7"
    )


def _output(command: tuple[str, ...], where: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.ETIMEDOUT, f"volumes of {where} were not mounted within {_SECONDS} s") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise OSError(errno.EIO, f"volumes of {where}: {lines[-1] if lines else 'killed'}")
    return done.stdout


def _check_detached(images: int, name: str) -> None:
    try:
        image = disks.open_image(images, name)
    except OSError:
        return
    try:
        if loops.is_attached(image):
            raise OSError(errno.EBUSY, "a process of a pod still uses the volume", name)
    finally:
        os.close(image)


def _remove(above: int, name: str) -> None:
    try:
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        # rmtree follows no link that a pod left, because shutil.rmtree.avoids_symlink_attacks is true on Linux.
        shutil.rmtree(name, dir_fd=above)
    else:
        os.unlink(name, dir_fd=above)


@contextlib.contextmanager
def _opened(place: Path, name: str) -> Generator[int]:
    """Open the folder of volumes, in which all is done by one name: no answer of a cluster leads to another folder."""
    _check(name)
    above = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield above
    finally:
        os.close(above)


def _check(name: str) -> None:
    if not is_name(name):
        raise OSError(errno.EINVAL, "the name of a volume must be pvc- and the uid of a claim", name)
